//! shape: 133
//! title: clippy's lints about size: lines, complexity, arguments, stack
//! gained: clippy::result_large_err in err
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_value
//! reworded: clippy::cognitive_complexity
//! reworded: clippy::large_futures
//! reworded: clippy::large_stack_frames
use shape_support::{block_on, yield_now};

#[track]
pub fn hundred_lines(n: u32) -> u32 {
    let mut total = n;
    total += 0;
    total += 1;
    total += 2;
    total += 3;
    total += 4;
    total += 5;
    total += 6;
    total += 7;
    total += 8;
    total += 9;
    total += 10;
    total += 11;
    total += 12;
    total += 13;
    total += 14;
    total += 15;
    total += 16;
    total += 17;
    total += 18;
    total += 19;
    total += 20;
    total += 21;
    total += 22;
    total += 23;
    total += 24;
    total += 25;
    total += 26;
    total += 27;
    total += 28;
    total += 29;
    total += 30;
    total += 31;
    total += 32;
    total += 33;
    total += 34;
    total += 35;
    total += 36;
    total += 37;
    total += 38;
    total += 39;
    total += 40;
    total += 41;
    total += 42;
    total += 43;
    total += 44;
    total += 45;
    total += 46;
    total += 47;
    total += 48;
    total += 49;
    total += 50;
    total += 51;
    total += 52;
    total += 53;
    total += 54;
    total += 55;
    total += 56;
    total += 57;
    total += 58;
    total += 59;
    total += 60;
    total += 61;
    total += 62;
    total += 63;
    total += 64;
    total += 65;
    total += 66;
    total += 67;
    total += 68;
    total += 69;
    total += 70;
    total += 71;
    total += 72;
    total += 73;
    total += 74;
    total += 75;
    total += 76;
    total += 77;
    total += 78;
    total += 79;
    total += 80;
    total += 81;
    total += 82;
    total += 83;
    total += 84;
    total += 85;
    total += 86;
    total += 87;
    total += 88;
    total += 89;
    total += 90;
    total += 91;
    total += 92;
    total += 93;
    total += 94;
    total += 95;
    total += 96;
    total += 97;
    total
}

#[track]
pub fn more_than_a_hundred_lines(n: u32) -> u32 {
    let mut total = n;
    total += 0;
    total += 1;
    total += 2;
    total += 3;
    total += 4;
    total += 5;
    total += 6;
    total += 7;
    total += 8;
    total += 9;
    total += 10;
    total += 11;
    total += 12;
    total += 13;
    total += 14;
    total += 15;
    total += 16;
    total += 17;
    total += 18;
    total += 19;
    total += 20;
    total += 21;
    total += 22;
    total += 23;
    total += 24;
    total += 25;
    total += 26;
    total += 27;
    total += 28;
    total += 29;
    total += 30;
    total += 31;
    total += 32;
    total += 33;
    total += 34;
    total += 35;
    total += 36;
    total += 37;
    total += 38;
    total += 39;
    total += 40;
    total += 41;
    total += 42;
    total += 43;
    total += 44;
    total += 45;
    total += 46;
    total += 47;
    total += 48;
    total += 49;
    total += 50;
    total += 51;
    total += 52;
    total += 53;
    total += 54;
    total += 55;
    total += 56;
    total += 57;
    total += 58;
    total += 59;
    total += 60;
    total += 61;
    total += 62;
    total += 63;
    total += 64;
    total += 65;
    total += 66;
    total += 67;
    total += 68;
    total += 69;
    total += 70;
    total += 71;
    total += 72;
    total += 73;
    total += 74;
    total += 75;
    total += 76;
    total += 77;
    total += 78;
    total += 79;
    total += 80;
    total += 81;
    total += 82;
    total += 83;
    total += 84;
    total += 85;
    total += 86;
    total += 87;
    total += 88;
    total += 89;
    total += 90;
    total += 91;
    total += 92;
    total += 93;
    total += 94;
    total += 95;
    total += 96;
    total += 97;
    total += 98;
    total += 99;
    total
}

