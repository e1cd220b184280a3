//! Shapes of synchronous functions that broke other attributes: each must compile as without the attribute, raise no
//! lint of its own, and compute the same.
#![deny(warnings, clippy::all, clippy::pedantic, unreachable_code, unsafe_op_in_unsafe_fn)]
#![deny(
    unsafe_code,
    single_use_lifetimes,
    elided_lifetimes_in_paths,
    unused_qualifications,
    let_underscore_drop,
    rust_2018_idioms,
    rust_2024_compatibility,
    clippy::print_stdout
)]
#![allow(clippy::many_single_char_names, clippy::trivially_copy_pass_by_ref, reason = "the shapes are short")]
#![allow(clippy::never_loop, clippy::needless_continue, clippy::needless_return, reason = "the shapes are odd")]
// Of a bare `panic!()` at the end, in edition 2018, with the attribute or without.
#![allow(clippy::semicolon_if_nothing_returned)]
#![allow(clippy::manual_async_fn, clippy::needless_pass_by_value, clippy::boxed_local, clippy::unwrap_used)]
#![allow(clippy::elidable_lifetime_names, clippy::empty_loop, clippy::redundant_closure)]

use memtrack::track_memory;
use memtrack_tests::futures::block_on;
// In the prelude since edition 2021.
use std::convert::TryFrom;
use std::fmt::Debug;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

struct NotDebug(u32);

#[test]
fn shape_02_returned_iterator_with_a_lifetime() {
    #[track_memory]
    fn f<'a>(v: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        v.iter().map(|x| x + 1)
    }
    assert_eq!(f(&[1, 2]).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn shape_05_boxed_future_after_statements() {
    #[track_memory]
    fn f(n: u32) -> Pin<Box<dyn Future<Output = u32>>> {
        let k = n * 2;
        Box::pin(async move { k })
    }
    assert_eq!(block_on(f(4)), 8);
}

#[test]
fn shape_06_returned_future() {
    #[track_memory]
    fn f(n: u32) -> impl Future<Output = u32> {
        async move { n }
    }
    assert_eq!(block_on(f(4)), 4);
}

#[test]
fn shape_12_parameters_named_as_tracing_words() {
    #[track_memory]
    fn f(display: u32, debug: &NotDebug) -> u32 {
        display + debug.0
    }
    assert_eq!(f(1, &NotDebug(2)), 3);
}

#[test]
fn shape_13_parameters_named_as_a_macro_might() {
    #[track_memory(phase = "p")]
    #[allow(clippy::used_underscore_binding, clippy::too_many_arguments, reason = "the shape")]
    fn f(caller: u32, result: u32, _guard: u32, __guard: u32, __span: u32, __value: u32, ret: u32, __arg0: u32) -> u32 {
        caller + result + _guard + __guard + __span + __value + ret + __arg0
    }
    assert_eq!(f(1, 2, 3, 4, 5, 6, 7, 8), 36);
}

#[test]
fn shape_17_never_returns() {
    #[track_memory]
    fn f() -> ! {
        panic!("as it should")
    }
    #[track_memory]
    fn g() -> ! {
        if true {
            f();
        }
        loop {}
    }
    assert!(catch_unwind(|| f()).is_err());
    assert!(catch_unwind(|| g()).is_err());
}

#[test]
fn shape_19_bodies_that_diverge() {
    #[track_memory]
    fn f() -> u32 {
        unimplemented!()
    }
    #[track_memory]
    fn g() -> u32 {
        loop {
            return 3;
        }
    }
    #[track_memory]
    fn h() -> u32 {
        return 3;
    }
    #[track_memory]
    fn i() {
        panic!()
    }
    assert!(catch_unwind(|| f()).is_err());
    assert!(catch_unwind(|| i()).is_err());
    assert_eq!(g() + h(), 6);
}

#[test]
fn shape_20_generics_constants_and_bounds() {
    #[track_memory]
    fn f<'a, T, const N: usize>(x: &'a [T; N], k: impl Into<u64>) -> &'a T
    where
        T: Clone,
        for<'b> &'b T: PartialEq,
    {
        let index = usize::try_from(k.into()).unwrap();
        &x[index]
    }
    assert_eq!(f(&[1, 2, 3], 2_u32), &3);
}

