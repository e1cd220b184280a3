//! What the attribute adds to the size of a future: nested futures add up, so that a chain of small additions becomes a
//! large one. And nesting alone must not take rustc to its recursion limit.

use memtrack::track_memory;
use memtrack_tests::futures::{block_on, yield_now};

/// How many functions await one another.
const LEVELS: usize = 8;

/// What a level may add beside another copy of its arguments.
const ALLOWANCE_BYTES: usize = 200;

/// A chain of eight functions, each with an argument and a result of a type.
macro_rules! chain {
    ($module:ident, $argument:ty, $($attribute:tt)*) => {
        mod $module {
            #[allow(unused_imports, reason = "the plain chain has no attribute")]
            use super::{track_memory, yield_now};

            chain!(@level [$($attribute)*] $argument; eight seven six five four three two one);
        }
    };
    (@level [$($attribute:tt)*] $argument:ty; $name:ident $next:ident $($rest:ident)*) => {
        $($attribute)*
        pub(super) async fn $name(argument: $argument) -> Result<usize, String> {
            let length = argument.len();
            Ok($next(argument).await? + length)
        }
        chain!(@level [$($attribute)*] $argument; $next $($rest)*);
    };
    (@level [$($attribute:tt)*] $argument:ty; $name:ident) => {
        $($attribute)*
        pub(super) async fn $name(argument: $argument) -> Result<usize, String> {
            yield_now().await;
            Ok(argument.len())
        }
    };
}

chain!(plain_small, Vec<u8>,);
chain!(tracked_small, Vec<u8>, #[track_memory]);
chain!(tracked_small_with_options, Vec<u8>, #[track_memory(phase = "forward", err, fields(levels = 8))]);
chain!(plain_large, [u8; 1024],);
chain!(tracked_large, [u8; 1024], #[track_memory]);
chain!(tracked_large_with_options, [u8; 1024], #[track_memory(phase = "forward", err, max_peak = "1GiB")]);

/// Compares the two outermost futures, and runs them.
fn compare<P, T>(argument_bytes: usize, plain: P, tracked: T)
where
    P: Future<Output = Result<usize, String>>,
    T: Future<Output = Result<usize, String>>,
{
    let (plain_bytes, tracked_bytes) = (size_of_val(&plain), size_of_val(&tracked));
    let most_bytes = plain_bytes + LEVELS * (argument_bytes + ALLOWANCE_BYTES);
    assert!(
        tracked_bytes <= most_bytes,
        "{tracked_bytes} bytes, where {plain_bytes} without the attribute and {most_bytes} at most were expected"
    );
    assert_eq!(block_on(plain), block_on(tracked));
}

#[test]
fn a_chain_of_small_arguments_grows_by_little() {
    let argument = || vec![0_u8; 3];
    let argument_bytes = size_of::<Vec<u8>>();
    compare(argument_bytes, plain_small::eight(argument()), tracked_small::eight(argument()));
    compare(argument_bytes, plain_small::eight(argument()), tracked_small_with_options::eight(argument()));
}

#[test]
fn a_chain_of_large_arguments_grows_by_a_copy_of_each() {
    compare(1024, plain_large::eight([0; 1024]), tracked_large::eight([0; 1024]));
    compare(1024, plain_large::eight([0; 1024]), tracked_large_with_options::eight([0; 1024]));
}

#[test]
fn a_borrowed_argument_is_not_copied() {
    async fn plain(bytes: &[u8; 1024], more: &str) -> usize {
        yield_now().await;
        bytes.len() + more.len()
    }
    #[track_memory]
    async fn tracked(bytes: &[u8; 1024], more: &str) -> usize {
        yield_now().await;
        bytes.len() + more.len()
    }
    let (plain, tracked) = (plain(&[0; 1024], ""), tracked(&[0; 1024], ""));
    let grown_bytes = size_of_val(&tracked) - size_of_val(&plain);
    assert!(grown_bytes <= ALLOWANCE_BYTES, "grew by {grown_bytes} bytes");
    assert_eq!(block_on(plain), block_on(tracked));
}
