//! shape: 37
//! title: unused locals and parameters are still reported
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_value
//! lost: clippy::unused_async
use shape_support::block_on;

#[track]
pub fn parameter(x: u32) {}

#[track]
pub fn parameters(x: &str, mut y: u32, (a, b): (u32, u32), z: impl Fn()) -> u32 {
    a
}

#[track]
pub fn local() {
    let x = 1;
}

#[track]
pub async fn later(x: u32, y: &str, (a, b): (u32, u32)) -> u32 {
    let local = 1;
    a
}

#[track(+err)]
pub fn failing(x: u32, y: &str) -> Result<u32, String> {
    let local = 1;
    Ok(1)
}

#[track(+err)]
pub async fn later_failing(x: u32, y: &str) -> Result<u32, String> {
    let local = 1;
    Ok(1)
}

pub struct S;

impl S {
    #[track]
    pub fn method(self, x: u32, y: Vec<u8>) {
        let local = |unused: u32| 1;
    }
}

pub fn exercise() -> String {
    parameter(1);
    local();
    S.method(1, vec![]);
    let later = (block_on(later(1, "", (2, 3))), block_on(later_failing(1, "")));
    format!("{} {:?} {:?}", parameters("", 1, (2, 3), || ()), later, failing(1, ""))
}