#[track(+err)]
pub async fn more_than_a_hundred_lines_later(n: u32) -> Result<u32, u32> {
    let mut total = n;
    yield_now().await;
    total += 0;
    total += 1;
    total += 2;
    total += 3;
    total += 4;
    total += 5;
    total += 6;
    total += 7;
    total += 8;
    total += 9;
    total += 10;
    total += 11;
    total += 12;
    total += 13;
    total += 14;
    total += 15;
    total += 16;
    total += 17;
    total += 18;
    total += 19;
    total += 20;
    total += 21;
    total += 22;
    total += 23;
    total += 24;
    total += 25;
    total += 26;
    total += 27;
    total += 28;
    total += 29;
    total += 30;
    total += 31;
    total += 32;
    total += 33;
    total += 34;
    total += 35;
    total += 36;
    total += 37;
    total += 38;
    total += 39;
    total += 40;
    total += 41;
    total += 42;
    total += 43;
    total += 44;
    total += 45;
    total += 46;
    total += 47;
    total += 48;
    total += 49;
    total += 50;
    total += 51;
    total += 52;
    total += 53;
    total += 54;
    total += 55;
    total += 56;
    total += 57;
    total += 58;
    total += 59;
    total += 60;
    total += 61;
    total += 62;
    total += 63;
    total += 64;
    total += 65;
    total += 66;
    total += 67;
    total += 68;
    total += 69;
    total += 70;
    total += 71;
    total += 72;
    total += 73;
    total += 74;
    total += 75;
    total += 76;
    total += 77;
    total += 78;
    total += 79;
    total += 80;
    total += 81;
    total += 82;
    total += 83;
    total += 84;
    total += 85;
    total += 86;
    total += 87;
    total += 88;
    total += 89;
    total += 90;
    total += 91;
    total += 92;
    total += 93;
    total += 94;
    total += 95;
    total += 96;
    total += 97;
    total += 98;
    Ok(total)
}

#[track]
pub fn complex(n: u32) -> u32 {
    let mut total = 0;
    if n > 0 {
        if n % 2 == 0 {
            total += 0;
        }
    }
    if n > 1 {
        if n % 3 == 0 {
            total += 1;
        }
    }
    if n > 2 {
        if n % 4 == 0 {
            total += 2;
        }
    }
    if n > 3 {
        if n % 5 == 0 {
            total += 3;
        }
    }
    if n > 4 {
        if n % 6 == 0 {
            total += 4;
        }
    }
    if n > 5 {
        if n % 7 == 0 {
            total += 5;
        }
    }
    if n > 6 {
        if n % 8 == 0 {
            total += 6;
        }
    }
    if n > 7 {
        if n % 9 == 0 {
            total += 7;
        }
    }
    if n > 8 {
        if n % 10 == 0 {
            total += 8;
        }
    }
    if n > 9 {
        if n % 11 == 0 {
            total += 9;
        }
    }
    if n > 10 {
        if n % 12 == 0 {
            total += 10;
        }
    }
    if n > 11 {
        if n % 13 == 0 {
            total += 11;
        }
    }
    if n > 12 {
        if n % 14 == 0 {
            total += 12;
        }
    }
    if n > 13 {
        if n % 15 == 0 {
            total += 13;
        }
    }
    total
}

#[track]
pub fn arguments(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> u8 {
    a + b + c + d + e + f + g + h
}

#[track(+err)]
pub async fn arguments_later(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8) -> Result<u8, u8> {
    yield_now().await;
    Ok(a + b + c + d + e + f + g + h)
}

#[track]
pub fn flags(a: bool, b: bool, c: bool, d: bool) -> bool {
    a && b && c && d
}

#[track]
pub fn large_array() -> usize {
    let array = [0_u8; 600_000];
    array.len()
}

#[track]
pub fn large_by_value(x: [u64; 64]) -> u64 {
    x[0]
}

#[track(+err)]
pub fn large_error(x: u32) -> Result<u32, [u64; 32]> {
    if x == 0 { Err([0; 32]) } else { Ok(x) }
}

#[track]
#[allow(clippy::type_complexity)]
pub fn complex_type(x: Vec<Box<dyn Fn(Vec<Option<Result<u32, String>>>) -> Vec<Vec<(u32, String)>>>>) -> usize {
    x.len()
}

#[track]
pub fn other_complex_type(x: &[Box<dyn Fn(Vec<Option<Result<u32, String>>>) -> Vec<Vec<(u32, String)>>>]) -> usize {
    x.len()
}

#[track]
pub async fn large_future(x: [u8; 17_000]) -> u8 {
    yield_now().await;
    x[0]
}

#[track]
pub async fn awaits_a_large_future() -> u8 {
    large_future([1; 17_000]).await
}

pub fn exercise() -> String {
    let a = (hundred_lines(1), more_than_a_hundred_lines(2), block_on(more_than_a_hundred_lines_later(3)), complex(4));
    let b = (arguments(1, 2, 3, 4, 5, 6, 7, 8), block_on(arguments_later(1, 2, 3, 4, 5, 6, 7, 8)), flags(true, true, true, false));
    let c = (large_array(), large_by_value([1; 64]), large_error(1), complex_type(vec![]), other_complex_type(&[]));
    format!("{:?} {:?} {:?} {}", a, b, c, block_on(Box::pin(awaits_a_large_future())))
}

// calls: large_future 1
