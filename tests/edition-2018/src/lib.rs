//! Holds no code: see the tests named in `Cargo.toml`.
