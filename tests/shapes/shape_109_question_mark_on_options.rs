//! shape: 109
//! title: `?` on an Option, and in closures and async blocks of the body
use shape_support::{block_on, yield_now};
use std::ops::ControlFlow;

#[track]
pub fn option(x: &[u32]) -> Option<u32> {
    let first = x.first()?;
    let second = x.get(1).copied()?;
    Some(first + second)
}

#[track]
pub async fn later(x: &str) -> Option<char> {
    let first = x.chars().next()?;
    yield_now().await;
    if first == 'a' { None } else { Some(first) }
}

#[track]
pub fn flow(n: u32) -> ControlFlow<u32, &'static str> {
    let text = if n == 0 { ControlFlow::Break(7)? } else { "on" };
    ControlFlow::Continue(text)
}

#[track(+err)]
pub fn inner(x: &str) -> Result<u32, String> {
    let parse = |text: &str| -> Result<u32, std::num::ParseIntError> {
        let n: u32 = text.parse()?;
        if n == 0 {
            return Ok(100);
        }
        Ok(n)
    };
    let option = (|| Some(x.chars().next()? as u32))();
    let n = parse(x).map_err(|error| error.to_string())?;
    Ok(n + option.unwrap_or(0))
}

#[track(+err)]
pub async fn inner_later(x: &str) -> Result<u32, String> {
    let block = async {
        let n: u32 = x.parse()?;
        if n == 0 {
            return Ok(100);
        }
        Ok::<u32, std::num::ParseIntError>(n)
    };
    let n = block.await.map_err(|error| error.to_string())?;
    let closure = async |more: u32| {
        if more == 0 {
            return n;
        }
        n + more
    };
    Ok(closure(0).await + closure(1).await)
}

// calls: option 2, later 2, flow 2, inner 3, inner_later 3
pub fn exercise() -> String {
    let options = (option(&[1]), option(&[1, 2]), block_on(later("a")), block_on(later("b")));
    let results = (inner("x"), inner("0"), inner("1"));
    let later = (block_on(inner_later("x")), block_on(inner_later("0")), block_on(inner_later("1")));
    format!("{:?} {:?} {:?} {:?} {:?}", options, flow(0), flow(1), results, later)
}
