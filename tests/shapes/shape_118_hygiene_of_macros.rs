//! shape: 118
//! title: names of macros and names of the user that are spelled alike
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

macro_rules! shadowing {
    ($name:ident, $outer:ident) => {
        #[track(+err)]
        pub fn $name($outer: u32, value: u32) -> Result<u32, u32> {
            let value = value + 1;
            let inner = { let $outer = $outer * 2; $outer };
            if value == 0 { return Err(value); }
            Ok(inner + value + $outer)
        }
    };
}
shadowing!(shadowed, value);

macro_rules! with_local {
    ($name:ident, $e:expr) => {
        #[track]
        pub async fn $name(x: u32, _x: u32) -> u32 {
            let y = x + 1;
            yield_now().await;
            let _x = $e;
            y + _x
        }
    };
}
static Y: u32 = 100;
with_local!(local, Y);

macro_rules! returns {
    ($e:expr) => {
        return $e
    };
}

macro_rules! fails {
    ($e:expr) => {
        if $e > 2 {
            return Err($e);
        }
    };
}

#[track(+err)]
pub fn returns_by_macro(n: u32) -> Result<u32, u32> {
    fails!(n);
    if n == 1 {
        returns!(Ok(10));
    }
    Ok(n)
}

#[track(+err)]
pub async fn returns_by_macro_later(n: u32) -> Result<u32, u32> {
    fails!(n);
    yield_now().await;
    if n == 1 {
        returns!(Ok(10))
    }
    Ok(n)
}

macro_rules! label {
    ($label:lifetime, $body:expr) => {
        $label: loop {
            $body;
            break $label
        }
    };
}

#[track]
pub fn labels(x: &mut u32) -> u32 {
    label!('a, {
        *x += 1;
        if *x < 4 {
            continue 'a
        }
    });
    *x
}

// calls: shadowed 1, local 1, returns_by_macro 3, returns_by_macro_later 3
pub fn exercise() -> String {
    let returns = (returns_by_macro(0), returns_by_macro(1), returns_by_macro(3));
    let later = |n| block_on(returns_by_macro_later(n));
    format!("{:?} {} {:?} {:?} {}", shadowed(1, 2), block_on(local(1, 2)), returns, (later(0), later(1), later(3)), labels(&mut 1))
}
