//! shape: 135
//! title: clippy's lints about parameters, receivers and results
//! lost: clippy::boxed_local
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_value
use shape_support::{block_on, yield_now};
use std::cell::Cell;
use std::collections::HashMap;

#[track]
pub fn by_value(x: Vec<u32>, y: String) -> usize {
    x.len() + y.len()
}

#[track]
pub fn by_reference(x: &u32, y: &Vec<u32>, z: &String, w: &Box<u32>) -> usize {
    *x as usize + y.len() + z.len() + **w as usize
}

#[track]
pub fn by_exclusive_reference(x: &mut Vec<u32>, y: &mut u32) -> usize {
    x.len() + *y as usize
}

#[track]
pub fn boxed(x: Box<u32>) -> u32 {
    *x + 1
}

#[track]
pub fn options(x: Option<Option<u32>>, y: &Option<String>) -> Option<u32> {
    if y.is_none() { None } else { x? }
}

#[track]
pub fn hasher(x: &HashMap<u32, u32>) -> usize {
    x.len()
}

#[track(+err)]
pub fn wrapped(x: u32) -> Result<u32, String> {
    Ok(x + 1)
}

#[track]
pub fn wrapped_option(x: u32) -> Option<u32> {
    Some(x + 1)
}

#[track(+err)]
pub fn unit_error(x: u32) -> Result<u32, ()> {
    if x == 0 { Err(()) } else { Ok(x) }
}

#[track]
pub fn explicit_lifetimes<'a>(x: &'a str) -> &'a str {
    x
}

#[track]
pub fn extra_lifetimes<'a, T>(x: u32) -> u32 {
    x
}

#[track]
pub fn needless_generic<T: Into<u32>>(x: T) -> u32 {
    x.into()
}

#[track]
pub fn in_parameters(x: impl Into<u32>) -> u32 {
    x.into()
}

#[track]
pub fn recursion(x: u32, only: u32) -> u32 {
    if x == 0 { 0 } else { recursion(x - 1, only) }
}

#[track]
pub fn underscores(_used: u32, _unused: u32) -> u32 {
    _used + 1
}

#[track]
pub fn box_result() -> Box<u32> {
    Box::new(1)
}

#[track]
pub fn unit_result() -> () {}

#[track(+err)]
pub async fn later(x: Vec<u32>, y: &Vec<u32>, z: &u32, mut w: Box<u32>) -> Result<usize, String> {
    yield_now().await;
    *w += 1;
    Ok(x.len() + y.len() + *z as usize)
}

#[derive(Clone)]
pub struct S(Cell<u32>, u32);

impl S {
    #[track]
    pub fn new(x: u32) -> Option<Self> {
        Some(S(Cell::new(x), x))
    }
    #[track]
    pub fn unused_self(&self) -> u32 {
        1
    }
    #[track]
    pub fn to_owned_value(self) -> u32 {
        self.1
    }
    #[track]
    pub fn into_value(&self) -> u32 {
        self.1
    }
    #[track]
    pub fn is_positive(&mut self) -> bool {
        self.1 > 0
    }
    #[track]
    pub fn add(self, other: S) -> u32 {
        self.1 + other.1
    }
    #[track]
    pub fn to_string(&self) -> String {
        self.1.to_string()
    }
    #[track]
    pub fn mut_from_ref(&self) -> &mut u32 {
        Box::leak(Box::new(self.1))
    }
    #[track]
    pub fn consumed(self: Box<Self>) -> u32 {
        self.1
    }
    #[track(+err)]
    pub fn wrapped_method(&self) -> Result<u32, String> {
        Ok(self.1)
    }
}

pub mod inner {
    #[track]
    pub(crate) fn redundant() -> u32 {
        1
    }
}

// calls: recursion 3, into_value 1
pub fn exercise() -> String {
    unit_result();
    let a = (by_value(vec![], String::new()), by_reference(&1, &vec![], &String::new(), &Box::new(2)), by_exclusive_reference(&mut vec![], &mut 3));
    let b = (boxed(Box::new(1)), options(None, &None), hasher(&HashMap::new()), wrapped(1), wrapped_option(2), unit_error(0));
    let c = (explicit_lifetimes("x"), extra_lifetimes::<u32>(1), needless_generic(2_u8), in_parameters(3_u8), recursion(2, 1), underscores(1, 2));
    let d = (box_result(), block_on(later(vec![], &vec![], &1, Box::new(2))), inner::redundant());
    let mut s = S::new(4).unwrap();
    let e = (s.unused_self(), s.clone().to_owned_value(), s.into_value(), s.is_positive(), s.clone().add(s.clone()), s.to_string());
    format!("{:?} {:?} {:?} {:?} {:?} {} {} {:?}", a, b, c, d, e, s.mut_from_ref(), Box::new(s.clone()).consumed(), s.wrapped_method())
}
