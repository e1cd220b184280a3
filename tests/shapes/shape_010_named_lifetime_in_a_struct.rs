//! shape: 10
//! title: a Result with a struct that borrows
//! lost: clippy::unused_async

use std::io;

#[derive(Debug)]
pub struct Reading<'a>(&'a mut u8);

#[track(+err)]
pub fn reading<'a>(x: &'a mut u8) -> Result<Reading<'a>, io::Error> {
    if *x == 0 {
        Err(io::ErrorKind::NotFound)?;
    }
    Ok(Reading(x))
}

#[track(+err)]
pub async fn later<'a>(x: &'a mut u8) -> Result<Reading<'a>, io::Error> {
    if *x == 0 {
        Err(io::ErrorKind::NotFound)?;
    }
    Ok(Reading(x))
}

#[track(+err)]
pub fn longer<'a: 'b, 'b>(x: &'a str, y: &'b str) -> Result<&'b str, &'a str> {
    match x.len().cmp(&y.len()) {
        std::cmp::Ordering::Less => Ok(y),
        std::cmp::Ordering::Equal => Err(x),
        std::cmp::Ordering::Greater => Ok(x),
    }
}

// calls: reading 2, later 2, longer 2
pub fn exercise() -> String {
    let text = String::from("text");
    let all = (longer("a", &text), longer("text", &text));
    let later = |mut x| shape_support::block_on(later(&mut x)).map(|reading| *reading.0).map_err(|error| error.kind());
    format!("{:?} {:?} {:?} {:?} {:?}", reading(&mut 1).unwrap(), reading(&mut 0).unwrap_err().kind(), later(1), later(0), all)
}
