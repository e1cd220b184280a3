//! shape: 108
//! title: loops as values, and as the last expression
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn tail(limit: u32) -> u32 {
    let mut n = 0;
    loop {
        n += 1;
        if n * n > limit {
            break n;
        }
    }
}

#[track]
pub fn labelled(x: &[u32]) -> Option<usize> {
    'search: {
        for (index, n) in x.iter().enumerate() {
            if *n > 2 {
                break 'search Some(index);
            }
        }
        None
    }
}

#[track(+err)]
pub async fn later(limit: u32) -> Result<u32, u32> {
    let mut n = 0;
    let found = 'outer: loop {
        loop {
            n += 1;
            yield_now().await;
            if n > limit {
                break 'outer n;
            }
        }
    };
    loop {
        if found > 3 {
            break Err(found);
        }
        return Ok(found);
    }
}

#[track(+err)]
pub fn drained(v: &mut Vec<u32>) -> Result<(), u32> {
    while let Some(n) = v.pop() {
        if n == 0 {
            return Err(n);
        }
    }
    for n in 0..3 {
        v.push(n);
    }
    Ok(())
}

#[track]
pub fn unit(v: &mut Vec<u32>) {
    for n in 0..2 {
        v.push(n)
    }
}

// calls: labelled 2, later 2
pub fn exercise() -> String {
    let mut v = vec![1];
    unit(&mut v);
    let drained = drained(&mut v);
    let later = (block_on(later(1)), block_on(later(5)));
    format!("{} {:?} {:?} {:?} {:?} {:?}", tail(10), labelled(&[1, 3]), labelled(&[]), later, drained, v)
}
