//! shape: 165
//! title: the attribute by other names: imported, renamed, re-exported, by `macro_use`
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
#[allow(unused_imports)]
#[macro_use]
extern crate memtrack;
#[allow(unused_imports)]
use memtrack::{track_memory, track_memory as tracked};
#[allow(unused_imports)]
use shape_support::{block_on, memtrack as other, yield_now};

pub mod reexported {
    #[allow(unused_imports)]
    pub use memtrack::*;
}

#[track(+err, via = track_memory)]
pub fn imported(x: u32) -> Result<u32, u32> {
    Err(x)
}

#[track(via = tracked)]
pub async fn renamed(x: u32) -> u32 {
    yield_now().await;
    x
}

#[track(via = other::track_memory)]
pub fn of_another_crate(x: u32) -> u32 {
    x
}

#[track(+err, via = self::reexported::track_memory)]
pub async fn reexport(x: u32) -> Result<u32, u32> {
    Err(x)
}

pub fn exercise() -> String {
    format!("{:?} {} {} {:?}", imported(1), block_on(renamed(2)), of_another_crate(3), block_on(reexport(4)))
}
