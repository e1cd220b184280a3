//! `#[track_memory]` on `impl` blocks, traits and modules: which functions are measured, under which names and with which
//! options, and that everything else stays as it is.
#![deny(warnings, clippy::all, clippy::pedantic, rust_2024_compatibility)]
#![allow(dead_code, clippy::unused_self, clippy::unused_async, reason = "the shapes are short")]
#![allow(clippy::unnecessary_wraps, clippy::items_after_statements, reason = "the shapes are short")]

use memtrack::track_memory;
use memtrack_tests::bench::Bench;
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::Probe;

mod inherent {
    use super::*;

    struct Layer(Vec<Probe>);

    #[track_memory(phase = "forward")]
    impl Layer {
        const LIMIT: usize = Self::limit();

        const fn limit() -> usize {
            2
        }

        fn new() -> Self {
            Self(Vec::with_capacity(Self::LIMIT))
        }

        /// A method with a document.
        #[inline]
        #[must_use]
        fn pushed(mut self, probe: Probe) -> Self {
            self.0.push(probe);
            self
        }

        fn consume(self) {}

        async fn later(&self) -> usize {
            yield_now().await;
            self.0.len()
        }

        #[track_memory(skip)]
        fn skipped(&self) -> usize {
            self.0.len()
        }
    }

    #[test]
    fn methods_are_measured_under_the_name_of_their_type() {
        let bench = Bench::new();
        let layer = Layer::new().pushed(bench.probe("x"));
        assert_eq!((block_on(layer.later()), layer.skipped()), (1, 1));
        layer.consume();
        bench.assert_spans(&[
            ("Layer::new", "forward"),
            ("Layer::pushed", "forward"),
            ("Layer::later", "forward"),
            ("Layer::consume", "forward"),
        ]);
        assert_eq!(bench.spans.one("Layer::consume").number("mem.delta"), -1024);
    }
}

mod generic {
    use super::*;
    use std::fmt::Debug;
    use std::ops::Index;

    struct Table<'a, T, const N: usize>(&'a [T; N]);
    struct Sized1<const N: usize>;

    #[track_memory]
    impl<'a, T, const N: usize> Table<'a, T, N>
    where
        T: Clone + Debug,
        for<'b> &'b T: PartialEq,
    {
        fn first(&self) -> Option<&'a T> {
            self.0.first()
        }

        fn mapped<U: From<T>, const M: usize>(
            &self,
            extra: [U; M],
        ) -> impl Iterator<Item = U> + use<'_, 'a, T, U, N, M> {
            self.0.iter().cloned().map(U::from).chain(extra)
        }
    }

    #[track_memory]
    impl<T, const N: usize> Index<usize> for Table<'_, T, N> {
        type Output = T;

        fn index(&self, index: usize) -> &T {
            &self.0[index]
        }
    }

    #[track_memory]
    impl From<Sized1<{ 1 + 1 }>> for Sized1<3> {
        fn from(_: Sized1<{ 1 + 1 }>) -> Sized1<{ 2 + 1 }> {
            Self
        }
    }

    /// # Safety
    ///
    /// There is none to keep.
    unsafe trait Raw {
        fn raw(self) -> usize;
    }

    #[track_memory]
    // SAFETY: nothing is promised.
    unsafe impl<T> Raw for &[T] {
        fn raw(self) -> usize {
            self.len()
        }
    }

    #[track_memory]
    // SAFETY: nothing is promised.
    unsafe impl<T> Raw for &'_ Vec<T> {
        fn raw(self) -> usize {
            self.len()
        }
    }

    trait Marker {}

    #[track_memory]
    impl Marker for Sized1<1> {}

    #[test]
    fn impl_blocks_of_every_form() {
        let bench = Bench::new();
        let table = Table(&[1_u8, 2, 3]);
        assert_eq!((table.first(), table[1]), (Some(&1), 2));
        assert_eq!(table.mapped([4_u32]).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let Sized1::<3> = Sized1::<2>.into();
        assert_eq!(((&vec![1, 2]).raw(), [1].as_slice().raw()), (2, 1));
        bench.assert_names(&["Table::first", "Table::index", "Table::mapped", "Sized1::from", "Vec::raw", "raw"]);
    }
}

mod traits {
    use super::*;

    #[track_memory(phase = Self::PHASE)]
    trait Module: Sized {
        const PHASE: &'static str;
        type Output;

        fn forward(&self, input: u32) -> u32;

        fn twice(&self, input: u32) -> u32 {
            self.forward(self.forward(input))
        }

        async fn later(self) -> u32 {
            self.forward(1)
        }
    }

    struct Double;

    impl Module for Double {
        const PHASE: &'static str = "doubling";
        type Output = u32;

        fn forward(&self, input: u32) -> u32 {
            2 * input
        }
    }

    struct Triple;

