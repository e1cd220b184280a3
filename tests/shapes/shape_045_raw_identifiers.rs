//! shape: 45
//! title: raw identifiers
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn r#match(r#type: u8) -> u8 {
    r#type
}

#[track(+err)]
pub fn r#loop(mut r#fn: u8, (r#in, _): (u8, u8)) -> Result<u8, u8> {
    r#fn += 1;
    Err(r#fn + r#in)
}

#[track(+err)]
pub async fn r#move(r#ref: &u8, r#gen: u8) -> Result<u8, u8> {
    yield_now().await;
    Ok(*r#ref + r#gen)
}

pub fn exercise() -> String {
    format!("{} {:?} {:?}", r#match(1), r#loop(2, (3, 4)), block_on(r#move(&5, 6)))
}
