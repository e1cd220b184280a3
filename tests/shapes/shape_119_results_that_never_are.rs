//! shape: 119
//! title: Results of types without values, of units and of Results
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, panic_of, yield_now};
use std::convert::Infallible;

#[track(+err)]
pub fn always(n: u32) -> Result<u32, Infallible> {
    Ok(n)
}

#[track(+err)]
pub fn never(n: u32) -> Result<Infallible, u32> {
    Err(n)
}

#[track(+err)]
pub async fn later(n: u32) -> Result<Infallible, String> {
    yield_now().await;
    Err(n.to_string())
}

#[track(+err)]
pub fn neither() -> Result<Infallible, Infallible> {
    panic!("neither")
}

#[track]
pub fn nothing() -> Infallible {
    panic!("nothing")
}

#[track(+err)]
pub fn unit(n: u32) -> Result<(), ()> {
    if n == 0 { Err(()) } else { Ok(()) }
}

#[track(+err)]
pub fn nested(n: u32) -> Result<Result<Option<u32>, u8>, Box<dyn std::error::Error + Send + Sync>> {
    if n == 0 {
        return Err("zero".into());
    }
    Ok(if n == 1 { Err(1) } else { Ok(Some(n)) })
}

// calls: unit 2, nested 2
pub fn exercise() -> String {
    let always = always(1).unwrap_or_else(|never| match never {});
    let all = (never(2).map_err(|n| n + 1), block_on(later(3)), panic_of(neither), panic_of(nothing), unit(0), unit(1));
    format!("{} {:?} {:?} {:?}", always, all, nested(0).is_err(), nested(1).unwrap())
}
