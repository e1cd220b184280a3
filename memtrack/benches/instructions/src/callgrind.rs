//! A program that runs itself under valgrind's callgrind, and how many instructions its marked parts take.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use crate::Failure;

/// Valgrind's pattern for the part of `mark` that is never inlined.
const MARK: &str = "--dump-before=*begin_to_count_anew*";

/// Valgrind writes down what was counted so far, and begins anew.
#[inline(never)]
fn begin_to_count_anew() {
    std::hint::black_box(());
}

/// In the process that is counted: runs a part whose instructions [`count`] returns.
pub fn counted(part: impl FnOnce()) {
    begin_to_count_anew();
    part();
    begin_to_count_anew();
}

/// Whether valgrind is there. Says so where it is not.
pub fn is_there() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = version.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: valgrind is not there, so nothing was counted and no limit checked");
    }
    is_there
}

/// Runs this program with these arguments under valgrind. Returns the instructions of each [`counted`] part, in order.
///
/// # Errors
///
/// When valgrind or the program fails.
pub fn count(arguments: &[&str]) -> Result<Vec<u64>, Failure> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("memtrack-instructions-{}-{run}", process::id()));
    fs::create_dir_all(&folder)?;
    let counts = count_in(&folder, arguments);
    fs::remove_dir_all(&folder)?;
    counts
}

fn count_in(folder: &Path, arguments: &[&str]) -> Result<Vec<u64>, Failure> {
    let out = folder.join("counts");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", MARK])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env::current_exe()?)
        .args(arguments)
        .output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)).into());
    }
    // The first dump holds what came before the first mark, the second one the first part, the third what came between.
    let mut counts = Vec::new();
    for dump in (2..).step_by(2) {
        let Ok(text) = fs::read_to_string(format!("{}.{dump}", out.display())) else { break };
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).ok_or("valgrind wrote no totals")?;
        counts.push(total.trim().parse()?);
    }
    Ok(counts)
}
