//! Shapes of asynchronous functions that broke other attributes: each must compile as without the attribute, raise no
//! lint of its own, and compute the same.
#![deny(warnings, clippy::all, clippy::pedantic, unreachable_code, unsafe_op_in_unsafe_fn)]
#![deny(
    unsafe_code,
    single_use_lifetimes,
    elided_lifetimes_in_paths,
    unused_qualifications,
    let_underscore_drop,
    rust_2018_idioms,
    rust_2024_compatibility
)]
#![allow(clippy::unused_async, clippy::many_single_char_names, clippy::never_loop, reason = "the shapes are short")]
#![allow(clippy::unwrap_used)]

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, poll_once, yield_now};
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;

struct NotDebug(u32);

#[test]
fn shape_04_returned_closure() {
    #[track_memory]
    async fn f(n: u32) -> impl Fn(u32) -> u32 {
        yield_now().await;
        move |x| x + n
    }
    assert_eq!(block_on(f(1))(2), 3);
}

#[test]
fn shape_11_argument_bound_to_a_local() {
    #[track_memory]
    #[expect(unused_assignments, reason = "the shape")]
    async fn f(mut a: &str) -> usize {
        let l = String::from("x");
        a = &l;
        yield_now().await;
        a.len()
    }
    assert_eq!(block_on(f("long")), 1);
}

#[test]
fn shape_13_parameters_named_as_a_macro_might() {
    #[track_memory(phase = "p")]
    #[allow(clippy::used_underscore_binding, reason = "the shape")]
    async fn f(caller: u32, result: u32, _guard: u32, __span: u32, __value: u32, __edge: u32) -> u32 {
        yield_now().await;
        caller + result + _guard + __span + __value + __edge
    }
    assert_eq!(block_on(f(1, 2, 3, 4, 5, 6)), 21);
}

