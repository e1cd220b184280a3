//! shape: 24
//! title: patterns as parameters
//! lost: clippy::missing_const_for_fn

pub struct P {
    a: u8,
    b: (u8, u8),
}

#[track]
pub fn sync((a, mut b): (u8, u8), P { a: c, b: (d, _) }: P, &e: &u8, [g, ..]: [u8; 3], _: u8, h @ (_, _): (u8, u8)) -> u8 {
    b += 1;
    a + b + c + d + e + g + h.0
}

#[track(+err)]
pub async fn later((a, mut b): (u8, u8), P { a: c, b: (d, _) }: P, &e: &u8, [g, ..]: [u8; 3], _: u8, h @ (_, _): (u8, u8)) -> Result<u8, u8> {
    shape_support::yield_now().await;
    b += 1;
    Err(a + b + c + d + e + g + h.0)
}

#[track(+err)]
pub fn failing((a, b): (Vec<u8>, Vec<u8>), mut c: u8, P { a: ref d, .. }: P) -> Result<Vec<u8>, u8> {
    c += d;
    if a.is_empty() { Err(c) } else { Ok(b) }
}

pub fn exercise() -> String {
    let p = || P { a: 3, b: (4, 5) };
    let later = later((1, 2), p(), &6, [7, 8, 9], 10, (11, 12));
    format!(
        "{} {:?} {:?}",
        sync((1, 2), p(), &6, [7, 8, 9], 10, (11, 12)),
        shape_support::block_on(shape_support::send(later)),
        failing((vec![], vec![1]), 2, p())
    )
}