#[test]
fn shape_21_precise_capturing() {
    #[track_memory]
    fn f<'a>(x: &'a u32, _y: &u32) -> impl Fn() -> u32 + use<'a> {
        move || *x
    }
    assert_eq!(f(&1, &2)(), 1);
}

#[test]
fn shape_22_parameters_behind_cfg() {
    #[track_memory]
    fn f(
        #[cfg(not(unix))] a: u64,
        #[cfg(unix)] b: u64,
        #[cfg(not(unix))] (c, d): (u8, u8),
        #[cfg(unix)] (e, _): (u64, u8),
    ) -> u64 {
        #[cfg(not(unix))]
        return a + u64::from(c) + u64::from(d);
        #[cfg(unix)]
        return b + e;
    }
    #[cfg(unix)]
    assert_eq!(f(2, (3, 4)), 5);
}

#[test]
fn lint_levels_of_a_parameter_follow_it() {
    #[track_memory]
    fn f(
        #[allow(unused_variables)] a: u64,
        #[expect(unused_variables)] b: u64,
        #[expect(unused_mut)] mut c: u64,
    ) -> u64 {
        c
    }
    assert_eq!(f(1, 2, 3), 3);
}

struct P {
    a: u8,
    b: (u8, u8),
}

#[test]
fn shape_24_patterns() {
    #[track_memory]
    fn f((a, mut b): (u8, u8), P { a: c, b: (d, _) }: P, &e: &u8, [g, ..]: [u8; 3], _: u8, h @ (_, _): (u8, u8)) -> u8 {
        b += 1;
        a + b + c + d + e + g + h.0
    }
    assert_eq!(f((1, 2), P { a: 3, b: (4, 5) }, &6, [7, 8, 9], 10, (11, 12)), 35);
}

struct Receivers(u32);

impl Receivers {
    #[track_memory]
    fn shared(&self) -> u32 {
        self.0
    }
    #[track_memory]
    fn exclusive(&mut self) -> &mut u32 {
        &mut self.0
    }
    #[track_memory]
    fn value(mut self) -> Self {
        self.0 += 1;
        self
    }
    #[track_memory]
    fn pinned(self: Pin<&mut Self>) -> u32 {
        self.0
    }
    #[track_memory]
    fn boxed(self: Box<Self>) -> u32 {
        self.0
    }
    #[track_memory]
    fn counted(self: Rc<Self>) -> u32 {
        self.0
    }
    #[track_memory]
    fn behind_arc(self: &Arc<Self>) -> u32 {
        self.0
    }
    #[track_memory]
    fn parts(self, other: &u32) -> (u32, &u32) {
        let Self(inner) = self;
        (inner, other)
    }
}

#[test]
fn shape_25_receivers() {
    let mut receiver = Receivers(1).value();
    *receiver.exclusive() += 1;
    assert_eq!(receiver.shared(), 3);
    assert_eq!(Pin::new(&mut receiver).pinned(), 3);
    assert_eq!(Box::new(Receivers(4)).boxed(), 4);
    assert_eq!(Rc::new(Receivers(5)).counted(), 5);
    assert_eq!(Arc::new(Receivers(6)).behind_arc(), 6);
    assert_eq!(receiver.parts(&7), (3, &7));
}

mod unsafe_shapes {
    #![allow(unsafe_code)]
    use super::track_memory;

    /// # Safety
    /// `x` is valid.
    #[track_memory]
    pub(super) unsafe fn read(x: *const u8) -> u8 {
        // SAFETY: as the function's own condition.
        unsafe { *x }
    }

    /// # Safety
    /// None.
    #[track_memory]
    pub(super) unsafe extern "C" fn foreign(n: u8) -> u8 {
        n
    }