#[test]
fn shape_18_never_returns() {
    #[track_memory]
    async fn f() -> ! {
        loop {
            yield_now().await;
        }
    }
    #[track_memory]
    async fn g(n: u32) -> ! {
        yield_now().await;
        assert_eq!(n, 1);
        panic!("on purpose")
    }
    let mut future = pin!(f());
    for _ in 0..3 {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    assert!(catch_unwind(|| block_on(g(1))).is_err());
}

#[test]
fn shape_19_bodies_that_diverge() {
    #[track_memory]
    async fn f() -> u32 {
        unimplemented!()
    }
    #[track_memory]
    async fn g() -> u32 {
        loop {
            return 3;
        }
    }
    assert!(catch_unwind(|| block_on(f())).is_err());
    assert_eq!(block_on(g()), 3);
}

#[test]
fn shape_22_and_24_patterns_and_cfg() {
    #[track_memory]
    async fn f((a, mut b): (u8, u8), #[cfg(not(unix))] c: u8, #[cfg(unix)] [d, ..]: [u8; 3], _: u8, _unused: u8) -> u8 {
        yield_now().await;
        b += 1;
        #[cfg(not(unix))]
        let d = c;
        a + b + d
    }
    #[cfg(unix)]
    assert_eq!(block_on(f((1, 2), [3, 4, 5], 6, 7)), 7);
}

struct Receivers(u32);

impl Receivers {
    #[track_memory]
    async fn shared(&self) -> u32 {
        self.0
    }
    #[track_memory]
    async fn exclusive(&mut self) -> &mut u32 {
        yield_now().await;
        &mut self.0
    }
    #[track_memory]
    async fn value(mut self) -> Self {
        self.0 += 1;
        yield_now().await;
        self
    }
    #[track_memory]
    async fn pinned(self: Pin<&mut Self>) -> u32 {
        self.0
    }
    #[track_memory]
    async fn boxed(self: Box<Self>) -> u32 {
        self.0
    }
    #[track_memory]
    async fn counted(self: Rc<Self>) -> u32 {
        self.0
    }
    #[track_memory]
    async fn behind_arc(self: &Arc<Self>) -> u32 {
        self.0
    }
}

#[test]
fn shape_25_receivers() {
    block_on(async {
        let mut receiver = Receivers(1).value().await;
        *receiver.exclusive().await += 1;
        assert_eq!(receiver.shared().await, 3);
        assert_eq!(Pin::new(&mut receiver).pinned().await, 3);
        assert_eq!(Box::new(Receivers(4)).boxed().await, 4);
        assert_eq!(Rc::new(Receivers(5)).counted().await, 5);
        assert_eq!(Arc::new(Receivers(6)).behind_arc().await, 6);
    });
}

#[test]
#[allow(unsafe_code)]
fn shape_26_unsafe() {
    /// # Safety
    /// `n` is valid.
    #[track_memory]
    async unsafe fn g(n: *const u8) -> u8 {
        // SAFETY: as the function's own condition.
        unsafe { *n }
    }
    // SAFETY: a reference is valid.
    assert_eq!(block_on(unsafe { g(&3) }), 3);
}

trait Shape {
    const K: u32;
    async fn required(&self) -> u32;
    #[track_memory]
    async fn provided(&self) -> u32 {
        self.required().await + 1
    }
}

struct W<T, const N: usize>([T; N]);

impl<T, const N: usize> Shape for W<T, N> {
    const K: u32 = 7;
    #[track_memory]
    async fn required(&self) -> u32 {
        yield_now().await;
        self.0.iter().map(|_| 1).sum::<u32>() + Self::K
    }
}

#[test]
fn shape_30_and_62_traits_and_generic_impls() {
    assert_eq!(block_on(W([0_u8; 3]).provided()), 11);
}

mod with_async_trait {
    use super::{block_on, track_memory, yield_now};

    #[async_trait::async_trait]
    trait Load {
        async fn load(&self, n: u32) -> u32;
        async fn consume(self: Box<Self>) -> u32;
    }

    struct Loader(u32);

    #[async_trait::async_trait]
    impl Load for Loader {
        #[track_memory]
        async fn load(&self, n: u32) -> u32 {
            yield_now().await;
            self.0 + n
        }
        #[track_memory]
        async fn consume(self: Box<Self>) -> u32 {
            self.0
        }
    }

    #[test]
    fn shape_31_inside_async_trait() {
        assert_eq!(block_on(Loader(1).load(2)), 3);
        assert_eq!(block_on(Box::new(Loader(4)).consume()), 4);
    }
}

#[track_memory]
#[tokio::test]
async fn shape_32_above_tokio_test() {
    tokio::task::yield_now().await;
}

#[tokio::test]
#[track_memory]
async fn shape_32_below_tokio_test() {
    tokio::task::yield_now().await;
}

#[test]
fn shape_33_recursion() {
    #[track_memory]
    async fn f(n: u32) -> u32 {
        if n == 0 { 0 } else { Box::pin(f(n - 1)).await + 1 }
    }
    assert_eq!(block_on(f(5)), 5);
}

#[test]
fn shape_34_the_future_stays_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    #[track_memory(phase = "p", fields(n = n, text = %Rc::new(n)))]
    async fn f<T: Send + Copy + std::fmt::Display + Into<u64> + tracing::Value>(n: T, v: Vec<u8>) -> u64 {
        yield_now().await;
        n.into() + v.len() as u64
    }
    #[track_memory]
    async fn not_send(n: Rc<u32>) -> u32 {
        yield_now().await;
        *n
    }
    assert_eq!(block_on(send(f(1_u64, vec![1]))), 2);
    assert_eq!(block_on(not_send(Rc::new(1))), 1);
}

#[test]
fn shape_35_arguments_without_debug() {
    #[track_memory]
    async fn f(n: NotDebug) -> u32 {
        yield_now().await;
        n.0
    }
    assert_eq!(block_on(f(NotDebug(1))), 1);
}

