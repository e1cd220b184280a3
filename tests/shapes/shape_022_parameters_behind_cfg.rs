//! shape: 22
//! title: parameters behind `#[cfg]`
//! lost: clippy::missing_const_for_fn

#[track]
pub fn sync(
    #[cfg(not(unix))] a: u64,
    #[cfg(unix)] b: u64,
    #[cfg(not(unix))] (c, d): (u8, u8),
    #[cfg(unix)] (e, _): (u64, u8),
) -> u64 {
    #[cfg(not(unix))]
    return a + u64::from(c) + u64::from(d);
    #[cfg(unix)]
    return b + e;
}

#[track(+err)]
pub async fn later(#[cfg(not(unix))] a: u64, #[cfg(unix)] mut b: u64, #[cfg(any())] _never: u8) -> Result<u64, String> {
    shape_support::yield_now().await;
    #[cfg(not(unix))]
    let b = a;
    #[cfg(unix)]
    {
        b += 1;
    }
    Ok(b)
}

#[track(+err)]
pub fn levels(
    #[allow(unused_variables)] a: u64,
    #[expect(unused_variables)] b: u64,
    #[cfg_attr(unix, allow(unused_mut))] mut c: u64,
    #[cfg_attr(unix, cfg(unix))] d: u64,
) -> Result<u64, String> {
    Ok(c + d)
}

pub fn exercise() -> String {
    let later = shape_support::block_on(shape_support::send(later(1)));
    format!("{} {:?} {:?}", sync(2, (3, 4)), later, levels(1, 2, 3, 4))
}
