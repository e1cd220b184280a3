//! What several of memtrack's integration tests use: the checks that every device passes ([`device_list`]), streams that
//! can be held ([`held_stream`]), and the handle to the mock CUDA driver ([`mock`]).

pub mod device_list;
pub mod held_stream;
#[cfg(target_os = "linux")]
pub mod mock;
pub mod unused;