#[test]
fn shape_37_to_41_lints_still_fire() {
    #[track_memory]
    #[expect(unused_variables)]
    async fn unused_parameter(x: u32) {}
    #[track_memory]
    #[expect(unused_mut)]
    async fn unused_mut(mut x: u32) -> u32 {
        x
    }
    #[track_memory]
    #[must_use]
    async fn must(x: u32) -> u32 {
        x
    }
    #[track_memory]
    #[expect(dead_code)]
    async fn dead() {}
    block_on(async {
        unused_parameter(1).await;
        unused_mut(1).await;
        let _ = must(1).await;
    });
}

#[test]
#[rustfmt::skip]
fn shape_42_short_bodies() {
    #[track_memory]
    async fn a() -> u32 { 1 }
    #[track_memory]
    async fn b() {}
    #[track_memory]
    async fn d() -> u32 { a().await }
    #[track_memory]
    async fn e(x: u32) -> u32 { x }
    block_on(async { b().await; assert_eq!(a().await + d().await + e(1).await, 3); });
}

macro_rules! methods {
    ($self:ident, $name:ident, $ty:ty, $body:expr_2021) => {
        impl Receivers {
            #[track_memory]
            async fn $name(&$self, extra: $ty) -> $ty { $body + extra }
        }
    };
}
methods!(self, written_by_a_macro, u32, self.0 + 1);

#[test]
fn shape_44_methods_written_by_a_macro() {
    assert_eq!(block_on(Receivers(1).written_by_a_macro(2)), 4);
}

struct View<'a>(&'a str);

impl Receivers {
    #[track_memory]
    async fn view(&self, text: &str) -> Result<View<'_>, String> {
        if text.is_empty() {
            return Err("empty".to_owned());
        }
        yield_now().await;
        Ok(View("found"))
    }
}

#[test]
fn shape_47_elided_lifetimes() {
    assert_eq!(block_on(Receivers(1).view("x")).map(|view| view.0), Ok("found"));
    assert!(block_on(Receivers(1).view("")).is_err());
}

#[test]
fn shape_48_labels() {
    #[track_memory]
    async fn f() -> u32 {
        let mut n = 0;
        'outer: loop {
            loop {
                n += 1;
                yield_now().await;
                if n > 3 {
                    break 'outer;
                }
            }
        }
        'a: {
            if n > 0 {
                break 'a 5;
            }
            6
        }
    }
    assert_eq!(block_on(f()), 5);
}

#[test]
fn shape_49_early_returns_are_coerced() {
    #[track_memory]
    async fn f(n: u32) -> Box<dyn std::fmt::Debug> {
        if n == 0 {
            return Box::new("zero");
        }
        yield_now().await;
        if n == 1 {
            return Box::new(1);
        }
        Box::new(2.5)
    }
    #[track_memory]
    async fn g(x: &mut u8) -> &u8 {
        yield_now().await;
        x
    }
    assert_eq!(format!("{:?} {:?} {:?}", block_on(f(0)), block_on(f(1)), block_on(f(2))), "\"zero\" 1 2.5");
    assert_eq!(block_on(g(&mut 1)), &1);
}

#[test]
fn shape_55_arguments_moved_out_and_borrowed() {
    #[track_memory]
    async fn moved(v: Vec<u32>) -> Vec<u32> {
        v
    }
    #[track_memory]
    async fn pushed(v: &mut Vec<u32>) -> &mut u32 {
        v.push(1);
        yield_now().await;
        v.last_mut().unwrap()
    }
    block_on(async {
        let mut v = moved(vec![]).await;
        *pushed(&mut v).await += 1;
        assert_eq!(v, [2]);
    });
}

#[test]
fn shape_64_the_attribute_twice() {
    #[track_memory]
    #[track_memory(name = "inner")]
    async fn f(x: Vec<u32>, (a, _): (u32, u32)) -> Vec<u32> {
        yield_now().await;
        let _ = a;
        x
    }
    assert_eq!(block_on(f(vec![1], (2, 3))), [1]);
}

#[test]
fn shape_69_no_borrow_outlives_the_future() {
    #[track_memory]
    async fn f(x: &str) -> usize {
        yield_now().await;
        x.len()
    }
    let text = String::from("x");
    let future = f(&text);
    assert_eq!(block_on(future), 1);
}
