//! shape: 120
//! title: bodies that end by diverging in other ways
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, panic_of, yield_now};
use std::process;

#[track]
pub fn branches(n: u32) -> u32 {
    if n == 0 {
        return 1;
    } else {
        return 2;
    }
}

#[track]
pub fn arms(n: u32) -> &'static str {
    match n {
        0 => return "zero",
        1 => panic!("one"),
        _ => {
            return "many";
        }
    }
}

#[track(+err)]
pub fn macros(n: u32) -> Result<u32, String> {
    if n > 0 {
        unreachable!("more {}", n)
    }
    assert!(n > 0, "less");
    todo!()
}

#[track]
pub fn calls() -> String {
    fn inner() -> ! {
        panic!("inner")
    }
    inner()
}

#[track]
pub fn calls_with_semicolon() -> String {
    fn inner() -> ! {
        panic!("inner")
    }
    inner();
}

#[track]
pub async fn endless(n: u32) -> Vec<u8> {
    let mut n = n;
    loop {
        yield_now().await;
        n += 1;
        if n > 3 {
            panic!("endless")
        }
    }
}

#[track(+err)]
pub async fn returns(n: u32) -> Result<u32, u32> {
    if n > 0 {
        return Ok(n);
    }
    yield_now().await;
    return Err(n);
}

#[track]
pub fn blocks(n: u32) -> u32 {
    {
        {
            return n;
        }
    }
}

#[track]
pub fn unwinds(n: Option<u32>) {
    n.unwrap();
    std::panic::panic_any(n)
}

#[track]
pub fn exits() -> u32 {
    process::exit(1)
}

#[track]
pub fn nothing_to_match(n: std::convert::Infallible) -> u32 {
    match n {}
}

#[track]
pub fn continues(x: &[u32]) -> u32 {
    for n in x {
        if *n == 0 {
            continue;
        }
        return *n;
    }
    0
}

#[track]
pub fn let_never() -> u32 {
    let _never: u32 = return 5;
}

// calls: branches 2, arms 3, returns 2, exits 0, nothing_to_match 0
pub fn exercise() -> String {
    let sync = (branches(0), branches(1), arms(0), panic_of(|| arms(1)), arms(2), panic_of(|| macros(0)));
    let more = (panic_of(calls), panic_of(calls_with_semicolon), blocks(3), panic_of(|| unwinds(None)), continues(&[0, 2]), let_never());
    let later = (panic_of(|| block_on(endless(1))), block_on(returns(0)), block_on(returns(1)));
    format!("{:?} {:?} {:?}", sync, more, later)
}
