//! shape: 170
//! title: words that other editions reserve, as names
//! editions: 2018 2021, `gen` is a keyword of edition 2024
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
pub fn gen(gen: u32) -> u32 {
    gen + 1
}

pub struct Rng(u32);

impl Rng {
    #[track(+err)]
    pub fn gen(&mut self) -> Result<u32, u32> {
        self.0 += 1;
        Ok(self.0)
    }

    #[track]
    pub async fn union(self, auto: u32, default: u32, raw: u32, safe: u32) -> u32 {
        yield_now().await;
        self.0 + auto + default + raw + safe
    }
}

pub fn exercise() -> String {
    format!("{} {:?} {}", gen(1), Rng(2).gen(), block_on(Rng(3).union(1, 2, 3, 4)))
}
