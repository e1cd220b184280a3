//! shape: 145
//! title: function items as pointers, with turbofish, and their lifetimes
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn late<'a>(x: &'a mut u32) -> &'a mut u32 {
    *x += 1;
    x
}

#[track]
pub fn early<'a: 'a, T: ?Sized>(x: &'a T) -> &'a T {
    x
}

#[track]
pub fn two<'a, 'b>(x: &'a str, _y: &'b str) -> &'a str {
    x
}

#[track(+err)]
pub fn is_static(x: &'static str) -> Result<&'static str, &'static str> {
    if x.is_empty() { Err("empty") } else { Ok(x) }
}

#[track]
pub fn generic<T, U>(x: T) -> U
where
    U: From<T>,
{
    U::from(x)
}

#[track(+err)]
pub async fn later<'a, 'b, T>(x: &'a T, y: &'b T) -> Result<(&'a T, &'b T), ()> {
    yield_now().await;
    Ok((x, y))
}

#[track]
pub fn invariant<'a>(x: &mut Vec<&'a str>, y: &'a str) {
    x.push(y);
}

#[track]
pub fn contravariant<'a>(f: fn(&'a str) -> usize, x: &'a str) -> usize {
    f(x)
}

pub fn exercise() -> String {
    let a: for<'a> fn(&'a mut u32) -> &'a mut u32 = late;
    let b: fn(&'static str) -> &'static str = early::<'static, str>;
    let c: for<'a, 'b> fn(&'a str, &'b str) -> &'a str = two;
    let d: fn(u8) -> u64 = generic::<u8, u64>;
    let e: fn(&'static str) -> Result<&'static str, &'static str> = is_static;
    let mut n = 1;
    *a(&mut n) += 1;
    let text = String::from("text");
    let kept = {
        let short = String::from("short");
        c(&text, &short)
    };
    let mut v = vec!["a"];
    invariant(&mut v, &text);
    format!("{} {} {} {} {:?} {:?} {:?} {}", n, b("x"), kept, d(4), e(""), block_on(later(&1, &2)), v, contravariant(|s| s.len(), &text))
}
