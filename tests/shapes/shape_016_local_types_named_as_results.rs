//! shape: 16
//! title: `Ok`, `Err` and others hidden in the body
//! lost: clippy::missing_const_for_fn

mod inner {
    pub struct Ok;
    pub struct Err;
    pub enum Option {
        Some,
        None,
    }
}

#[track(+err)]
pub fn sync(fails: bool) -> Result<u8, u8> {
    use inner::{Err, Ok, Option, Option::None, Option::Some};
    let _ = (Ok, Err, if fails { Some } else { None } as Option);
    if fails { Result::Err(1) } else { Result::Ok(2) }
}

#[track(+err)]
pub async fn later(fails: bool) -> Result<u8, u8> {
    use inner::{Err, Ok};
    let _ = (Ok, Err);
    shape_support::yield_now().await;
    if fails { Result::Err(1) } else { Result::Ok(2) }
}

// calls: sync 2, later 2
pub fn exercise() -> String {
    let later = |fails| shape_support::block_on(later(fails));
    format!("{:?} {:?} {:?} {:?}", sync(true), sync(false), later(true), later(false))
}
