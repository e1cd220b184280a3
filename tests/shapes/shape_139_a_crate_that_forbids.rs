//! shape: 139
//! title: a crate that forbids lints, alone and in groups
//! lost: clippy::needless_pass_by_value
#![forbid(unsafe_code, unused_must_use, unused_variables, unused_mut, unused_assignments, dead_code, missing_docs)]
#![forbid(unreachable_code, unused_imports, unused_braces, unused_parens, non_snake_case, unused_qualifications)]
#![forbid(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::needless_return, clippy::print_stdout)]
#![forbid(clippy::diverging_sub_expression, clippy::empty_loop, clippy::let_and_return, clippy::needless_lifetimes)]
#![forbid(clippy::no_effect_underscore_binding, clippy::shadow_unrelated, clippy::shadow_reuse, clippy::unit_arg)]
use shape_support::{block_on, yield_now};

/// A value.
pub struct Value(Vec<u32>);

impl Value {
    /// Takes it.
    #[track(+err)]
    pub fn taken(self, more: &[u32], (a, _): (u32, u32), _unused: String) -> Result<usize, String> {
        if more.is_empty() {
            return Err("empty".to_owned());
        }
        Ok(self.0.len() + a as usize)
    }
}

/// Waits.
#[track(+err, fields(a = ?a))]
pub async fn later(mut a: Vec<u32>, _: u32) -> Result<Vec<u32>, String> {
    yield_now().await;
    a.push(1);
    Ok(a)
}

/// Ends.
#[track]
pub fn plain(text: String) -> usize {
    text.len()
}

/// All.
// calls: taken 2
pub fn exercise() -> String {
    let value = || Value(vec![1]);
    let taken = (value().taken(&[1], (2, 3), String::new()), value().taken(&[], (2, 3), String::new()));
    format!("{:?} {:?} {}", taken, block_on(later(vec![], 1)), plain("abc".to_owned()))
}
