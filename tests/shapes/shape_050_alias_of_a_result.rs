//! shape: 50
//! title: an alias of Result as return type
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
use shape_support::block_on;
use std::io;

pub type Result<T, E = io::Error> = std::result::Result<T, E>;
pub type Nothing = Result<()>;
pub type Deep<T> = Result<Result<T, u8>>;

pub mod own {
    pub type Outcome<T> = Result<T, &'static str>;
}

#[track(+err)]
pub fn sync(n: u8) -> Result<u8> {
    if n == 0 { Err(io::ErrorKind::NotFound)? }
    Ok(n)
}

#[track(+err)]
pub async fn later(n: u8) -> Result<u8, u8> {
    Err(n)
}

#[track(+err)]
pub fn nothing() -> Nothing {
    Ok(())
}

#[track(+err)]
pub fn deep(n: u8) -> Deep<u8> {
    Ok(Err(n))
}

#[track(+err)]
pub fn io_result() -> io::Result<()> {
    nothing()
}

#[track(+err)]
pub fn qualified() -> self::own::Outcome<u8> {
    Err("own")
}

// calls: sync 2, nothing 2
pub fn exercise() -> String {
    let all = (sync(0).is_err(), sync(1).unwrap(), block_on(later(2)), nothing().is_ok(), deep(3).unwrap());
    format!("{:?} {:?} {:?}", all, io_result().is_ok(), qualified())
}
