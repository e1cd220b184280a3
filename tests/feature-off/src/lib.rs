//! Holds no code: see the tests.
