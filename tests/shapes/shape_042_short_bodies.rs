//! shape: 42
//! title: bodies on one line, in braces that could be one too many
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
use shape_support::block_on;
use std::future::Future;
use std::pin::Pin;

#[track]
pub fn literal() -> u32 { 1 }
#[track]
pub fn empty() {}
#[track]
pub fn boxed() -> Pin<Box<dyn Future<Output = ()>>> { Box::pin(async move {}) }
#[track]
pub fn call() -> u32 { literal() }
#[track]
pub fn argument(x: u32) -> u32 { x }
#[track]
pub fn block() -> u32 { { 4 } }
#[track]
pub fn unsafe_block() -> u32 { unsafe { *std::ptr::addr_of!(FOUR) } }
#[track]
pub fn branch(x: bool) -> u32 { if x { 1 } else { 2 } }
#[track]
pub fn never() -> ! { panic!("never") }
#[track(+err)]
pub fn ok() -> Result<u32, ()> { Ok(1) }
#[track(+err)]
pub fn failing(x: Result<u32, ()>) -> Result<u32, ()> { x }
#[track]
pub async fn later() -> u32 { 1 }
#[track]
pub async fn later_empty() {}
#[track]
pub async fn later_call() -> u32 { later().await }
#[track]
pub async fn later_argument(x: u32) -> u32 { x }
#[track]
pub async fn later_never() -> ! { panic!("never") }
#[track(+err)]
pub async fn later_ok(x: Result<u32, ()>) -> Result<u32, ()> { x }
#[track]
pub fn closure() -> impl Fn() -> u32 { || { 1 } }
#[track]
pub fn semicolon() { literal(); }
#[track]
pub fn string(x: &str) -> &str { x }

static FOUR: u32 = 4;

// calls: literal 3, later 2
pub fn exercise() -> String {
    empty();
    semicolon();
    block_on(async { later_empty().await; boxed().await; });
    let all = (literal(), call(), argument(3), block(), unsafe_block(), branch(true), ok(), failing(Err(())));
    let later = block_on(async { (later().await, later_call().await, later_argument(1).await, later_ok(Ok(2)).await) });
    let never = (shape_support::panic_of(|| never()), shape_support::panic_of(|| -> () { block_on(later_never()) }));
    format!("{:?} {:?} {:?} {} {}", all, later, never, closure()(), string("x"))
}
