//! What the attribute costs where it can be counted exactly: the size of futures.

use memtrack::track_memory;
use memtrack_tests::futures::yield_now;

type Argument = [u8; 64];

macro_rules! chain {
    ($(#[$attribute:meta])? $first:ident $($next:ident)*) => {
        $(#[$attribute])?
        async fn $first(argument: Argument) -> u8 {
            yield_now().await;
            chain!(@call argument $($next)*)
        }
        chain!($(#[$attribute])? $($next)*);
    };
    ($(#[$attribute:meta])?) => {};
    (@call $argument:ident $next:ident $($rest:ident)*) => { $next($argument).await };
    (@call $argument:ident) => { $argument[0] };
}

mod plain {
    use super::*;
    chain!(f1 f2 f3 f4 f5 f6 f7 f8);
    pub(super) fn bytes() -> usize {
        size_of_val(&f1([0; 64]))
    }
}

mod tracked {
    use super::*;
    chain!(#[track_memory] f1 f2 f3 f4 f5 f6 f7 f8);
    pub(super) fn bytes() -> usize {
        size_of_val(&f1([0; 64]))
    }
}

#[test]
fn futures_grow_by_a_fixed_amount_per_level() {
    let (plain, tracked) = (plain::bytes(), tracked::bytes());
    println!("8 nested async functions: {plain} bytes plain, {tracked} bytes tracked");
    // Per level: what a call keeps, and one more copy of the argument.
    assert!(tracked <= plain + 8 * (200 + size_of::<Argument>()), "{plain} bytes plain, {tracked} bytes tracked");
}
