//! shape: 39
//! title: unused results, variables, assignments and code are still reported
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
//! reworded: unused_assignments
use shape_support::block_on;

#[track]
#[must_use]
pub fn must(x: u32) -> u32 {
    x
}

#[must_use = "for a reason"]
#[track(+err)]
pub async fn must_later(x: u32) -> Result<u32, String> {
    Ok(x)
}

#[track]
pub fn ignores() {
    must(1);
    "a".to_owned();
    must_later(1);
}

#[track]
pub fn mutable(mut x: u32, mut y: Vec<u8>) -> u32 {
    let mut z = 1;
    x
}

#[track]
pub async fn mutable_later(mut x: u32, mut y: Vec<u8>) -> u32 {
    let mut z = 1;
    x
}

#[track]
pub fn assigned(mut x: u32, mut y: u32) -> u32 {
    x = 4;
    let mut z = 1;
    z = x;
    y = 5;
    z
}

#[track(+err)]
pub async fn assigned_later(mut x: u32, mut y: u32) -> Result<u32, u32> {
    x = 4;
    let mut z = 1;
    z = x;
    y = 5;
    Ok(z)
}

#[track]
fn dead() {}

#[track]
async fn dead_later() {}

pub struct S;

impl S {
    #[track]
    fn dead_method(&self) {}
}

#[track(+err)]
pub fn unreachable(x: u32) -> Result<u32, u32> {
    return Err(x);
    #[allow(unused_variables)]
    let y = 1;
    Ok(2)
}

#[track]
pub async fn unreachable_later(x: u32) -> u32 {
    loop {}
    x
}

// calls: must 2, must_later 1, dead 0, dead_later 0, dead_method 0, unreachable_later 0
pub fn exercise() -> String {
    ignores();
    let later = (block_on(must_later(1)), block_on(mutable_later(2, vec![])), block_on(assigned_later(3, 4)));
    format!("{} {:?} {} {} {:?}", must(1), later, mutable(1, vec![]), assigned(1, 2), unreachable(1))
}
