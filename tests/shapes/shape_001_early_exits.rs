//! shape: 1
//! title: both exits of a function that returns a Result

use std::future::Future;
use std::num::ParseIntError;

#[track(+err)]
pub fn parsed(x: &str) -> Result<u32, ParseIntError> {
    let v: u32 = x.parse()?;
    if v == 0 {
        return Ok(1);
    }
    Ok(v)
}

#[track(+err)]
pub async fn parsed_later(x: &str) -> Result<u32, ParseIntError> {
    let v: u32 = x.parse()?;
    if v == 0 {
        return Ok(1);
    }
    shape_support::yield_now().await;
    Ok(v)
}

fn is_result<F: Future<Output = Result<u32, ParseIntError>> + Send>(future: F) -> F {
    future
}

pub fn exercise() -> String {
    let f: fn(&str) -> Result<u32, ParseIntError> = parsed;
    format!("{:?} {:?}", f("0"), shape_support::block_on(is_result(parsed_later("x"))))
}
