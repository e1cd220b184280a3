//! shape: 20
//! title: generics, constants, `impl Trait` arguments and where clauses

use std::fmt::Debug;

#[track]
pub fn picked<'a, T, const N: usize>(x: &'a [T; N], k: impl Into<u64>) -> &'a T
where
    T: Clone,
    for<'b> &'b T: PartialEq,
{
    &x[k.into() as usize]
}

#[track]
pub async fn later<'a, T, const N: usize>(x: &'a [T; N], k: impl Into<u64>) -> &'a T
where
    T: Clone,
    for<'b> &'b T: PartialEq,
{
    shape_support::yield_now().await;
    &x[k.into() as usize]
}

#[track(+err)]
pub fn checked<T: Debug, E, F>(x: T, f: F) -> Result<T, E>
where
    F: for<'a> Fn(&'a T) -> Option<E>,
{
    match f(&x) {
        Some(error) => Err(error),
        None => Ok(x),
    }
}

// calls: checked 2
pub fn exercise() -> String {
    let later = shape_support::block_on(shape_support::send(later(&[1, 2, 3], 1_u32)));
    let checked = (checked(1, |x| if *x > 1 { Some("more") } else { None }), checked("a", |x| Some(x.len())));
    format!("{} {} {:?}", picked(&[1, 2, 3], 2_u32), later, checked)
}
