//! shape: 5
//! title: statements before a boxed future
//! without err: a boxed future is no `Result`, and `err` is refused with that reason

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;

#[track]
pub fn boxed<'a>(n: u32, ran: &'a Cell<u32>) -> Pin<Box<dyn Future<Output = u32> + 'a>> {
    ran.set(ran.get() + 1);
    let k = n * 2;
    Box::pin(async move { k + ran.get() })
}

#[track]
pub fn tail(n: u32) -> Pin<Box<dyn Future<Output = Result<u32, String>> + Send>> {
    Box::pin(async move { if n == 0 { Err("zero".to_owned()) } else { Ok(n) } })
}

// calls: boxed 1, tail 2
pub fn exercise() -> String {
    let ran = Cell::new(0);
    let sum = shape_support::block_on(boxed(4, &ran));
    let tails = (shape_support::block_on(shape_support::send(tail(0))), shape_support::block_on(tail(1)));
    format!("{} {} {:?}", sum, ran.get(), tails)
}
