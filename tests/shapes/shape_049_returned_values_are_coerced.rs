//! shape: 49
//! title: values of early and last returns are coerced to the declared type
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
use shape_support::{block_on, yield_now};
use std::error::Error;
use std::fmt::Debug;

#[track]
pub fn boxed(x: u32) -> Box<dyn Debug> {
    if x == 0 {
        return Box::new("zero");
    }
    Box::new(x)
}

#[track]
pub async fn later(n: u32) -> Box<dyn Debug> {
    if n == 0 {
        return Box::new("zero");
    }
    yield_now().await;
    if n == 1 {
        return Box::new(1);
    }
    Box::new(2.5)
}

#[track]
pub async fn shared(x: &mut u8) -> &u8 {
    yield_now().await;
    x
}

#[track]
pub fn slice(x: &[u8; 3]) -> &[u8] {
    x
}

#[track]
pub fn pointer() -> fn(u32) -> u32 {
    |x| x + 1
}

#[track]
pub async fn later_pointer(n: u32) -> fn(u32) -> u32 {
    if n == 0 {
        return |x| x + 1;
    }
    |x| x + 2
}

#[track]
pub fn closure(n: u32) -> Box<dyn Fn(u32) -> u32> {
    if n == 0 {
        return Box::new(|x| x);
    }
    Box::new(move |x| x + n)
}

#[track(+err)]
pub fn failing(n: u8) -> Result<Box<dyn Debug>, Box<dyn Error>> {
    if n == 0 {
        return Err("zero".into());
    }
    if n == 1 {
        return Ok(Box::new("one"));
    }
    let parsed: u8 = "x".parse()?;
    Ok(Box::new(parsed))
}

#[track(+err)]
pub async fn later_failing(n: u8) -> Result<Box<dyn Debug>, Box<dyn Error + Send + Sync>> {
    if n == 0 {
        Err("zero")?;
    }
    if n == 1 {
        return Ok(Box::new("one"));
    }
    yield_now().await;
    Ok(Box::new(n))
}

#[track]
pub fn array(n: u32) -> [&'static dyn Debug; 2] {
    if n == 0 {
        return [&1, &"x"];
    }
    [&"y", &2.5]
}

// calls: boxed 2, later 3, later_pointer 2, closure 2, failing 3, later_failing 2, array 2
pub fn exercise() -> String {
    let later = (block_on(later(0)), block_on(later(1)), block_on(later(2)));
    let pointers = (pointer()(1), block_on(later_pointer(0))(1), block_on(later_pointer(1))(1), closure(0)(1), closure(1)(1));
    let failing = (failing(0).is_err(), failing(1).unwrap(), failing(2).is_err());
    let later_failing = (block_on(later_failing(0)).is_err(), block_on(later_failing(1)).unwrap());
    let arrays = (array(0), array(1));
    let slices = (slice(&[1, 2, 3]).len(), block_on(shared(&mut 1)).to_owned());
    format!("{:?}{:?} {:?} {:?} {:?} {:?} {:?} {:?}", boxed(0), boxed(1), later, pointers, failing, later_failing, arrays, slices)
}
