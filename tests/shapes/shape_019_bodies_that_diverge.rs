//! shape: 19
//! title: bodies that never reach their end
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async

use shape_support::{block_on, panic_of};

#[track]
pub fn unwritten() -> u32 {
    unimplemented!()
}

#[track]
pub fn returned_from_a_loop() -> u32 {
    loop {
        return 3;
    }
}

#[track]
pub fn returned() -> u32 {
    return 3;
}

#[track]
pub fn panics() {
    panic!("told")
}

#[track]
pub async fn later_unwritten() -> u32 {
    unimplemented!()
}

#[track]
pub async fn later_returned_from_a_loop() -> u32 {
    loop {
        return 3;
    }
}

#[track(+err)]
pub fn todo() -> Result<u32, String> {
    todo!()
}

#[track(+err)]
pub fn returned_error() -> Result<u32, String> {
    return Err("told".to_owned());
}

#[track(+err)]
pub async fn later_todo() -> Result<u32, String> {
    todo!()
}

#[track(+err)]
pub fn looped() -> Result<u32, String> {
    loop {
        return Err("loop".to_owned());
    }
}

pub fn exercise() -> String {
    let sync = (panic_of(unwritten), returned_from_a_loop(), returned(), panic_of(panics));
    let later = (panic_of(|| block_on(later_unwritten())), block_on(later_returned_from_a_loop()));
    let results = (panic_of(todo), returned_error(), panic_of(|| block_on(later_todo())), looped());
    format!("{:?} {:?} {:?}", sync, later, results)
}
