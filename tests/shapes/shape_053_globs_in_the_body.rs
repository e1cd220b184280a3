//! shape: 53
//! title: a glob in the body hides the return type's name
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
use shape_support::block_on;

pub type Foo = ();
pub enum Bar {
    Foo,
}
pub mod other {
    pub struct Value;
    pub type Result = u8;
}
pub struct Value(pub u32);

#[track]
pub fn sync() -> Foo {
    use Bar::*;
    let _ = Foo;
}

#[track]
pub async fn later() -> Foo {
    use Bar::*;
    let _ = Foo;
}

#[track]
pub fn value() -> Value {
    let _unit: other::Value = {
        use other::*;
        Value
    };
    Value(1)
}

#[track(+err)]
pub fn failing() -> Result<Value, Value> {
    use other::Value as _;
    type Value = u32;
    let n: Value = 3;
    if n > 2 { Err(self::Value(n)) } else { Ok(self::Value(n)) }
}

pub fn exercise() -> String {
    sync();
    block_on(later());
    format!("{} {:?}", value().0, failing().map(|it| it.0).map_err(|it| it.0))
}
