use memtrack::track_memory;

#[track_memory(err)]
fn a() -> u32 {
    1
}

#[track_memory(err)]
async fn b(x: u32) -> Vec<u32> {
    vec![x]
}

#[track_memory(err)]
fn c() {}

#[track_memory(err)]
fn d() -> ! {
    panic!()
}

#[track_memory(err)]
#[track_caller]
fn e() -> u32 {
    1
}

fn main() {}
