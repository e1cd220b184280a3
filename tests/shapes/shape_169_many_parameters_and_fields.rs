//! shape: 169
//! title: many parameters, fields and options at once
//! lost: clippy::needless_pass_by_value
#![allow(clippy::too_many_arguments)]
use shape_support::tracing::Span;
use shape_support::{block_on, yield_now};

#[track(+err, name = "everything", target = "t", level = "debug", fields(a = a, b = %b, c = ?c, %d, ?e, f.g = f, "h i" = true, later), args(g), max_allocs = 1000, sample = 1, oom(event), only(device, self), follows_from = [cause])]
pub fn everything(a: u32, b: &str, c: Option<u32>, d: String, e: Vec<u8>, f: bool, g: f64, _: u8, mut h: u32, cause: &Span) -> Result<String, u32> {
    h += a;
    let _ = cause.id();
    Span::current().record("later", h);
    if f { Err(h) } else { Ok(format!("{b}{c:?}{d}{e:?}{g}")) }
}

#[track(+err, skip(c), fields(x.y.z = a))]
pub async fn later(a: u32, b: &str, c: shape_support::Opaque, d: (u32, u32), e: &mut u32, f: Box<u32>) -> Result<u32, String> {
    yield_now().await;
    *e += 1;
    if c.0 == 0 { Err(b.to_owned()) } else { Ok(a + d.0 + *e + *f) }
}

#[track]
pub fn thirty(a1: u8, a2: u8, a3: u8, a4: u8, a5: u8, a6: u8, a7: u8, a8: u8, a9: u8, b1: String, b2: String, b3: String, b4: String, b5: String, (b6, b7): (String, String), b8: &str, b9: &str, c1: u8, c2: u8, c3: u8, c4: u8, c5: u8, c6: u8, c7: u8, c8: u8, c9: u8) -> usize {
    let numbers = [a1, a2, a3, a4, a5, a6, a7, a8, a9, c1, c2, c3, c4, c5, c6, c7, c8, c9];
    numbers.iter().map(|n| usize::from(*n)).sum::<usize>() + (b1 + &b2 + &b3 + &b4 + &b5 + &b6 + &b7 + b8 + b9).len()
}

// calls: everything 2, later 2
pub fn exercise() -> String {
    let everything = |f| everything(1, "b", Some(2), "d".to_owned(), vec![3], f, 4.5, 5, 6, &Span::none());
    let later = |c| block_on(later(1, "b", shape_support::Opaque(c), (2, 3), &mut 4, Box::new(5)));
    let s = || "x".to_owned();
    let thirty = thirty(1, 1, 1, 1, 1, 1, 1, 1, 1, s(), s(), s(), s(), s(), (s(), s()), "x", "x", 1, 1, 1, 1, 1, 1, 1, 1, 1);
    format!("{:?} {:?} {:?} {:?} {}", everything(false), everything(true), later(0), later(1), thirty)
}
