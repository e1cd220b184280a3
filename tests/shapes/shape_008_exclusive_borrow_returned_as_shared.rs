//! shape: 8
//! title: an exclusive borrow returned as a shared one
//! lost: clippy::missing_const_for_fn

#[track(+err)]
pub fn shared(x: &mut u8) -> Result<&u8, String> {
    Ok(x)
}

#[track(+err)]
pub async fn later(x: &mut u8) -> Result<&u8, String> {
    shape_support::yield_now().await;
    Ok(x)
}

#[track(+err)]
pub fn early(x: &mut [u8]) -> Result<&u8, String> {
    if let [first, ..] = x {
        return Ok(first);
    }
    Err("empty".to_owned())
}

#[track]
pub fn no_result(x: &mut u8) -> &u8 {
    x
}

// calls: early 2
pub fn exercise() -> String {
    let f: fn(&mut u8) -> Result<&u8, String> = shared;
    let (mut a, mut b) = (1, 2);
    let later = shape_support::block_on(shape_support::send(later(&mut b)));
    format!("{:?} {:?} {:?} {:?} {}", f(&mut a), later, early(&mut [3]), early(&mut []), no_result(&mut 5))
}
