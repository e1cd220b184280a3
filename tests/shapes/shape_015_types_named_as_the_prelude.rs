//! shape: 15
//! title: types, traits and primitives named as the prelude's
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async

#![allow(dead_code)]
use std::string::String as Text;

pub struct Option;
pub struct Some;
pub struct None;
pub struct Box;
pub struct String;
pub struct Vec;
pub struct Result;
pub trait Send {}
pub trait Sync {}
pub trait Drop {}
pub trait Fn {}
pub trait FnOnce {}
pub trait Future {}
pub trait Into {}
pub trait Clone {}
#[allow(non_camel_case_types)]
pub struct str;
#[allow(non_camel_case_types)]
pub struct bool;
#[allow(non_camel_case_types)]
pub struct i64;
#[allow(non_camel_case_types)]
pub struct usize;

#[track(fields(n = true))]
pub fn sync(_n: Option) -> Some {
    Some
}

#[track(fields(n = true))]
pub async fn later((_n, _): (Option, Box)) -> Some {
    Some
}

#[track(+err)]
pub fn failing(_: Vec) -> std::result::Result<Some, u8> {
    Err(3)
}

#[track(+err)]
pub async fn later_failing(_: Vec) -> std::result::Result<Some, u8> {
    Ok(Some)
}

pub struct Owner(Vec);

impl Owner {
    #[track]
    pub fn by_value(self) -> Vec {
        self.0
    }
}

pub fn exercise() -> Text {
    let _: Some = sync(Option);
    let _: Some = shape_support::block_on(later((Option, Box)));
    let _: Vec = Owner(Vec).by_value();
    let later = shape_support::block_on(later_failing(Vec));
    format!("{:?} {}", failing(Vec).err(), later.is_ok())
}
