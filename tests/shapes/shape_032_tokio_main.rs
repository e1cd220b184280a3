//! shape: 32
//! title: above and below `#[tokio::main]`
//! lost: clippy::missing_panics_doc
use shape_support::tokio;

#[track]
#[tokio::main(flavor = "current_thread")]
pub async fn above(n: u32) -> u32 {
    tokio::task::yield_now().await;
    n
}

#[tokio::main(flavor = "current_thread")]
#[track(+err)]
pub async fn below(n: u32) -> Result<u32, String> {
    tokio::task::yield_now().await;
    Err(n.to_string())
}

pub fn exercise() -> String {
    format!("{} {:?}", above(1), below(2))
}
