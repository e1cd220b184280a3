//! shape: 131
//! title: clippy's lints about expressions and statements
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_value
use shape_support::{block_on, yield_now};
use std::sync::Mutex;

pub fn takes(_: &str) {}
pub fn unit(_: ()) {}

#[track]
pub fn borrows(x: &String, y: Vec<u32>) -> usize {
    takes(&x);
    let copy = y.clone();
    let text = x.to_string().clone();
    let z = &y;
    takes(&text);
    copy.len() + (&z).len()
}

#[track]
pub fn units(x: &Mutex<u32>) {
    let nothing = unit(());
    unit(drop(x));
    nothing
}

#[track(+err)]
pub fn results(x: Option<u32>, y: Result<u32, String>) -> Result<u32, String> {
    let value = match x {
        Some(n) => n,
        None => return Err("none".to_owned()),
    };
    let other = if let Ok(n) = y { n } else { return y };
    let first = x.unwrap();
    let second = x.expect("some");
    if x.is_some() {
        let third = x.unwrap();
        return Ok(third + first + second);
    } else {
        return Ok(value + other);
    }
}

#[track]
pub fn loops(x: &[u32]) -> u32 {
    let mut sum = 0;
    for i in 0..x.len() {
        sum = sum + x[i];
    }
    let mut iterator = x.iter();
    while let Some(n) = iterator.next() {
        sum += *n;
    }
    for (_, n) in x.iter().enumerate() {
        sum += n;
    }
    sum
}

#[track]
pub fn booleans(x: bool, y: u32) -> bool {
    if x == true {
        return !(y == 1);
    }
    if y > 1 { true } else { false }
}

#[track]
pub fn strings(x: &str, y: u32) -> String {
    let mut s = String::new();
    s.push_str("a");
    s = s + x;
    s += &format!("{}", y);
    let t = x.to_string();
    let u = format!("constant");
    let len = t.len() == 0;
    s.extend(u.chars().into_iter().filter(|_| len));
    return s;
}

#[track]
pub fn matches(x: Option<u32>) -> u32 {
    match x {
        Some(n) => n,
        _ => {
            let y = 1;
            y
        }
    }
}

#[track(+err)]
pub async fn later(x: &Mutex<u32>, y: Option<&str>) -> Result<usize, String> {
    let text = y.map(|s| s.to_string()).unwrap_or(String::new());
    let guard = x.lock().unwrap();
    let n = *guard as usize;
    yield_now().await;
    takes(&&text);
    let z = Box::new(1_u64) as Box<u64>;
    std::mem::drop(guard);
    if *z as u32 as usize == 0 { Err(text) } else { Ok(n + text.len()) }
}

#[track]
pub fn casts(x: u64, y: f64, z: i32) -> u32 {
    let a = x as u32;
    let b = y as u32;
    let c = z as u32;
    let d = 1000000;
    a + b + c + d
}

#[track]
pub fn significant_drop(x: &Mutex<Vec<u32>>) -> usize {
    let guard = x.lock().unwrap();
    let n = guard.len();
    let m = n + 1;
    let o = m * 2;
    o
}

#[track]
pub fn semicolons(x: &mut Vec<u32>) {
    x.push(1);
    x.clear()
}

#[track]
pub fn panics(x: &[u32], y: Option<u32>) -> u32 {
    if x.is_empty() {
        panic!("empty");
    }
    let n = y.unwrap();
    assert!(n > 0);
    debug_assert!(n > 1, "small");
    x[0] / n
}

pub fn exercise() -> String {
    units(&Mutex::new(1));
    let mut v = vec![];
    semicolons(&mut v);
    let a = (borrows(&"x".to_owned(), vec![1]), results(Some(1), Ok(2)), loops(&[1, 2]), booleans(true, 1), strings("x", 1));
    let b = (matches(None), block_on(later(&Mutex::new(1), Some("a"))), casts(1, 2.0, 3), significant_drop(&Mutex::new(vec![])));
    format!("{:?} {:?} {}", a, b, panics(&[6], Some(3)))
}
