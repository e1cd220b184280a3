//! The program that checks `policy:compact` on a card says what is wrong where there is none.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::process::Command;

#[test]
fn a_device_that_there_is_not_is_told() {
    for (name, told) in [("tpu", "say cuda or cuda:N"), ("", "say cuda or cuda:N"), ("cuda:99", "error: ")] {
        let output = Command::new(env!("CARGO_BIN_EXE_compact-check")).arg(name).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("error: ") && said.contains(told), "{said}");
    }
}
