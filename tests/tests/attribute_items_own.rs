//! Members of annotated blocks that carry attributes themselves: own options and those of the block, other macros, and
//! attributes that depend on the configuration.
#![deny(warnings, clippy::all, clippy::pedantic, rust_2024_compatibility)]
#![allow(clippy::unused_self, clippy::unused_async, reason = "the shapes are short")]
#![allow(clippy::unnecessary_wraps, clippy::items_after_statements, reason = "the shapes are short")]

use memtrack::{CachingAllocator, track_memory};
use memtrack_tests::bench::Bench;
use memtrack_tests::futures::{block_on, yield_now};
use memtrack_tests::memory::{Probe, host_allocator};
use memtrack_tests::spans::Spans;

mod own_options {
    use super::*;
    use memtrack as memory;

    struct Layer {
        allocator: CachingAllocator,
    }

    #[track_memory(phase = "forward", device = &self.allocator, err, fields(outer = 1), target = "layers")]
    impl Layer {
        fn inherits(&self) -> Result<u32, u32> {
            Err(1)
        }

        #[track_memory(skip)]
        fn new(allocator: &CachingAllocator) -> Self {
            Self { allocator: allocator.clone() }
        }

        #[track_memory(name = "renamed", phase = "backward", fields(own = 2))]
        fn gives_its_own(&self) -> Result<u32, u32> {
            Err(1)
        }

        #[memory::track_memory("short", device = allocator)]
        fn other_device(allocator: &CachingAllocator) -> Result<(), u32> {
            Probe::new("x", &Spans::default(), allocator, 512);
            Err(1)
        }

        /// Documented.
        #[::memtrack::track_memory]
        #[allow(clippy::let_and_return)]
        fn empty_list(&self) -> Result<u32, u32> {
            let value = Err(1);
            value
        }

        fn returns_no_result(&self) -> Option<u32> {
            None
        }

        fn returns_nothing(&self) {}

        fn never(&self) -> ! {
            panic!("as it should")
        }
    }

    #[test]
    fn the_block_gives_what_a_method_does_not() {
        let bench = Bench::new();
        let layer = Layer::new(&host_allocator());
        let _ = (layer.inherits(), layer.gives_its_own(), layer.empty_list());
        let _ = Layer::other_device(&bench.allocator);
        bench.assert_spans(&[
            ("Layer::inherits", "forward"),
            ("renamed", "backward"),
            ("Layer::empty_list", "forward"),
            ("short", "forward"),
        ]);
        let spans = bench.spans.all();
        for span in &spans {
            assert_eq!((span.text("mem.outcome").as_str(), span.target), ("err", "layers"), "{}", span.name);
            assert_eq!(span.declared.contains(&"outer"), span.name != "renamed", "{}", span.name);
        }
        assert_eq!(spans[3].number("mem.allocs"), 1);
    }

    #[test]
    fn err_is_for_the_methods_that_return_a_result() {
        let bench = Bench::new();
        let layer = Layer::new(&bench.allocator);
        layer.returns_no_result();
        layer.returns_nothing();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| layer.never())).unwrap_err();
        let outcomes: Vec<String> = bench.spans.all().iter().map(|span| span.text("mem.outcome")).collect();
        assert_eq!(outcomes, ["ok", "ok", "panic"]);
    }
}

mod order_of_attributes {
    use super::*;

    #[track_memory(phase = "p")]
    mod m {
        use super::*;
        use tracing::instrument;

        // What `instrument` expands to is measured: it stands above.
        #[instrument(name = "instrumented")]
        #[track_memory(name = "f")]
        pub(super) fn above() {}

        #[track_memory(name = "f")]
        #[instrument(name = "instrumented")]
        pub(super) fn below() {}

        #[instrument(name = "instrumented")]
        pub(super) fn without_own() {}

        #[track_memory(name = "f")]
        #[track_memory(name = "g")]
        pub(super) fn twice() {}
    }

    /// The names of the spans, outermost first.
    fn nested(call: fn()) -> Vec<(&'static str, String)> {
        let bench = Bench::new();
        call();
        let spans = bench.spans.all();
        spans.iter().map(|span| (span.name, span.text("mem.phase"))).collect()
    }

