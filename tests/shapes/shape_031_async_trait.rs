//! shape: 31
//! title: methods under `#[async_trait]`
use shape_support::{async_trait, block_on, send, yield_now};

#[async_trait::async_trait]
pub trait Load: Sync {
    async fn load(&self, n: u32) -> u32;
    async fn consume(self: Box<Self>) -> u32;
    async fn perhaps(&mut self, n: u32) -> Result<&mut u32, String>;

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

    #[track(+err)]
    async fn perhaps(&mut self, n: u32) -> Result<&mut u32, String> {
        yield_now().await;
        if n == 0 {
            return Err("zero".to_owned());
        }
        self.0 += n;
        Ok(&mut self.0)
    }
}

// calls: perhaps 2
pub fn exercise() -> String {
    let mut loader: Box<dyn Load> = Box::new(Loader(1));
    let perhaps = (block_on(loader.perhaps(0)).err(), block_on(send(loader.perhaps(3))).map(|n| *n));
    let all = (block_on(loader.load(2)), block_on(loader.provided("abc")), block_on(loader.consume()));
    format!("{:?} {:?}", all, perhaps)
}
