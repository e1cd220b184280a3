//! What several of memtrack's integration tests use: the checks that every device passes ([`device_list`]), streams that
//! can be held ([`held_stream`]), the handle to the mock CUDA driver ([`mock`]), and a slow allocator to compare with
//! ([`reference_allocator`]).

pub mod device_list;
pub mod held_stream;
#[cfg(target_os = "linux")]
pub mod mock;
pub mod reference_allocator;
pub mod unused;
