//! shape: 181
//! title: the attribute on a trait, its implementation, and `#[async_trait]`
use shape_support::{async_trait, block_on, yield_now};

#[track(+err)]
pub trait Shape {
    const K: u32;
    type Output;

    fn required(&self) -> Result<Self::Output, String>;

    fn provided(&self) -> u32 {
        Self::K + 1
    }
}

pub struct S(u32);

#[track(+err)]
impl Shape for S {
    const K: u32 = 2;
    type Output = u32;

    fn required(&self) -> Result<u32, String> {
        if self.0 == 0 {
            return Err("zero".to_owned());
        }
        Ok(self.0)
    }
}

#[async_trait::async_trait]
pub trait Load {
    async fn load(&self, n: u32) -> Result<u32, String>;
    async fn size(&self) -> u32;
}

#[track(+err)]
#[async_trait::async_trait]
impl Load for S {
    async fn load(&self, n: u32) -> Result<u32, String> {
        yield_now().await;
        if n == 0 { Err(n.to_string()) } else { Ok(self.0 + n) }
    }

    async fn size(&self) -> u32 {
        yield_now().await;
        self.0
    }
}

pub struct T;

#[async_trait::async_trait]
#[track(+err)]
impl Load for T {
    async fn load(&self, n: u32) -> Result<u32, String> {
        yield_now().await;
        Ok(n)
    }

    async fn size(&self) -> u32 {
        3
    }
}

// calls: S::required 2, Shape::provided 1, S::load 2, S::size 1, T::load 1, T::size 1
pub fn exercise() -> String {
    let sync = (S(0).required(), S(1).required(), S(2).provided());
    let later = (block_on(S(1).load(0)), block_on(S(1).load(2)), block_on(S(4).size()));
    format!("{:?} {:?} {:?} {}", sync, later, block_on(T.load(5)), block_on(T.size()))
}
