//! shape: 30
//! title: provided and required methods, `async fn` in a trait
use shape_support::{block_on, yield_now};

pub trait Shape {
    const K: u32;

    #[track]
    fn provided(&self) -> u32 {
        Self::K + self.required()
    }

    fn required(&self) -> u32;

    #[track(+err)]
    fn consumed(self) -> Result<u32, String>
    where
        Self: Sized,
    {
        Ok(self.required())
    }

    #[track]
    fn without_receiver(n: u32) -> u32 {
        n + Self::K
    }
}

#[allow(async_fn_in_trait)]
pub trait Later {
    async fn required_later(&self) -> Result<u32, String>;

    #[track]
    async fn provided_later(&self) -> u32 {
        self.required_later().await.unwrap() + 1
    }
}

pub struct S(u32);

impl Shape for S {
    const K: u32 = 7;

    #[track]
    fn required(&self) -> u32 {
        self.0
    }
}

impl Later for S {
    #[track(+err)]
    async fn required_later(&self) -> Result<u32, String> {
        yield_now().await;
        Ok(self.0)
    }
}

// calls: required 2
pub fn exercise() -> String {
    let all = (S(1).provided(), S(2).consumed(), S::without_receiver(3));
    format!("{:?} {}", all, block_on(S(4).provided_later()))
}
