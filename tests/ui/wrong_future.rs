//! The option `future` on functions whose future it cannot measure.
use memtrack::track_memory;
use std::future::Ready;

#[track_memory(future)]
async fn already_async() {}

#[track_memory(future)]
fn returns_nothing() {}

#[track_memory(future)]
fn never_returns() -> ! {
    loop {}
}

#[track_memory(future)]
fn returns_no_future() -> u32 {
    1
}

#[track_memory(future)]
fn names_its_type() -> Ready<u32> {
    std::future::ready(1)
}

#[track_memory(future = true)]
fn with_a_value() -> Ready<u32> {
    std::future::ready(1)
}

#[track_memory(err)]
fn error_of_the_call() -> impl Future<Output = Result<u32, u32>> {
    async { Ok(1) }
}

#[track_memory(future, err)]
fn error_of_no_result() -> impl Future<Output = u32> {
    async { 1 }
}

fn main() {}
