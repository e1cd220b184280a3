//! shape: 64
//! title: the attribute twice, and with `#[instrument]` in both orders
//! lost: clippy::missing_const_for_fn
use shape_support::{block_on, yield_now};

#[track]
#[track(name = "inner")]
pub fn twice(x: Vec<u32>, (a, _): (u32, u32)) -> Vec<u32> {
    let _ = a;
    x
}

#[track(+err)]
#[track(+err, name = "inner")]
pub async fn twice_later(x: Vec<u32>, (a, _): (u32, u32)) -> Result<Vec<u32>, String> {
    yield_now().await;
    if a == 0 {
        return Err("zero".to_owned());
    }
    Ok(x)
}

#[track]
#[shape_support::tracing::instrument]
pub fn above(x: u32) -> u32 {
    x
}

#[shape_support::tracing::instrument]
#[track(+err)]
pub fn below(x: u32) -> Result<u32, String> {
    Err(x.to_string())
}

#[track(+err)]
#[shape_support::tracing::instrument(err)]
pub async fn above_later(x: u32) -> Result<u32, String> {
    yield_now().await;
    Err(x.to_string())
}

#[shape_support::tracing::instrument(skip_all)]
#[track(+err)]
pub async fn below_later(x: u32) -> Result<u32, String> {
    yield_now().await;
    Ok(x)
}

pub struct S(u32);

impl S {
    #[track(+err)]
    #[track(+err, name = "inner")]
    pub fn owned(self) -> Result<u32, u32> {
        Err(self.0)
    }
}

// calls: inner 3
pub fn exercise() -> String {
    let twice = (twice(vec![1], (2, 3)), block_on(twice_later(vec![1], (0, 3))), S(4).owned());
    let instrument = (above(1), below(2), block_on(above_later(3)), block_on(below_later(4)));
    format!("{:?} {:?}", twice, instrument)
}
