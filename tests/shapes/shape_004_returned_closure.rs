//! shape: 4
//! title: a returned closure, whose type exists once
//! without err: a closure is no `Result`

#[track]
pub fn adder(n: u32) -> impl Fn(u32) -> u32 {
    move |x| x + n
}

#[track]
pub async fn later_adder(n: u32) -> impl Fn(u32) -> u32 {
    shape_support::yield_now().await;
    move |x| x + n
}

#[track]
pub fn twice(f: impl Fn(u32) -> u32) -> impl Fn(u32) -> u32 {
    move |x| f(f(x))
}

pub fn exercise() -> String {
    let later = shape_support::block_on(shape_support::send(later_adder(1)));
    format!("{} {} {}", adder(1)(2), later(5), twice(|x| x * 3)(1))
}
