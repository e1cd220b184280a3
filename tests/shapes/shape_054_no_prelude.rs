//! shape: 54
//! title: a crate without a prelude
//! lost: clippy::missing_const_for_fn
#![no_implicit_prelude]

#[track(fields(n = n))]
pub fn sync(n: u32) -> u32 {
    n
}

#[track(+err)]
pub fn failing(n: u32, _: ::std::string::String) -> ::std::result::Result<u32, u32> {
    ::std::result::Result::Err(n)
}

#[track(+err)]
pub async fn later((n, _): (u32, u8)) -> ::std::result::Result<u32, u32> {
    ::shape_support::yield_now().await;
    if n == 0 {
        return ::std::result::Result::Ok(n);
    }
    ::std::result::Result::Err(n)
}

#[track]
pub async fn never() -> ! {
    loop {
        ::shape_support::yield_now().await;
    }
}

pub struct S(::std::boxed::Box<u32>);

impl S {
    #[track]
    pub fn owned(self) -> u32 {
        *self.0
    }
}

// calls: never 0
pub fn exercise() -> ::std::string::String {
    let all = (sync(1), failing(2, ::std::string::String::new()), ::shape_support::block_on(later((3, 0))));
    ::std::format!("{:?} {}", all, S(::std::boxed::Box::new(4)).owned())
}
