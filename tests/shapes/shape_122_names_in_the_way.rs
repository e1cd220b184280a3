//! shape: 122
//! title: names of the user that generated code might use
//! lost: clippy::missing_const_for_fn
#![allow(dead_code, unused_macros)]
use shape_support::{block_on, yield_now};

macro_rules! module_path { () => { compile_error!("the user's own") }; }
macro_rules! file { () => { compile_error!("the user's own") }; }
macro_rules! line { () => { compile_error!("the user's own") }; }
macro_rules! concat { () => { compile_error!("the user's own") }; }
macro_rules! stringify { () => { compile_error!("the user's own") }; }
macro_rules! span { () => { compile_error!("the user's own") }; }
macro_rules! event { () => { compile_error!("the user's own") }; }
macro_rules! track_memory { () => { compile_error!("the user's own") }; }

pub const NAME: &str = "mine";
pub static SITE: &str = "mine";
pub fn drop(_: u32) {}
pub fn span() {}
pub fn enabled() -> bool { false }
pub fn value() {}
pub fn display() {}
pub fn debug() {}

#[track(+err, fields(debug = debug, display = %display, level = level))]
pub fn sync(debug: u32, display: u32, level: &str) -> Result<u32, u32> {
    let span = 1;
    let enabled = 2;
    let memtrack = 3;
    let (value, target, Level) = (4, 5, 6);
    if level.is_empty() {
        return Err(value);
    }
    Ok(debug + display + span + enabled + memtrack + value + target + Level)
}

#[track(+err)]
pub async fn later(future: u32, context: u32, body: u32, __private: u32) -> Result<u32, u32> {
    let poll = future + context;
    yield_now().await;
    Ok(poll + body + __private)
}

pub mod shadowed {
    #![allow(non_camel_case_types)]
    pub struct u8;
    pub struct usize;
    pub struct bool;
    pub fn Ok() {}

    #[track(+err)]
    pub fn inner(x: u32) -> Result<u32, u32> {
        if x == 0 { Result::Err(x) } else { Result::Ok(x) }
    }
}

// calls: sync 2
pub fn exercise() -> String {
    format!("{:?} {:?} {:?} {:?}", sync(1, 2, "x"), sync(1, 2, ""), block_on(later(1, 2, 3, 4)), shadowed::inner(1))
}
