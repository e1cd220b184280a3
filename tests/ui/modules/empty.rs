//! A module that holds nothing.
