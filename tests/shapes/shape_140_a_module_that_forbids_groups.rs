//! shape: 140
//! title: a module that forbids groups of lints
//! lost: clippy::missing_const_for_fn

/// A strict module.
pub mod strict {
    #![forbid(unused, clippy::style, clippy::complexity, clippy::correctness, clippy::perf, clippy::pedantic)]
    #![forbid(nonstandard_style, rust_2018_idioms, let_underscore, keyword_idents)]
    use shape_support::yield_now;

    pub struct Value(Vec<u32>);

    impl Value {
        #[must_use]
        pub const fn new(numbers: Vec<u32>) -> Self {
            Self(numbers)
        }

        #[track]
        #[must_use = "it is the shape"]
        pub fn taken(self, more: &[u32], (a, _): (usize, u32)) -> usize {
            if more.is_empty() {
                return a;
            }
            self.0.len() + a
        }
    }

    #[track]
    pub async fn later(mut a: Vec<u32>) -> Vec<u32> {
        yield_now().await;
        a.push(1);
        a
    }

    #[track]
    #[must_use]
    pub fn plain(text: &str, n: u32) -> usize {
        if n == 0 { 0 } else { text.len() }
    }

    #[track(+err)]
    /// Fails.
    ///
    /// # Errors
    ///
    /// When there is nothing.
    pub fn failing(text: String) -> Result<String, u8> {
        if text.is_empty() { Err(1) } else { Ok(text) }
    }
}

// calls: taken 2
#[must_use]
pub fn exercise() -> String {
    let value = || strict::Value::new(vec![1]);
    let taken = (value().taken(&[1], (2, 3)), value().taken(&[], (2, 3)));
    format!("{taken:?} {:?} {}", shape_support::block_on(strict::later(vec![])), strict::plain("abc", 1)) + &strict::failing("x".to_owned()).unwrap_or_default()
}
