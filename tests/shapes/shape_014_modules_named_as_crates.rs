//! shape: 14
//! title: a crate with modules named as crates
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async

mod tracing {}
mod std {}
mod core {}
mod alloc {}
mod memtrack {}
mod tracing_core {}
mod __private {}

#[track(fields(n = n), level = "debug")]
pub fn sync(n: u32) -> u32 {
    n
}

#[track(+err, fields(n = n))]
pub async fn later((n, _): (u32, u8)) -> Result<u32, u32> {
    Err(n)
}

#[track(+err, fields(n = ?n))]
pub fn failing(n: u32) -> Result<u32, u32> {
    Err(n)
}

pub fn exercise() -> String {
    format!("{} {:?} {:?}", sync(1), failing(2), ::shape_support::block_on(later((3, 0))))
}
