//! shape: 59
//! title: lints of macros in the body are still reported
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
use shape_support::block_on;

#[track]
pub fn prints() {
    println!("");
}

#[track]
pub async fn prints_later() {
    println!("x");
    eprintln!("y");
}

#[track(+err)]
pub fn fails(x: Option<u32>) -> Result<u32, String> {
    if x.is_none() {
        return Err(format!("none"));
    }
    print!("z\n");
    assert!(true);
    assert_eq!(x.is_some(), true);
    x.ok_or_else(|| unreachable!())
}

#[track]
pub fn tail() -> Vec<u32> {
    vec![]
}

#[track]
pub fn panics() {
    todo!()
}

pub struct S;

impl S {
    #[track]
    pub fn owned(self) {
        println!("{}", "literal");
    }
}

// calls: fails 1, prints 0, prints_later 0, panics 0, owned 0
pub fn exercise() -> String {
    let _ = (prints as fn(), prints_later(), panics as fn(), S::owned as fn(S));
    let _ = block_on(async {});
    format!("{:?} {:?}", fails(None), tail())
}
