//! Checks on asynchronous work.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use memtrack::device::Simulated;
use memtrack::scope::InScope;
use memtrack::testing::{self, Measured};
use memtrack::{Buffer, CachingAllocator, track_memory};
use memtrack_tests::futures::poll_once;
use memtrack_tests::panics::panicked;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

fn allocator() -> CachingAllocator {
    CachingAllocator::new(Arc::new(Simulated::new()))
}

#[track_caller]
fn take(allocator: &CachingAllocator, bytes: usize) -> Buffer<u8> {
    Buffer::uninit(allocator, bytes).unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn many_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).build().unwrap()
}

fn figures<T>(measured: &Measured<T>) -> (u64, u64, u64) {
    (measured.kept_bytes(), measured.peak_bytes(), measured.allocation_count())
}

/// Keeps 100 bytes, has a peak of 400 and makes 3 allocations, with a stop between any two of them.
#[track_memory(phase = "work", device = allocator)]
async fn work(allocator: CachingAllocator) -> Buffer<u8> {
    drop(take(&allocator, 50));
    yield_now().await;
    let kept = take(&allocator, 100);
    yield_now().await;
    let more = take(&allocator, 300);
    yield_now().await;
    drop(more);
    kept
}

#[test]
fn work_is_measured_at_its_polls_and_nothing_between_them_is() {
    let allocator = allocator();
    one_thread().block_on(async {
        let stranger = {
            let allocator = allocator.clone();
            async move {
                for _ in 0..20 {
                    let held = take(&allocator, 7000);
                    yield_now().await;
                    drop(held);
                }
            }
        };
        let work = testing::on(&allocator).expect_async(work(allocator.clone()));
        let (measured, ()) = tokio::join!(work, stranger);
        assert_eq!(figures(&measured), (100, 400, 3));
        assert_eq!(figures(&measured.peak_at_most(400).without_value().keeps_nothing()), (0, 400, 3));
    });
}

#[test]
fn several_pieces_of_work_on_one_thread_do_not_mix() {
    let allocator = allocator();
    one_thread().block_on(async {
        let measure = || testing::on(&allocator).expect_async(work(allocator.clone()));
        let (first, second, third) = tokio::join!(measure(), measure(), measure());
        for measured in [first, second, third] {
            assert_eq!(figures(&measured), (100, 400, 3));
        }
    });
}

#[test]
fn tasks_spawned_inside_count_where_they_are_given_the_scope() {
    let allocator = allocator();
    many_threads().block_on(async {
        let parent = async {
            let own: Vec<_> = (0..8).map(|_| tokio::spawn(work(allocator.clone()).in_current_scope())).collect();
            let others: Vec<_> = (0..8).map(|_| tokio::spawn(work(allocator.clone()))).collect();
            let mut kept = Vec::new();
            for task in own.into_iter().chain(others) {
                kept.push(task.await.unwrap());
            }
            kept
        };
        let measured = testing::on(&allocator).expect_async(parent).await;
        assert_eq!((measured.kept_bytes(), measured.allocation_count()), (800, 24));
        assert!((800..=3200).contains(&measured.peak_bytes()), "{}", measured.peak_bytes());
        measured.without_value().keeps_nothing();
    });
}

#[test]
fn measured_work_can_itself_be_spawned() {
    let allocator = allocator();
    many_threads().block_on(async {
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let allocator = allocator.clone();
                tokio::spawn(async move { testing::on(&allocator).expect_async(work(allocator.clone())).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(figures(&task.await.unwrap()), (100, 400, 3));
        }
    });
    assert_eq!(allocator.memory_allocated(), 0);
}

#[test]
fn a_check_fails_as_for_other_work() {
    let allocator = allocator();
    let _current = allocator.make_current();
    let runtime = one_thread();
    let mut line = 0;
    let panicked = panicked(|| {
        runtime.block_on(async {
            let measured = testing::expect_async(work(allocator.clone())).await;
            line = line!() + 1;
            measured.peak_at_most(399);
        });
    });
    assert_eq!((panicked.file.as_str(), panicked.line), (file!(), line));
    let mut lines = panicked.text.lines();
    let verdict = "memtrack: the work used 400 bytes of simulated memory at its peak and may use at most 399 bytes";
    assert_eq!(lines.next(), Some(verdict));
    let row = lines.nth(1).unwrap();
    assert!(row.starts_with("    300 bytes  1 × 300 B  ") && row.ends_with(" in work"), "{row}");
}

#[test]
fn cancelled_work_leaves_nothing_behind() {
    let allocator = allocator();
    {
        let mut future = pin!(testing::on(&allocator).expect_async(async {
            let _held = take(&allocator, 100);
            std::future::pending::<()>().await;
        }));
        assert!(poll_once(future.as_mut()).is_pending());
        assert_eq!(allocator.memory_allocated(), 512);
    }
    assert_eq!(allocator.memory_allocated(), 0);
    let after = testing::on(&allocator).expect(|| take(&allocator, 10));
    assert_eq!(figures(&after), (10, 10, 1));
}

#[test]
fn a_panic_in_the_work_goes_through() {
    let allocator = allocator();
    let work = async {
        let _held = take(&allocator, 100);
        yield_now().await;
        panic!("of the work");
    };
    let future = testing::on(&allocator).expect_async(work);
    let outcome = catch_unwind(AssertUnwindSafe(|| one_thread().block_on(future)));
    assert_eq!(outcome.map(drop).unwrap_err().downcast_ref(), Some(&"of the work"));
    assert_eq!(allocator.memory_allocated(), 0);
    assert_eq!(figures(&testing::on(&allocator).expect(|| ())), (0, 0, 0));
}

#[test]
fn it_can_be_sent_if_the_work_can() {
    fn is_send<T: Send>(_: &T) {}
    let allocator = allocator();
    let future = testing::on(&allocator).expect_async(work(allocator.clone()));
    is_send(&future);
}
