//! shape: 129
//! title: rustc's own lints in bodies and signatures
//! lost: clippy::missing_const_for_fn
//! lost: clippy::needless_pass_by_value
//! lost: clippy::unused_async
use shape_support::{block_on, yield_now};
use std::collections::HashMap;

#[track]
pub fn badlyNamed(badArgument: u32) -> u32 {
    let BadLocal = badArgument;
    BadLocal
}

#[track]
pub fn unused_parens(x: u32) -> u32 {
    if (x > 1) {
        return (x);
    }
    let y = (x + 1);
    y
}

#[track(+err)]
pub fn redundant_semicolons(x: u32) -> Result<u32, u32> {
    let y = x;;
    while true {
        if y > 0 {
            break;
        }
        return Err(y);
    }
    Ok(y)
}

#[track]
pub async fn unused_async_parts(x: u32) -> u32 {
    yield_now();
    let mut y = 1;
    let closure = |z: u32| 2;
    unused_labels(x);
    x
}

#[track]
pub fn unused_labels(x: u32) -> u32 {
    'label: loop {
        break;
    }
    x
}

#[track(+err)]
pub fn unused_items(x: u32) -> Result<u32, ()> {
    use std::collections::BTreeMap;
    const UNUSED: u32 = 1;
    fn unused() {}
    struct Unused;
    #[derive(Debug)]
    enum Partly {
        Used,
        Unused,
    }
    macro_rules! unused {
        () => {};
    }
    let _ = format!("{:?}", Partly::Used);
    Ok(x)
}

#[track]
pub fn arithmetic(x: u8) -> bool {
    let y = x as u8;
    x >= 0 && y == x
}

#[track]
pub fn path_statements(x: u32, y: &HashMap<u32, u32>) {
    x;
    x == 1;
    y.get(&x);
    let _ = y;
    drop(&x);
}

#[track(+err)]
pub async fn let_underscores(x: std::sync::Mutex<Vec<u8>>) -> Result<(), String> {
    let _ = x.lock();
    let _ = String::from("a");
    let _: u8;
    Ok(())
}

#[track]
pub fn casts(x: &u32) -> *const u32 {
    let pointer = x as *const u32;
    pointer as *const u32
}

#[track]
pub fn dead_stores(mut x: u32, y: &mut u32) -> u32 {
    let mut z = x;
    z = 3;
    *y = z;
    x += 1;
    z = 4;
    1
}

#[track(+err)]
pub fn shadowed_and_unused(x: Vec<u32>, y: u32) -> Result<u32, String> {
    let x = 1;
    let y = y;
    match x {
        1 => Ok(1),
        n => Ok(2),
        _ => Ok(3),
    }
}

#[track]
pub fn lifetimes<'a, 'b: 'a>(x: &'a str, y: &'b str) -> Vec<&'a str> {
    let all: Vec<&'a str> = vec![x, y];
    all
}

#[track]
pub fn elided(x: std::cell::Ref<u32>) -> u32 {
    *x
}

// calls: unused_labels 2
pub fn exercise() -> String {
    path_statements(1, &HashMap::new());
    let a = (badlyNamed(1), unused_parens(2), redundant_semicolons(3), block_on(unused_async_parts(4)), unused_labels(5));
    let b = (unused_items(1), arithmetic(2), block_on(let_underscores(Default::default())), casts(&3).is_null());
    let c = (dead_stores(1, &mut 2), shadowed_and_unused(vec![], 1), lifetimes("a", "b"), elided(std::cell::RefCell::new(6).borrow()));
    format!("{:?} {:?} {:?}", a, b, c)
}
