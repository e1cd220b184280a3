//! The program itself, on the CPU, with a model small enough for that.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

const SMALL: [&str; 14] = [
    "--layers",
    "2",
    "--width",
    "32",
    "--heads",
    "2",
    "--context",
    "32",
    "--batch-size",
    "4",
    "--warm-up",
    "1",
    "--generate",
    "10",
];

fn run(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_candle-gpt")).args(SMALL).args(options).output().unwrap()
}

fn printed(options: &[&str]) -> String {
    let output = run(options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The losses as they are printed.
fn losses(json: &str) -> Vec<String> {
    let begin = json.find(r#""losses":["#).unwrap() + 10;
    let end = begin + json[begin..].find(']').unwrap();
    json[begin..end].split(',').map(str::to_owned).collect()
}

#[test]
fn a_run_repeats_to_the_last_digit_whether_it_is_measured_or_not() {
    let first = losses(&printed(&["--steps", "4", "--json"]));
    assert_eq!(first.len(), 4);
    assert_eq!(first, losses(&printed(&["--steps", "4", "--json"])));
    assert_eq!(first, losses(&printed(&["--steps", "4", "--json", "--no-tracking"])));
    assert_ne!(first, losses(&printed(&["--steps", "4", "--json", "--seed", "1"])));
}

#[test]
fn the_model_learns_from_the_text() {
    let losses = losses(&printed(&["--steps", "60", "--json", "--learning-rate", "0.003"]));
    let [first, last] = [&losses[0], &losses[59]].map(|loss| loss.parse::<f64>().unwrap());
    // Without knowing anything a byte costs ln 256.
    assert!((first - 256_f64.ln()).abs() < 0.1, "{first}");
    assert!(last < 4.0, "{last}");
}

#[test]
fn steps_of_several_lengths_run() {
    let losses = losses(&printed(&["--steps", "4", "--json", "--vary-context"]));
    assert_eq!(losses.len(), 4);
}

#[test]
fn without_a_pool_the_program_says_so_and_trains() {
    let text = printed(&["--steps", "4", "--epoch-steps", "2"]);
    assert!(text.starts_with("memtrack measures nothing here"), "{text}");
    assert!(text.contains("step 2/4: loss ") && text.contains("step 4/4: loss "), "{text}");
    assert!(text.contains("it writes: ") && text.contains("a step takes "), "{text}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_is_refused_by_a_build_without_it() {
    let output = run(&["--device", "cuda", "--steps", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("built without the feature `cuda`"));
}
