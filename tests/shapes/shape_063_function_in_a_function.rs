//! shape: 63
//! title: a function in a function
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unnecessary_wraps
//! lost: clippy::unused_self
use shape_support::{block_on, yield_now};

#[track]
pub fn outer() -> u32 {
    #[track]
    fn inner() -> u32 {
        2
    }
    inner() + 1
}

#[track(+err)]
pub async fn outer_later() -> Result<u32, u32> {
    #[track(+err)]
    async fn inner_later(n: u32) -> Result<u32, u32> {
        yield_now().await;
        if n == 0 {
            return Err(n);
        }
        Ok(n)
    }
    struct Local;
    impl Local {
        #[track(+err)]
        fn method(self) -> Result<u32, u32> {
            Ok(1)
        }
    }
    Ok(inner_later(1).await? + Local.method()? + inner_later(0).await?)
}

// calls: inner_later 2
pub fn exercise() -> String {
    format!("{} {:?}", outer(), block_on(outer_later()))
}
