//! shape: 121
//! title: last expressions and statements of every kind
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

pub struct P {
    x: u32,
}

#[track]
pub fn structure(x: u32) -> P { P { x } }
#[track]
pub fn range(n: usize) -> std::ops::Range<usize> { 0..n }
#[track]
pub fn unsafe_tail(x: &u32) -> u32 {
    // SAFETY: a reference.
    unsafe { *(x as *const u32) }
}
#[track]
pub fn assignment(x: &mut u32) { *x = 4 }
#[track]
pub fn compound(x: &mut u32) { *x += 4; }
#[track]
pub fn unit() { () }
#[track]
pub fn semicolon() { ; }
#[track]
pub fn early(x: &mut u32) {
    if *x == 0 {
        return;
    }
    *x = 1;
    return;
}
#[track]
pub fn if_without_else(x: &mut u32) {
    if *x > 0 {
        *x -= 1;
    }
}
#[track]
pub fn closure() -> impl Fn(u32) -> u32 { |x| { x + 1 } }
#[track]
pub fn cast(x: u32) -> u64 { x as u64 }
#[track]
pub fn negated(x: bool) -> bool { !x }
#[track]
pub fn macro_call(x: u32) -> Vec<u32> { vec![x; 2] }
#[track]
pub fn macro_braces(x: u32) -> Vec<u32> { vec! { x } }
#[track]
pub fn formatted(x: u32) -> String { format!("{}", x) }
#[track]
pub fn parenthesized(x: u32) -> u32 { (x + 1) }
#[track]
pub fn index(x: &[u32]) -> &u32 { &x[0] }
#[track]
pub fn method_chain(x: &str) -> String {
    x.chars()
        .rev()
        .collect()
}
#[track]
pub fn tuple(x: u32) -> (u32, ()) { (x, ()) }
#[track]
pub fn block_in_block(x: u32) -> u32 {
    {
        let y = x;
        { y + 1 }
    }
}
#[track]
pub fn match_units(x: u32) {
    match x {
        0 => drop(x),
        _ => (),
    }
}
#[track]
pub fn statement_macro(x: u32) {
    assert_eq!(x, 1)
}
#[track(+err)]
pub fn question(x: Result<u32, u32>) -> Result<u32, u32> { Ok(x?) }
#[track(+err)]
pub async fn awaited(x: u32) -> Result<u32, u32> { ready(x).await }
#[track]
pub async fn awaited_unit() { yield_now().await }
#[track(+err)]
pub async fn async_block(x: u32) -> Result<u32, u32> { async { Err(x) }.await }
#[track]
pub fn const_block() -> u32 { const { 1 + 2 } }
#[track]
pub fn only_a_comment() {
    // nothing
}

async fn ready(x: u32) -> Result<u32, u32> {
    Ok(x)
}

// calls: question 2
pub fn exercise() -> String {
    let mut n = 1;
    assignment(&mut n);
    compound(&mut n);
    if_without_else(&mut n);
    early(&mut n);
    unit();
    semicolon();
    match_units(0);
    statement_macro(1);
    only_a_comment();
    block_on(awaited_unit());
    let a = (structure(1).x, range(2), unsafe_tail(&3), closure()(1), cast(1), negated(true), macro_call(1), macro_braces(2));
    let b = (formatted(1), parenthesized(2), index(&[3]), method_chain("abc"), tuple(4), block_in_block(5), const_block());
    let c = (question(Ok(1)), question(Err(2)), block_on(awaited(3)), block_on(async_block(4)));
    format!("{} {:?} {:?} {:?}", n, a, b, c)
}
