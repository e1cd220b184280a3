//! shape: 69
//! title: a future without a destructor borrows a local that is declared after it
//! without err: the future is no `Result`, and `err` is refused with that reason
//! lost: clippy::missing_const_for_fn
use std::future::{Future, Ready};
use std::pin::Pin;

#[track]
pub fn ready(text: &str) -> Ready<&str> {
    std::future::ready(text)
}

/// A future of the caller's own.
pub struct Length<'a>(pub &'a str);

impl Future for Length<'_> {
    type Output = usize;

    fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<usize> {
        std::task::Poll::Ready(self.0.len())
    }
}

#[track]
pub fn length<'a>(text: &'a str) -> Length<'a> {
    Length(text)
}

pub fn exercise() -> String {
    let (mut first, mut second);
    let text = String::from("text");
    first = ready(&text);
    second = length(&text);
    format!("{} {}", shape_support::block_on(&mut first), shape_support::block_on(&mut second))
}
