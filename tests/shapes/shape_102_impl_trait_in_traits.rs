//! shape: 102
//! title: `impl Trait` in the return types of trait methods
use shape_support::{block_on, yield_now};
use std::fmt::Display;
use std::future::Future;

pub trait Source {
    fn items(&self) -> impl Iterator<Item = u32>;
    fn later(&self, n: u32) -> impl Future<Output = u32> + Send;
    fn perhaps(&self, n: u32) -> Result<impl Display, impl Display>;

    #[track]
    fn provided(&self) -> impl Iterator<Item = u32> {
        self.items().map(|n| n + 1)
    }
}

pub struct Numbers(Vec<u32>);

impl Source for Numbers {
    #[track]
    fn items(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    #[track]
    #[allow(refining_impl_trait)]
    async fn later(&self, n: u32) -> u32 {
        let first = self.0.first().copied();
        yield_now().await;
        first.unwrap_or(n)
    }

    #[track(+err)]
    fn perhaps(&self, n: u32) -> Result<impl Display, impl Display> {
        if n == 0 {
            return Err("zero");
        }
        Ok(self.0.len())
    }
}

// calls: items 2, perhaps 2
pub fn exercise() -> String {
    let numbers = Numbers(vec![1, 2]);
    let sums = (numbers.items().sum::<u32>(), numbers.provided().sum::<u32>(), block_on(numbers.later(3)));
    let text = |n| numbers.perhaps(n).map_or_else(|e| e.to_string(), |d| d.to_string());
    format!("{:?} {} {}", sums, text(0), text(1))
}
