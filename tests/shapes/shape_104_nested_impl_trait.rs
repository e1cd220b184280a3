//! shape: 104
//! title: `impl Trait` inside tuples, arrays, references, options and boxes
use shape_support::{block_on, yield_now};
use std::fmt::Debug;

#[track]
pub fn tuple(n: u32) -> (impl Fn(u32) -> u32, impl Iterator<Item = u32>, u32) {
    (move |x| x + n, 0..n, n)
}

#[track]
pub fn array(n: u32) -> [impl Fn() -> u32; 2] {
    let make = |n: u32| move || n;
    [make(n), make(n + 1)]
}

#[track]
pub fn option(n: u32) -> Option<impl Debug> {
    if n == 0 {
        return None;
    }
    Some(n)
}

#[track]
pub fn boxed(n: u32) -> Box<impl Fn() -> u32> {
    Box::new(move || n)
}

#[track]
pub fn reference(n: &u32) -> &impl Debug {
    n
}

#[track]
pub fn associated(n: u32) -> impl IntoIterator<Item = impl Debug, IntoIter = impl Iterator<Item = impl Debug> + Clone> {
    vec![n, n + 1]
}

#[track(+err)]
pub async fn later(n: u32) -> Result<(impl Fn(u32) -> u32, Option<impl Debug>), Vec<impl Debug>> {
    yield_now().await;
    if n == 0 {
        return Err(vec!["zero"]);
    }
    Ok((move |x| x + n, Some(n)))
}

#[track]
pub fn lifetimes<'a, T: Clone + 'a>(x: &'a [T]) -> impl Iterator<Item = T> + Clone + 'a {
    x.iter().cloned()
}

// calls: option 2, later 2
pub fn exercise() -> String {
    let (f, iterator, n) = tuple(3);
    let [g, h] = array(1);
    let options = (option(0).is_some(), option(1));
    let later = (block_on(later(0)).err(), block_on(later(1)).map(|(f, option)| (f(1), option)).ok());
    let rest = (boxed(5)(), lifetimes(&[1, 2]).count(), associated(1).into_iter().count());
    format!("{} {} {} {} {} {:?} {:?} {:?} {:?}", f(1), iterator.count(), n, g(), h(), options, later, rest, reference(&4))
}
