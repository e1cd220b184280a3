use memtrack::track_memory;

#[track_memory]
#[unsafe(naked)]
extern "C" fn returns() {
    core::arch::naked_asm!("ret")
}

fn main() {}
