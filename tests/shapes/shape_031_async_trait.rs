//! shape: 31
//! title: methods under `#[async_trait]`
//! without err: `#[async_trait]` has made the method return a boxed future, and `err` is refused with that reason
use shape_support::{async_trait, block_on, yield_now};

#[async_trait::async_trait]
pub trait Load {
    async fn load(&self, n: u32) -> u32;
    async fn consume(self: Box<Self>) -> u32;

    #[track]
    async fn provided(&self, text: &str) -> usize {
        yield_now().await;
        text.len()
    }
}

pub struct Loader(u32);

#[async_trait::async_trait]
impl Load for Loader {
    #[track]
    async fn load(&self, n: u32) -> u32 {
        yield_now().await;
        self.0 + n
    }

    #[track]
    async fn consume(self: Box<Self>) -> u32 {
        self.0
    }
}

pub fn exercise() -> String {
    let loader: Box<dyn Load> = Box::new(Loader(1));
    let all = (block_on(loader.load(2)), block_on(loader.provided("abc")), block_on(loader.consume()));
    format!("{:?}", all)
}
