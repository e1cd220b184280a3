//! shape: 132
//! title: clippy's lints about documentation and attributes of functions
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

/// Fails, and does not say when.
#[track(+err)]
pub fn errors(x: u32) -> Result<u32, String> {
    if x == 0 { Err("zero".to_owned()) } else { Ok(x) }
}

/// Fails later.
#[track(+err)]
pub async fn errors_later(x: u32) -> Result<u32, String> {
    yield_now().await;
    Err(x.to_string())
}

/// Panics.
#[track]
pub fn panics(x: Option<u32>) -> u32 {
    x.unwrap()
}

/// Panics later.
#[track]
pub async fn panics_later(x: Option<u32>) -> u32 {
    yield_now().await;
    assert!(x.is_some());
    x.expect("some")
}

/// Is not safe.
#[track]
pub unsafe fn safety() -> u32 {
    1
}

/// Needs no Safety.
///
/// # Safety
///
/// None.
#[track]
pub fn unneeded_safety() -> u32 {
    1
}

/// Mentions someFunction and SomeType, and [broken
/// links](x), and `code`.
///
///   * badly
///  * indented
#[track]
pub fn markdown() -> u32 {
    1
}

/// First paragraph that is very long because it goes on and on about things that nobody who reads only the first line of
/// a description ever wanted to know, such as the weather, and more of it, and still more of it, to the end of this line.
#[track]
pub fn long() -> u32 {
    1
}

#[track]
pub fn undocumented(x: u32) -> u32 {
    x
}

#[track]
#[must_use]
pub fn must_use_unit() {}

#[track(+err)]
#[must_use]
pub fn double_must_use() -> Result<u32, u32> {
    Ok(1)
}

#[track]
#[inline(always)]
pub fn inline_always() -> u32 {
    1
}

#[track]
#[allow(unused_variables)]
pub fn allow_attributes(x: u32) {}

pub struct S;

impl S {
    /// A candidate for `must_use`, and returning Self.
    #[track]
    pub fn with(&self) -> Self {
        S
    }

    /// Not a candidate.
    #[track]
    pub fn changes(&mut self, x: &mut u32) -> u32 {
        *x += 1;
        *x
    }
}

/// Test of an iterator.
#[track]
pub fn iterator(x: &[u32]) -> std::slice::Iter<'_, u32> {
    x.iter()
}

pub fn exercise() -> String {
    must_use_unit();
    allow_attributes(1);
    let _ = double_must_use();
    // SAFETY: there is no condition.
    let a = (errors(0), block_on(errors_later(1)), panics(Some(2)), block_on(panics_later(Some(3))), unsafe { safety() });
    let b = (unneeded_safety(), markdown(), long(), undocumented(1), inline_always(), S.with().changes(&mut 1));
    format!("{:?} {:?} {}", a, b, iterator(&[1]).count())
}
