//! shape: 124
//! title: async blocks returned, joined and dropped before they end
//! lost: clippy::manual_async_fn
use shape_support::{block_on, poll_once, send, yield_now};
use std::future::Future;
use std::pin::Pin;

#[track]
pub fn moved(text: String) -> impl Future<Output = usize> + Send {
    async move {
        yield_now().await;
        text.len()
    }
}

#[track]
pub fn borrowed<'a>(text: &'a str, n: &'a mut u32) -> impl Future<Output = usize> + 'a {
    *n += 1;
    async move {
        yield_now().await;
        *n += 1;
        text.len()
    }
}

#[track(future)]
pub fn measured(n: u32) -> impl Future<Output = u32> + Send {
    let more = n + 1;
    async move {
        yield_now().await;
        if more == 2 {
            return 0;
        }
        more
    }
}

#[track(future)]
pub fn measured_box<'a>(n: &'a u32) -> Pin<Box<dyn Future<Output = u32> + Send + 'a>> {
    if *n == 0 {
        return Box::pin(async { 7 });
    }
    Box::pin(async move { *n })
}

#[track(+err)]
pub async fn joined(mut a: impl Future<Output = u32> + Unpin, b: impl Future<Output = u32>) -> Result<u32, u32> {
    let b = Box::pin(b);
    let sum = (&mut a).await + b.await;
    if sum == 0 { Err(sum) } else { Ok(sum) }
}

#[track]
pub async fn dropped(n: u32) -> u32 {
    yield_now().await;
    yield_now().await;
    n
}

#[track]
pub async fn futures(n: u32) -> impl Future<Output = u32> {
    yield_now().await;
    async move { n }
}

// calls: measured 2, measured_box 2
pub fn exercise() -> String {
    let mut n = 0;
    let first = (block_on(send(moved("abc".to_owned()))), block_on(borrowed("ab", &mut n)), n);
    let measured = (block_on(send(measured(1))), block_on(measured(2)), block_on(measured_box(&0)), block_on(measured_box(&3)));
    let joined = block_on(joined(Box::pin(async { 1 }), async { 2 }));
    let pending = {
        let mut future = Box::pin(dropped(1));
        poll_once(future.as_mut()).is_pending()
    };
    let never_polled = dropped(2);
    std::mem::drop(never_polled);
    format!("{:?} {:?} {:?} {} {}", first, measured, joined, pending, block_on(block_on(futures(4))))
}
