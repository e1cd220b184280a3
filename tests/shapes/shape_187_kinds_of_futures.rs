//! shape: 187
//! title: every kind of future that the option `future` measures
//! without err: a future is no `Result`
//! lost: clippy::manual_async_fn
use std::future::{Future, ready};
use std::pin::Pin;

#[track(future)]
pub fn opaque(n: u8) -> impl Future<Output = u8> + Send + Sync + Unpin + std::panic::UnwindSafe {
    ready(n)
}

#[track(future)]
pub fn of_a_block(text: &str) -> impl Future<Output = usize> + Send + use<'_> {
    async move { text.len() }
}

#[track(future)]
pub fn boxed(text: &str) -> Pin<Box<dyn Future<Output = usize> + Send + '_>> {
    if text.is_empty() {
        return Box::pin(ready(0));
    }
    Box::pin(async move { text.len() })
}

#[track(future)]
pub fn boxed_and_moved(n: u8) -> Pin<Box<dyn Future<Output = u8> + Unpin>> {
    Box::pin(ready(n))
}

#[track(future)]
pub fn boxed_and_moved_between_threads(n: u8) -> Pin<Box<dyn Future<Output = u8> + Send + Sync + Unpin>> {
    Box::pin(ready(n))
}

#[track(future)]
pub fn boxed_opaque(text: &str) -> Pin<Box<impl Future<Output = usize> + Send + use<'_>>> {
    Box::pin(async move { text.len() })
}

pub fn exercise() -> String {
    use shape_support::{block_on, send};
    let a = (block_on(send(opaque(1))), block_on(send(of_a_block("ab"))), block_on(send(boxed("abc"))));
    let b = (block_on(boxed_and_moved(4)), block_on(send(boxed_and_moved_between_threads(5))), block_on(send(boxed_opaque("abcdef"))));
    format!("{:?} {:?}", a, b)
}