    #[track_memory]
    #[unsafe(no_mangle)]
    pub(super) extern "C" fn memtrack_shape_27(n: u8) -> u8 {
        n
    }
}

#[test]
#[allow(unsafe_code)]
fn shape_26_and_27_unsafe_and_foreign_functions() {
    // SAFETY: a reference is valid.
    assert_eq!(unsafe { unsafe_shapes::read(&3) }, 3);
    let pointer: unsafe extern "C" fn(u8) -> u8 = unsafe_shapes::foreign;
    // SAFETY: no condition.
    assert_eq!(unsafe { pointer(4) }, 4);
    let pointer: extern "C" fn(u8) -> u8 = unsafe_shapes::memtrack_shape_27;
    assert_eq!(pointer(5), 5);
}

trait Shape {
    const K: u32;
    #[track_memory]
    fn default_method(&self) -> u32 {
        Self::K
    }
    fn required(&self) -> u32;
}

struct W<T, const N: usize>([T; N]);

impl<T, const N: usize> Shape for W<T, N> {
    const K: u32 = 7;
    #[track_memory]
    fn required(&self) -> u32 {
        u32::try_from(N).unwrap() + u32::try_from(self.0.len()).unwrap() + Self::K
    }
}

#[test]
fn shape_30_and_62_traits_and_generic_impls() {
    assert_eq!(W([0_u8; 3]).default_method(), 7);
    assert_eq!(W([0_u8; 3]).required(), 13);
}

#[track_memory]
#[test]
fn shape_32_above_test() {
    assert_eq!(1, 1);
}

#[test]
#[track_memory]
fn shape_32_below_test() {
    assert_eq!(1, 1);
}

#[test]
fn shape_33_recursion() {
    #[track_memory]
    fn f(n: u32) -> u32 {
        if n == 0 { 0 } else { f(n - 1) + 1 }
    }
    assert_eq!(f(5), 5);
}

#[test]
fn shape_35_arguments_without_debug() {
    #[track_memory]
    fn f(n: NotDebug) -> u32 {
        n.0
    }
    assert_eq!(f(NotDebug(1)), 1);
}

#[test]
fn shape_37_to_41_lints_still_fire() {
    #[track_memory]
    #[expect(unused_variables)]
    fn unused_parameter(x: u32) {}
    #[track_memory]
    fn unused_local() {
        #[expect(unused_variables)]
        let x = 1;
    }
    #[track_memory]
    #[expect(unused_mut)]
    fn unused_mut(mut x: u32) -> u32 {
        x
    }
    #[track_memory]
    #[must_use]
    fn must(x: u32) -> u32 {
        x
    }
    #[track_memory]
    #[expect(unused_must_use)]
    fn unused_must_use() {
        must(1);
    }
    #[track_memory]
    #[expect(dead_code)]
    fn dead() {}
    #[track_memory]
    #[expect(clippy::print_stdout)]
    fn prints() {
        println!("x");
    }
    #[track_memory]
    #[expect(unused_assignments)]
    fn assigned(mut x: u32) -> u32 {
        x = 4;
        x
    }
    unused_parameter(1);
    unused_local();
    unused_mut(1);
    unused_must_use();
    prints();
    assigned(1);
}

#[test]
#[rustfmt::skip]
fn shape_42_short_bodies() {
    #[track_memory]
    fn a() -> u32 { 1 }
    #[track_memory]
    fn b() {}
    #[track_memory]
    fn c() -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(async move {}) }
    #[track_memory]
    fn d() -> u32 { a() }
    #[track_memory]
    fn e(x: u32) -> u32 { x }
    assert_eq!(a() + d() + e(3), 5);
    b();
    block_on(c());
}

macro_rules! methods {
    ($self:ident, $name:ident, $ty:ty, $body:expr_2021) => {
        impl Receivers {
            #[track_memory]
            fn $name(&$self) -> $ty { $body }
        }
    };
    (owned $self:ident, $name:ident, $ty:ty, $body:expr_2021) => {
        impl Receivers {
            #[track_memory]
            fn $name($self, extra: $ty) -> $ty { $body + extra }
        }
    };
}
methods!(self, written_by_a_macro, u32, self.0 + 1);
methods!(owned self, written_by_a_macro_owned, u32, self.0 + 1);

