//! The program `linked` with one line more, and with what the first argument asks for besides.

#[cfg(target_os = "linux")]
use memtrack_hook as _;

#[cfg(target_os = "linux")]
fn main() {
    use memtrack_hook::{Mode, TooLate};

    if std::env::var_os("HOOK_SETS_CACHE").is_some() {
        println!("set={}", u32::from(memtrack_hook::mode(Mode::Cache).is_ok()));
    }
    if std::env::var_os("PROGRAM_LISTENS").is_some() {
        listen();
    }
    if std::env::var_os("PROGRAM_RUNS_OUT").is_some() {
        memtrack_tests_linked::run_out();
    } else {
        memtrack_tests_linked::run();
    }
    println!("late={}", u32::from(memtrack_hook::mode(Mode::Off) == Err(TooLate)));
    println!("load={}", u32::from(memtrack_hook::load().is_ok()));
    let is_none = tracing::dispatcher::get_default(|current| current.is::<tracing::subscriber::NoSubscriber>());
    println!("subscribers={}", u32::from(!is_none));
}

/// The program has a subscriber of its own, which prints what it hears of memtrack's.
#[cfg(target_os = "linux")]
fn listen() {
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;

    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::WARN)).init();
}

#[cfg(not(target_os = "linux"))]
fn main() {}
