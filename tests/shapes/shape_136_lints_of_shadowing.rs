//! shape: 136
//! title: shadowing in the body
//! lost: clippy::needless_pass_by_value
use shape_support::{block_on, yield_now};

#[track]
pub fn same(x: u32, y: &u32, z: String) -> usize {
    let x = x;
    let y = &y;
    let z = z;
    x as usize + **y as usize + z.len()
}

#[track]
pub fn reused(x: u32, z: String) -> usize {
    let x = x + 1;
    let z = z.len();
    let z = z + 1;
    x as usize + z
}

#[track(+err)]
pub fn unrelated(x: u32, z: String) -> Result<usize, String> {
    let n = x;
    let x = 3;
    if n == 0 {
        let z = "other";
        return Ok(z.len());
    }
    let closure = |x: u32| x + 1;
    match Some(n) {
        Some(x) => Ok(x as usize + closure(1) as usize),
        None => Err(z),
    }
}

#[track(+err)]
pub async fn later(x: u32, mut z: String, (a, b): (u32, u32)) -> Result<usize, String> {
    let x = x + a;
    yield_now().await;
    let a = b;
    let z2 = z.len();
    z.clear();
    let z = z;
    let b = 4;
    if b == x as usize { Err(z) } else { Ok(z2 + a as usize) }
}

pub fn exercise() -> String {
    let s = || "abc".to_owned();
    format!("{} {} {:?} {:?}", same(1, &2, s()), reused(3, s()), unrelated(4, s()), block_on(later(1, s(), (2, 3))))
}
