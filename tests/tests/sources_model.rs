//! Random programs of scopes on several threads, against a plain model: the pool remembers every amount it held, and a scope's peak is
//! the highest of those between its ends.
#![expect(clippy::unwrap_used, reason = "a test whose threads are gone can only stop")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use memtrack::scope::{Outcome, Scope};
use memtrack::source::{PeakKind, SourceFigures, register_source};
use memtrack_tests::sources::{Pool, turn};
use proptest::prelude::*;

const THREAD_COUNT: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    Open,
    Close,
    Change(i64),
}

/// A scope as the model knows it.
struct Expected {
    opened_at: usize,
    before_bytes: u64,
    is_shared: bool,
}

/// One worker does the scopes of one thread, when it is told to.
fn work(told: &Receiver<Step>, done: &Sender<Option<SourceFigures>>) {
    let mut scopes: Vec<Scope> = Vec::new();
    for step in told {
        let closed = match step {
            Step::Open => {
                scopes.push(memtrack::scope("random").unwrap());
                None
            }
            _ => scopes.pop().map(|scope| scope.close(Outcome::Ok).sources.remove(0)),
        };
        done.send(closed).unwrap();
    }
}

fn run(program: &[(usize, Step)]) {
    let _turn = turn();
    let pool = Arc::new(Pool::new("pool"));
    let _registered = register_source(pool.clone()).unwrap();
    std::thread::scope(|threads| {
        let workers: Vec<_> = (0..THREAD_COUNT)
            .map(|_| {
                let (tell, told) = channel();
                let (done, answers) = channel();
                threads.spawn(move || work(&told, &done));
                (tell, answers)
            })
            .collect();
        let mut open: [Vec<Expected>; THREAD_COUNT] = Default::default();
        let rest = (0..THREAD_COUNT).flat_map(|thread| std::iter::repeat_n((thread, Step::Close), program.len()));
        for (thread, step) in program.iter().copied().chain(rest) {
            if let Step::Change(bytes) = step {
                pool.change(bytes);
                continue;
            }
            if matches!(step, Step::Close) && open[thread].is_empty() {
                continue;
            }
            let (tell, answers) = &workers[thread];
            tell.send(step).unwrap();
            let closed = answers.recv().unwrap();
            if matches!(step, Step::Open) {
                let mut is_shared = false;
                for others in (0..THREAD_COUNT).filter(|other| *other != thread) {
                    is_shared |= !open[others].is_empty();
                    open[others].iter_mut().for_each(|expected| expected.is_shared = true);
                }
                let (opened_at, before_bytes) = (pool.moment(), pool.current());
                open[thread].push(Expected { opened_at, before_bytes, is_shared });
                continue;
            }
            let (expected, figures) = (open[thread].pop().unwrap(), closed.unwrap());
            assert_eq!(figures.before_bytes, i64::try_from(expected.before_bytes).ok());
            assert_eq!(figures.after_bytes, i64::try_from(pool.current()).ok());
            assert_eq!(figures.peak_bytes, i64::try_from(pool.highest_since(expected.opened_at)).ok());
            let kind = if expected.is_shared { PeakKind::Shared } else { PeakKind::Exact };
            assert_eq!((figures.peak_kind, &figures.failure), (kind, &None));
        }
        drop(workers);
    });
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        3 => Just(Step::Open),
        3 => Just(Step::Close),
        4 => (-500_i64..600).prop_map(Step::Change),
    ];
    (0..THREAD_COUNT, step)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn peaks_are_those_of_the_model_under_any_nesting_and_overlap(program in proptest::collection::vec(step(), 1..60)) {
        run(&program);
    }
}
