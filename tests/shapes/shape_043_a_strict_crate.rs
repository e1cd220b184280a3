//! shape: 43
//! title: a crate that denies what others only warn of
//! lost: clippy::missing_const_for_fn
#![deny(missing_docs, unsafe_code, single_use_lifetimes, elided_lifetimes_in_paths, unused_qualifications)]
#![deny(let_underscore_drop, rust_2018_idioms, rust_2021_compatibility, rust_2024_compatibility, unreachable_pub)]
#![deny(trivial_casts, trivial_numeric_casts, unused_lifetimes, unused_import_braces, unused_results, unstable_features)]
#![deny(missing_debug_implementations, missing_copy_implementations, unreachable_code, unused, non_ascii_idents)]
#![deny(absolute_paths_not_starting_with_crate, keyword_idents, macro_use_extern_crate, variant_size_differences)]

use shape_support::{block_on, yield_now};

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value(u32);

impl Value {
    /// Takes it.
    #[track(+err)]
    pub fn taken(self, more: &[Self], (a, _): (u32, u32)) -> Result<Self, String> {
        let last = more.last().ok_or_else(|| "none".to_owned())?;
        Ok(Self(self.0 + last.0 + a))
    }

    /// Borrows it.
    #[track]
    pub fn borrowed<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.0 > other.0 { self } else { other }
    }

    /// Waits for it.
    #[track(+err)]
    pub async fn later(&self, text: &str) -> Result<Self, String> {
        yield_now().await;
        if text.is_empty() {
            return Err(text.to_owned());
        }
        Ok(Self(self.0 + 1))
    }
}

/// Adds.
#[track(fields(a = a))]
pub fn sum(a: u32, b: &u32, mut c: u32) -> u32 {
    c += 1;
    a + *b + c
}

/// Nothing.
#[track]
pub fn nothing<T>(_: T) {}

/// All.
// calls: taken 2
pub fn exercise() -> String {
    nothing(1);
    let taken = (Value(1).taken(&[Value(2)], (3, 4)), Value(1).taken(&[], (3, 4)));
    let later = block_on(Value(1).later("x"));
    format!("{:?} {:?} {:?} {}", taken, later, Value(1).borrowed(&Value(2)), sum(1, &2, 3))
}
