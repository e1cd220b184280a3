//! The program `linked` with one line more, and a second one where the environment asks for a mode by function.

#[cfg(target_os = "linux")]
use memtrack_hook as _;

fn main() {
    #[cfg(target_os = "linux")]
    {
        if std::env::var_os("HOOK_SETS_CACHE").is_some() {
            println!("set={}", u32::from(memtrack_hook::mode(memtrack_hook::Mode::Cache).is_ok()));
        }
        memtrack_tests_linked::run();
        println!("late={}", u32::from(memtrack_hook::mode(memtrack_hook::Mode::Off) == Err(memtrack_hook::TooLate)));
        println!("load={}", u32::from(memtrack_hook::load().is_ok()));
    }
}
