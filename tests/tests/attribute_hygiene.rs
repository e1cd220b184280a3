//! Names of the user that hide those which generated code might rely on.
#![deny(warnings)]
#![allow(dead_code, reason = "the types are there to be in the way")]

use memtrack::track_memory;
use memtrack_tests::futures::block_on;

mod modules_named_as_crates {
    use super::block_on;
    use super::track_memory;

    mod tracing {}
    mod std {}
    mod core {}
    mod alloc {}
    mod memtrack {}
    mod __private {}

    #[track_memory(phase = "p", fields(n = n), level = "debug")]
    fn f(n: u32) -> u32 {
        n
    }

    #[track_memory(phase = "p", fields(n = n), err)]
    async fn g((n, _): (u32, u8)) -> Result<u32, u32> {
        Err(n)
    }

    #[test]
    fn shape_14() {
        assert_eq!(f(1), 1);
        assert_eq!(block_on(g((2, 0))), Err(2));
    }
}

mod types_named_as_the_prelude {
    use super::block_on;
    use super::track_memory;

    struct Option;
    struct Some;
    struct None;
    struct Box;
    struct String;
    struct Vec;
    trait Send {}
    trait Drop {}
    trait Fn {}
    trait FnOnce {}
    trait Future {}
    trait Into {}
    #[allow(non_camel_case_types)]
    struct str;
    #[allow(non_camel_case_types)]
    struct bool;
    #[allow(non_camel_case_types)]
    struct i64;

    #[allow(unused_macros)]
    macro_rules! module_path {
        () => {
            compile_error!("the user's own")
        };
    }

    #[track_memory(phase = "p", fields(n = 1_u8))]
    fn f(_n: Option) -> Some {
        Some
    }

    #[track_memory(phase = "p", fields(n = 1_u8))]
    async fn g((_n, _): (Option, Box)) -> Some {
        Some
    }

    struct Owner(Vec);

    impl Owner {
        #[track_memory]
        fn by_value(self) -> Vec {
            self.0
        }
    }

    #[test]
    fn shape_15() {
        let _: Some = f(Option);
        let _: Some = block_on(g((Option, Box)));
        let _: Vec = Owner(Vec).by_value();
    }
}

mod names_of_results {
    use super::block_on;
    use super::track_memory;

    mod inner {
        pub(super) struct Ok;
        pub(super) struct Err;
    }

    #[track_memory(err)]
    fn f(fails: bool) -> Result<u8, u8> {
        #[allow(unused_imports)]
        use inner::{Err, Ok};
        if fails { Result::Err(1) } else { Result::Ok(2) }
    }

    #[track_memory(err)]
    async fn g(fails: bool) -> Result<u8, u8> {
        #[allow(unused_imports)]
        use inner::{Err, Ok};
        if fails { Result::Err(1) } else { Result::Ok(2) }
    }

    #[test]
    fn shape_16() {
        assert_eq!((f(true), f(false)), (Err(1), Ok(2)));
        assert_eq!((block_on(g(true)), block_on(g(false))), (Err(1), Ok(2)));
    }
}
