//! A CUDA driver library for tests.
