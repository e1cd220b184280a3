//! shape: 107
//! title: `if let` chains
//! editions: 2024, chains of `let` are of edition 2024
use shape_support::{block_on, yield_now};

#[track(+err)]
pub fn sync(x: Option<&str>) -> Result<u32, String> {
    if let Some(text) = x
        && let Ok(n) = text.parse::<u32>()
        && n > 1
    {
        return Ok(n);
    }
    Err("no".to_owned())
}

#[track(+err)]
pub async fn later(x: Option<&str>) -> Result<u32, String> {
    while let Some(text) = x
        && text.len() > 1
    {
        yield_now().await;
        if let Ok(n) = text.parse::<u32>()
            && n > 1
        {
            return Ok(n);
        } else {
            break;
        }
    }
    Err("no".to_owned())
}

// calls: sync 2, later 2
pub fn exercise() -> String {
    format!("{:?} {:?} {:?} {:?}", sync(Some("12")), sync(Some("1")), block_on(later(Some("12"))), block_on(later(None)))
}
