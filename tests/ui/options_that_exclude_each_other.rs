//! Only one of two options that answer the same question.
use memtrack::{CachingAllocator, track_memory};

#[track_memory(device = a, devices = [a, b])]
fn one_and_several(a: &CachingAllocator, b: &CachingAllocator) {}

#[track_memory(devices(all), device = a)]
fn all_and_one(a: &CachingAllocator) {}

#[track_memory(args(a), skip(b))]
fn list_and_exception(a: u8, b: u8) {}

#[track_memory(skip_all, args)]
fn none_and_all(a: u8) {}

#[track_memory(devices = [])]
fn no_device() {}

#[track_memory(devices(some))]
fn some_devices() {}

fn main() {}
