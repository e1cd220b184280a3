//! shape: 105
//! title: `impl Trait` and `dyn Trait` arguments, closures and async closures
use shape_support::{block_on, send, yield_now};
use std::fmt::Debug;
use std::future::Future;

#[track]
pub fn many(a: impl Iterator<Item = u32>, mut b: impl FnMut(u32) -> u32, c: &mut impl Iterator<Item = u32>, _: impl Debug) -> u32 {
    a.map(&mut b).sum::<u32>() + c.by_ref().take(1).sum::<u32>()
}

#[track(+err)]
pub async fn later<'a>(a: impl IntoIterator<Item = &'a u32>, f: impl Future<Output = u32>) -> Result<u32, String> {
    let sum: u32 = a.into_iter().sum();
    yield_now().await;
    Ok(sum + f.await)
}

#[track(+err)]
pub async fn called(f: impl AsyncFn(u32) -> u32, mut g: impl AsyncFnMut(u32), h: impl AsyncFnOnce() -> u32) -> Result<u32, u32> {
    let n = f(1).await;
    g(n).await;
    g(n).await;
    if n == 0 { Err(n) } else { Ok(n + h().await) }
}

#[track]
pub fn dynamic(f: &dyn Fn(&str) -> usize, g: &mut dyn FnMut(), h: Box<dyn FnOnce() -> String + '_>) -> usize {
    g();
    f("abc") + h().len()
}

#[track(+err)]
pub fn once<T, E>(f: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    f()
}

#[track]
pub fn higher_ranked(f: impl for<'a> Fn(&'a str) -> &'a str) -> String {
    f("abc").to_owned()
}

pub fn exercise() -> String {
    let mut c = 1..9;
    let many = many([1, 2].iter().copied(), |n| n * 2, &mut c, "x");
    let later = block_on(send(later(&[1, 2], async { 3 })));
    let mut total = 0;
    let called = block_on(called(async |n| n + 1, async |n| total += n, async || 7));
    let text = String::from("text");
    let dynamic = dynamic(&str::len, &mut || total += 1, Box::new(|| text.clone()));
    format!("{} {:?} {:?} {} {} {:?} {}", many, later, called, dynamic, total, once(|| Err::<(), _>(1)), higher_ranked(|s| &s[1..]))
}
