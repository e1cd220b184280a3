//! shape: 6
//! title: a function that returns a future
//! lost: clippy::manual_async_fn

use std::future::{Future, Ready};

#[track]
pub fn block(n: u32) -> impl Future<Output = u32> {
    async move { n }
}

#[track]
pub fn ready(n: u32) -> Ready<u32> {
    std::future::ready(n)
}

#[track(+err)]
pub fn perhaps(n: u32) -> Result<impl Future<Output = u32> + Send, u32> {
    if n == 0 {
        return Err(n);
    }
    Ok(async move { n })
}

// calls: perhaps 2
pub fn exercise() -> String {
    let perhaps = (perhaps(3).map(shape_support::block_on), perhaps(0).map(shape_support::block_on));
    format!("{} {} {:?}", shape_support::block_on(shape_support::send(block(1))), shape_support::block_on(ready(2)), perhaps)
}
