//! shape: 113
//! title: other attributes above and below
//! lost: clippy::missing_const_for_fn
#![allow(deprecated)]
use shape_support::{block_on, yield_now};

/// A doc comment,
/// of two lines.
#[track]
/// And one below.
#[inline]
#[must_use = "for a reason"]
#[doc(hidden)]
pub fn below(n: u32) -> u32 {
    n
}

#[inline(never)]
#[cold]
#[deprecated(since = "1.0.0", note = "use another")]
#[doc = "A doc attribute."]
#[doc(alias = "over")]
#[track(+err)]
#[cfg(not(any()))]
pub fn above(n: u32) -> Result<u32, String> {
    Ok(n)
}

/** A block doc comment. */
#[cfg_attr(all(), must_use, inline)]
#[track(+err)]
#[cfg_attr(any(), deprecated)]
#[allow(clippy::unused_async)]
pub async fn conditional(n: u32) -> Result<u32, String> {
    yield_now().await;
    Err(n.to_string())
}

#[track]
#[cfg(any())]
pub fn absent() -> NoType {
    no_function()
}

pub struct S;

impl S {
    /// A method.
    #[track]
    #[must_use]
    #[inline]
    #[allow(clippy::must_use_candidate, clippy::unused_self)]
    pub fn method(&self) -> u32 {
        3
    }

    #[warn(clippy::pedantic)]
    #[track]
    #[rustfmt::skip]
    pub fn skipped(&self, ) -> u32 {4 }
}

// calls: absent 0
pub fn exercise() -> String {
    format!("{} {:?} {:?} {} {}", below(1), above(2), block_on(conditional(5)), S.method(), S.skipped())
}
