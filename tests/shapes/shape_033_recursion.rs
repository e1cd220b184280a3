//! shape: 33
//! title: recursion, also of async functions
use shape_support::{block_on, yield_now};
use std::future::Future;
use std::pin::Pin;

#[track]
pub fn sync(n: u32) -> u32 {
    if n == 0 { 0 } else { sync(n - 1) + 1 }
}

#[track]
pub async fn later(n: u32) -> u32 {
    yield_now().await;
    if n == 0 { 0 } else { Box::pin(later(n - 1)).await + 1 }
}

#[track(+err)]
pub fn failing(n: u32) -> Result<u32, u32> {
    if n == 0 {
        return Err(n);
    }
    Ok(failing(n - 1)? + 1)
}

#[track]
pub async fn even(n: u32) -> bool {
    n == 0 || odd(n - 1).await
}

#[track]
pub fn odd(n: u32) -> Pin<Box<dyn Future<Output = bool>>> {
    Box::pin(async move { n != 0 && even(n - 1).await })
}

// calls: sync 4, later 4, failing 3, even 2, odd 2
pub fn exercise() -> String {
    format!("{} {} {:?} {}", sync(3), block_on(later(3)), failing(2), block_on(even(3)))
}
