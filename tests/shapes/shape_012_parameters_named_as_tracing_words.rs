//! shape: 12
//! title: parameters named as words of tracing
//! lost: clippy::missing_const_for_fn

use shape_support::Opaque;

#[track]
pub fn words(display: u32, debug: &Opaque) -> u32 {
    display + debug.0
}

#[track(+err, fields(display = display, value = true))]
pub fn more(display: u32, level: u32, target: u32, name: u32, fields: u32, parent: u32) -> Result<u32, Opaque> {
    Ok(display + level + target + name + fields + parent)
}

#[track(+err)]
pub async fn later(message: u32, error: u32, err: u32, ret: u32, skip: u32, self_: u32) -> Result<u32, Opaque> {
    shape_support::yield_now().await;
    Ok(message + error + err + ret + skip + self_)
}

pub fn exercise() -> String {
    let more = more(1, 2, 3, 4, 5, 6).map_err(|_| ());
    let later = shape_support::block_on(later(1, 2, 3, 4, 5, 7)).map_err(|_| ());
    format!("{} {:?} {:?}", words(1, &Opaque(2)), more, later)
}
