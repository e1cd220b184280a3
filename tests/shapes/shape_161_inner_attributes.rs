//! shape: 161
//! title: attributes and comments inside the body's braces
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn sync(x: u32) -> u32 {
    #![allow(unused_variables)]
    let y = 1;
    x
}

#[track(+err)]
pub async fn later(x: u32, z: u32) -> Result<u32, u32> {
    #![allow(unused_variables, unused_mut)]
    #![expect(clippy::needless_return)]
    let mut y = 1;
    yield_now().await;
    return Ok(x);
}

#[track(+err)]
pub fn commented(x: u32) -> Result<u32, u32> {
    //! Documentation inside.
    /* a block comment */
    // TODO: a comment that a lint could find
    #[cfg(any())]
    return Err(x);
    #[cfg(all())]
    Ok(x)
}

pub fn exercise() -> String {
    format!("{} {:?} {:?}", sync(1), block_on(later(2, 3)), commented(4))
}