#[test]
fn shape_44_methods_written_by_a_macro() {
    assert_eq!(Receivers(1).written_by_a_macro(), 2);
    assert_eq!(Receivers(1).written_by_a_macro_owned(2), 4);
}

#[test]
fn shape_45_raw_identifiers() {
    #[track_memory]
    fn r#match(r#type: u8) -> u8 {
        r#type
    }
    assert_eq!(r#match(1), 1);
}

#[test]
fn shape_48_labels() {
    #[track_memory]
    fn f() -> u32 {
        let mut n = 0;
        'outer: loop {
            'a: loop {
                n += 1;
                if n > 3 {
                    break 'outer;
                }
                if n > 1 {
                    continue 'a;
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
    assert_eq!(f(), 5);
}

#[test]
fn shape_52_track_caller() {
    #[track_memory]
    #[track_caller]
    fn f() -> u32 {
        std::panic::Location::caller().line()
    }
    #[track_caller]
    #[track_memory]
    fn g(_: &str) -> u32 {
        std::panic::Location::caller().line()
    }
    assert_eq!((f(), g("")), (line!(), line!()));
}

#[test]
fn shape_53_globs_inside_the_body() {
    type Foo = ();
    enum Bar {
        Foo,
    }
    #[track_memory]
    #[expect(clippy::items_after_statements, reason = "the shape")]
    fn f() -> Foo {
        let _ = 1;
        use Bar::*;
        let _ = Foo;
    }
    f();
}

#[test]
fn shape_55_arguments_moved_out_and_borrowed() {
    #[track_memory]
    fn moved(v: Vec<u32>) -> Vec<u32> {
        v
    }
    #[track_memory]
    fn pushed(v: &mut Vec<u32>) -> &mut u32 {
        v.push(1);
        v.last_mut().unwrap()
    }
    let mut v = moved(vec![]);
    *pushed(&mut v) += 1;
    assert_eq!(v, [2]);
}

#[test]
fn shape_63_function_inside_a_function() {
    #[track_memory]
    fn f() -> u32 {
        #[track_memory]
        fn g() -> u32 {
            2
        }
        g()
    }
    assert_eq!(f(), 2);
}

#[test]
fn shape_64_the_attribute_twice() {
    #[track_memory]
    #[track_memory(name = "inner")]
    fn f(x: Vec<u32>, (a, _): (u32, u32)) -> Vec<u32> {
        let _ = a;
        x
    }
    assert_eq!(f(vec![1], (2, 3)), [1]);
}

#[test]
fn shape_70_generic_instances() {
    #[track_memory]
    fn f<T: Debug>(x: T) -> String {
        format!("{x:?}")
    }
    assert_eq!(f(1) + &f("a"), "1\"a\"");
}

#[test]
fn coercions_of_the_returned_value() {
    #[track_memory]
    fn boxed(x: u32) -> Box<dyn Debug> {
        if x == 0 {
            return Box::new("zero");
        }
        Box::new(x)
    }
    #[track_memory]
    fn slice(x: &[u8; 3]) -> &[u8] {
        x
    }
    #[track_memory]
    fn pointer() -> fn(u32) -> u32 {
        |x| x + 1
    }
    assert_eq!(format!("{:?}{:?}", boxed(0), boxed(1)), "\"zero\"1");
    assert_eq!(slice(&[1, 2, 3]).len(), 3);
    assert_eq!(pointer()(1), 2);
}

#[test]
fn a_panic_passes_through() {
    #[track_memory]
    fn f(x: &mut u32) {
        *x = 1;
        panic!("told");
    }
    let mut x = 0;
    let payload = catch_unwind(AssertUnwindSafe(|| f(&mut x))).unwrap_err();
    assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "told");
    assert_eq!(x, 1);
}