    #[track_memory(level = "debug")]
    impl Module for Triple {
        const PHASE: &'static str = "tripling";
        type Output = u32;

        fn forward(&self, input: u32) -> u32 {
            3 * input
        }
    }

    #[test]
    fn default_methods_are_measured_under_the_name_of_their_trait() {
        let bench = Bench::new();
        assert_eq!((Double.twice(1), block_on(Double.later())), (4, 2));
        bench.assert_spans(&[("Module::twice", "doubling"), ("Module::later", "doubling")]);
    }

    #[test]
    fn implemented_methods_are_measured_under_the_name_of_their_type() {
        let bench = Bench::new();
        assert_eq!(Triple.twice(1), 9);
        bench.assert_names(&["Module::twice", "Triple::forward", "Triple::forward"]);
        assert_eq!(bench.spans.all()[1].level, tracing::Level::DEBUG);
    }
}

#[track_memory(phase = "train")]
mod modules {
    #![allow(clippy::needless_pass_by_value, clippy::trivially_copy_pass_by_ref)]
    //! Everything that a module can hold.

    pub(super) use self::inner::nested;
    use super::*;
    use std::fmt::{self, Display};

    pub(super) const ONE: u32 = if cfg!(test) { 1 } else { 0 };
    pub(super) static TWO: u32 = if ONE == 1 { 2 } else { 3 };
    pub(super) type Pair = (u32, u32);

    #[derive(Debug, Clone, Copy, Default, PartialEq)]
    pub(super) struct Model {
        pub(super) weights: u32,
    }

    macro_rules! constant {
        ($name:ident, $value:literal) => {
            pub(super) fn $name() -> u32 {
                $value
            }
        };
    }

    constant!(written_by_a_macro, 7);

    pub(super) fn step(model: Model, pair: Pair) -> u32 {
        fn inside() -> u32 {
            constant!(deeper, 1);
            deeper()
        }
        let closure = |extra: u32| model.weights + pair.0 + extra;
        closure(inside())
    }

    impl Model {
        pub(super) fn forward(&self) -> u32 {
            self.weights
        }

        #[track_memory(phase = "backward")]
        pub(super) fn backward(&self) -> u32 {
            self.weights
        }
    }

    impl Display for Model {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.weights)
        }
    }

    pub(super) trait Loss {
        fn loss(&self) -> u32 {
            TWO
        }
    }

    #[track_memory(skip)]
    impl Loss for Model {
        fn loss(&self) -> u32 {
            ONE
        }
    }

    impl Loss for u8 {}

    pub(super) mod inner {
        pub(in super::super) struct Unit;

        #[inline]
        pub(in super::super) fn nested() -> Option<Unit> {
            deeper::nested_twice()
        }

        #[track_memory(level = "debug")]
        mod deeper {
            use super::Unit;

            pub(super) fn nested_twice() -> Option<Unit> {
                Some(Unit)
            }
        }

        use super::track_memory;
    }

    #[track_memory(skip)]
    pub(super) mod left_out {
        pub(in super::super) fn unmeasured() -> u32 {
            3
        }

        #[super::track_memory]
        pub(in super::super) fn measured_by_itself() -> u32 {
            3
        }
    }

    // Run by hand, since a test of its own thread would have no recorder.
    #[test]
    #[ignore = "another test runs it"]
    pub(super) fn a_test() {
        assert_eq!(step(Model::default(), (1, 2)), 2);
    }

    #[tokio::test]
    #[ignore = "another test runs it"]
    pub(super) async fn a_test_of_tokio() {
        tokio::task::yield_now().await;
        step(Model::default(), (1, 2));
    }

    #[tokio::main(flavor = "current_thread")]
    pub(super) async fn main() -> u32 {
        tokio::task::yield_now().await;
        4
    }

    #[cfg(not(test))]
    compile_error!("the tests are tests");

    #[cfg(not(test))]
    fn of_another_configuration(_: NoSuchType) {}

    pub(super) extern "C" fn callback() -> u32 {
        5
    }

    unsafe extern "C" {
        pub(super) safe fn abs(value: i32) -> i32;
    }
}

mod of_modules {
    use super::modules::{self, Loss as _, Model};
    use super::*;

    #[test]
    fn functions_and_methods_are_measured_and_the_rest_stays() {
        let bench = Bench::new();
        let model = Model { weights: 1 };
        assert_eq!((modules::step(model, (1, 2)), modules::written_by_a_macro(), modules::callback()), (3, 7, 5));
        assert_eq!((model.forward(), model.backward(), model.loss(), 0_u8.loss()), (1, 1, 1, 2));
        assert_eq!((modules::left_out::unmeasured(), modules::left_out::measured_by_itself()), (3, 3));
        assert_eq!((model.to_string(), modules::abs(-3)), ("1".to_owned(), 3));
        assert!(modules::nested().is_some());
        bench.assert_spans(&[
            ("step", "train"),
            ("callback", "train"),
            ("Model::forward", "train"),
            ("Model::backward", "backward"),
            ("Loss::loss", "train"),
            ("measured_by_itself", ""),
            ("Model::fmt", "train"),
            ("nested", "train"),
            ("nested_twice", "train"),
        ]);
        let spans = bench.spans.all();
        assert!(spans[0].target.ends_with("::modules"), "{}", spans[0].target);
        assert!(spans[8].target.ends_with("::modules::inner::deeper"), "{}", spans[8].target);
        assert_eq!(bench.spans.one("nested_twice").level, tracing::Level::DEBUG);
    }