    #[test]
    fn an_own_attribute_is_expanded_in_its_place() {
        let (f, instrumented) = (("f", "p".to_owned()), ("instrumented", String::new()));
        assert_eq!(nested(m::above), nested_without_a_block(above_alone));
        assert_eq!(nested(m::above), [f.clone(), instrumented.clone()]);
        assert_eq!(nested(m::below), nested_without_a_block(below_alone));
        assert_eq!(nested(m::below), [instrumented.clone(), f.clone()]);
        assert_eq!(nested(m::without_own), [instrumented, ("without_own", "p".to_owned())]);
        assert_eq!(nested(m::twice), [("g", "p".to_owned()), f]);
    }

    #[tracing::instrument(name = "instrumented")]
    #[track_memory(name = "f", phase = "p")]
    fn above_alone() {}

    #[track_memory(name = "f", phase = "p")]
    #[tracing::instrument(name = "instrumented")]
    fn below_alone() {}

    use nested as nested_without_a_block;
}

mod configured {
    use super::*;

    #[cfg_attr(test, track_memory(phase = "outer"))]
    mod m {
        use super::*;

        #[cfg_attr(test, track_memory(skip))]
        pub(super) fn skipped() {}

        #[cfg_attr(not(test), track_memory(skip))]
        pub(super) fn not_skipped() {}

        #[cfg_attr(test, inline, track_memory(level = "debug"), must_use)]
        pub(super) fn own() -> u8 {
            1
        }

        #[cfg_attr(not(test), track_memory(level = "debug"), no_such_attribute)]
        pub(super) fn own_elsewhere() {}

        #[cfg(test)]
        pub(super) fn kept() {}

        #[cfg(not(test))]
        pub(super) fn kept() -> NoSuchType {}

        pub(super) struct Layer;

        #[cfg_attr(test, track_memory(phase = "inner"))]
        impl Layer {
            #[cfg_attr(not(test), track_memory(phase = "elsewhere"))]
            pub(super) fn method(&self) {}
        }
    }

    #[test]
    fn conditional_attributes_count_where_their_condition_holds() {
        let bench = Bench::new();
        m::skipped();
        m::not_skipped();
        let _ = m::own();
        m::own_elsewhere();
        m::kept();
        m::Layer.method();
        bench.assert_spans(&[
            ("not_skipped", "outer"),
            ("own", "outer"),
            ("own_elsewhere", "outer"),
            ("kept", "outer"),
            ("Layer::method", "inner"),
        ]);
        let levels: Vec<bool> = bench.spans.all().iter().map(|span| span.level == tracing::Level::DEBUG).collect();
        assert_eq!(levels, [false, true, false, false, false]);
    }
}

mod with_async_trait {
    use super::*;
    use async_trait::async_trait;

    #[async_trait]
    trait Model {
        async fn forward(&self, probe: Probe) -> Result<usize, usize>;

        async fn own(&self) -> usize;
    }

    struct Above;
    struct Below;

    // Expanded first, it sees the `async fn`s.
    #[track_memory(phase = "p", err)]
    #[async_trait]
    impl Model for Above {
        async fn forward(&self, probe: Probe) -> Result<usize, usize> {
            yield_now().await;
            Err(probe.len())
        }

        #[track_memory(name = "own")]
        async fn own(&self) -> usize {
            yield_now().await;
            1
        }
    }

    #[async_trait]
    #[track_memory(phase = "p", err)]
    impl Model for Below {
        async fn forward(&self, probe: Probe) -> Result<usize, usize> {
            yield_now().await;
            Err(probe.len())
        }

        #[track_memory(name = "own")]
        async fn own(&self) -> usize {
            1
        }
    }

    #[test]
    fn above_async_trait_the_whole_future_is_measured() {
        let bench = Bench::new();
        assert_eq!(block_on(Above.forward(bench.probe("x"))), Err(1024));
        assert_eq!(block_on(Above.own()), 1);
        bench.assert_spans(&[("Above::forward", "p"), ("own", "p")]);
        let span = bench.spans.one("Above::forward");
        assert_eq!((span.number("mem.delta"), span.text("mem.outcome").as_str()), (-1024, "err"));
        let entered = bench.spans.journal().iter().filter(|line| *line == "enter own").count();
        assert_eq!(entered, 2, "once for each poll");
    }

    #[test]
    fn below_async_trait_each_method_is_measured_once() {
        let bench = Bench::new();
        assert_eq!(block_on(Below.forward(bench.probe("x"))), Err(1024));
        assert_eq!(block_on(Below.own()), 1);
        bench.assert_spans(&[("Below::forward", "p"), ("own", "p")]);
        let span = bench.spans.one("Below::forward");
        assert_eq!((span.number("mem.delta"), span.text("mem.outcome").as_str()), (-1024, "err"));
    }
}
