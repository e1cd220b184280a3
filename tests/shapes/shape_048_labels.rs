//! shape: 48
//! title: labels and labelled blocks
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn sync() -> u32 {
    let mut n = 0;
    'outer: loop {
        'a: loop {
            n += 1;
            if n > 3 {
                break 'outer;
            }
            if n > 1 {
                continue 'a;
            }
        }
    }
    'a: {
        if n > 0 {
            break 'a 5;
        }
        6
    }
}

#[track(+err)]
pub async fn later(limit: u32) -> Result<u32, u32> {
    let mut n = 0;
    'outer: loop {
        loop {
            n += 1;
            yield_now().await;
            if n > limit {
                break 'outer;
            }
            if n > 5 {
                return Err(n);
            }
        }
    }
    let value = 'body: {
        if n > 3 {
            break 'body Ok(n);
        }
        Err(n)
    };
    value
}

#[track(+err)]
pub fn failing<'a>(x: &'a [u32]) -> Result<&'a u32, u32> {
    'a: for n in x {
        'b: while *n > 0 {
            if *n > 1 {
                continue 'a;
            }
            if *n == 1 {
                break 'b;
            }
        }
        return Ok(n);
    }
    Err(0)
}

// calls: later 2, failing 2
pub fn exercise() -> String {
    let later = (block_on(later(3)), block_on(later(9)));
    format!("{} {:?} {:?} {:?}", sync(), later, failing(&[3, 1]), failing(&[]))
}
