//! shape: 52
//! title: `#[track_caller]` still names the caller
//! lost: clippy::missing_const_for_fn
use std::num::ParseIntError;
use std::panic::Location;

#[track]
#[track_caller]
pub fn below() -> u32 {
    Location::caller().line()
}

#[track_caller]
#[track]
pub fn above(_: &str) -> u32 {
    Location::caller().line()
}

#[track(+err)]
#[track_caller]
pub fn failing(n: u32) -> Result<u32, ParseIntError> {
    let parse = |text: &str| {
        return text.parse::<u32>();
    };
    if n == 0 {
        return Ok(0);
    }
    if n == 1 {
        parse("x")?;
    }
    Ok(Location::caller().line())
}

pub struct S(u32);

impl S {
    #[track(+err)]
    #[track_caller]
    pub fn owned(self) -> Result<u32, u32> {
        Err(Location::caller().line() + self.0)
    }

    #[track]
    #[track_caller]
    pub fn borrowed(&mut self, n: Option<u32>) -> u32 {
        self.0 += n.unwrap();
        Location::caller().line()
    }
}

#[track]
#[cfg_attr(all(), track_caller)]
pub fn conditional() -> u32 {
    Location::caller().line()
}

// calls: failing 3
pub fn exercise() -> String {
    let lines = (below(), above(""), conditional(), S(0).borrowed(Some(1)));
    let failing = (failing(0), failing(1), failing(2));
    format!("{:?} {:?} {:?}", lines, failing, S(0).owned())
}