    #[test]
    fn tests_and_main_are_measured() {
        let bench = Bench::new();
        modules::a_test();
        modules::a_test_of_tokio();
        assert_eq!(modules::main(), 4);
        bench.assert_names(&["a_test", "step", "a_test_of_tokio", "step", "main"]);
    }
}

mod written_by_macros {
    use super::*;

    macro_rules! layer {
        ($(#[$meta:meta])* $visibility:vis $type:ident: $trait:path, $self:ident $body:block; $($item:item)*) => {
            $(#[$meta])*
            $visibility mod m {
                use super::*;

                $visibility struct $type(pub(super) u32);

                impl $trait for $type {
                    fn get(&$self) -> u32 $body
                }

                $($item)*
            }
        };
    }

    trait Get {
        fn get(&self) -> u32;
    }

    layer! {
        #[track_memory(phase = "p")]
        pub(super) Layer: Get, self { self.0 };

        pub(super) fn free() -> u32 {
            2
        }

        #[track_memory(skip)]
        pub(super) fn skipped() -> u32 {
            3
        }

        pub(super) mod inner {
            pub(in super::super) fn nested() -> u32 {
                4
            }
        }
    }

    #[test]
    fn fragments_are_found() {
        let bench = Bench::new();
        assert_eq!((m::Layer(1).get(), m::free(), m::skipped(), m::inner::nested()), (1, 2, 3, 4));
        bench.assert_spans(&[("Layer::get", "p"), ("free", "p"), ("nested", "p")]);
    }
}

mod lints {
    use super::*;

    #[track_memory]
    #[expect(dead_code)]
    mod reported_as_without {
        fn unused_function() {}

        #[expect(unused_variables)]
        pub(super) fn unused_argument(x: u32) {}

        #[expect(unused_must_use)]
        pub(super) fn unused_result() {
            "1".parse::<u8>();
        }

        #[expect(clippy::print_stdout)]
        pub(super) fn prints() {
            println!();
        }

        #[expect(unused_imports)]
        use std::fmt as reported_as_without_fmt;
    }

    #[deny(missing_docs, unsafe_code, single_use_lifetimes, elided_lifetimes_in_paths, unused_qualifications)]
    #[deny(let_underscore_drop, unused_lifetimes, unreachable_pub, rust_2018_idioms)]
    #[deny(unused_results, trivial_casts, variant_size_differences, clippy::nursery)]
    mod strict {
        use memtrack::track_memory;

        pub(super) struct Unit;

        #[track_memory(phase = "p", err, level = "debug", fields(n = 1))]
        impl Unit {
            #[track_memory(skip)]
            pub(super) const fn new() -> Self {
                Self
            }

            pub(super) fn own(self) -> Result<Self, Self> {
                Ok(self)
            }
        }
    }

    struct Layer;

    #[track_memory]
    #[expect(dead_code, clippy::wrong_self_convention)]
    impl Layer {
        fn unused_method() {}

        pub(super) fn to_layer(self) {}
    }

    #[test]
    fn lints_fire_at_the_users_own_code() {
        reported_as_without::unused_argument(1);
        reported_as_without::unused_result();
        reported_as_without::prints();
        Layer.to_layer();
        assert!(strict::Unit::new().own().is_ok());
    }
}

mod inside_functions {
    use super::*;

    #[test]
    fn blocks_are_items_of_a_body_too() {
        struct Local;
        #[track_memory]
        impl Local {
            fn method(&self) {}
        }
        #[track_memory]
        mod m {
            pub(super) fn function() {}
        }
        let bench = Bench::new();
        Local.method();
        m::function();
        bench.assert_names(&["Local::method", "function"]);
    }
}

mod hygiene {
    use super::*;

    #[track_memory(phase = "p", fields(n = 1_u8))]
    mod hidden {
        mod memtrack {}
        mod core {}
        struct Option;
        #[allow(non_camel_case_types)]
        pub(super) struct r#type;

        impl r#type {
            pub(super) fn r#match(&self, name: u32, value: u32) -> u32 {
                name + value
            }
        }
    }

    #[test]
    fn names_of_the_user_hide_nothing() {
        let bench = Bench::new();
        assert_eq!(hidden::r#type.r#match(1, 2), 3);
        bench.assert_spans(&[("type::match", "p")]);
    }
}
