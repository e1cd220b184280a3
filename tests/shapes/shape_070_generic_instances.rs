//! shape: 70
//! title: several instances of a generic function
use shape_support::{block_on, yield_now};
use std::fmt::Debug;

#[track]
pub fn sync<T: Debug>(x: T) -> String {
    format!("{:?}", x)
}

#[track(+err)]
pub async fn later<T: Debug + Default>(x: T) -> Result<T, String> {
    yield_now().await;
    let text = format!("{:?}", x);
    if text == "0" { Ok(x) } else { Err(text) }
}

pub struct Own<T>(T);

impl<T: Debug> Own<T> {
    #[track(+err)]
    pub fn owned<U: From<T>>(self) -> Result<U, T> {
        Ok(self.0.into())
    }
}

// calls: sync 2, later 2, owned 2
pub fn exercise() -> String {
    let later = (block_on(later(0)), block_on(later("a")));
    let owned = (Own(1_u8).owned::<u32>(), Own("a").owned::<String>());
    format!("{} {} {:?} {:?}", sync(1), sync("a"), later, owned)
}
