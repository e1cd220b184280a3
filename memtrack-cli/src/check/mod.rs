//! `memtrack check`: the memory of GPUs against limits, as an exit status and one line.
//!
//! Here live the limits (`options`), what a look says of each (`limits`), and the verdict over all of them. The looking is
//! `memtrack smi`'s.

mod limits;
mod options;

use std::collections::BTreeSet;
use std::io::Write;
use std::thread;

pub use limits::{Finding, Limit, Outcome};
use memtrack::plain_text::{counted, shown};
pub use options::{CheckOptions, Share};
use serde_json::json;

use crate::command::{FAILED, reader_is_gone};
use crate::smi::{Look, LookError, Machine, UNKNOWN};

/// A limit is exceeded.
const EXCEEDED: u8 = 1;

/// The form of the JSON object, raised when a key changes its meaning or goes.
const SCHEMA_VERSION: u32 = 1;

/// Runs `memtrack check`; its exit status.
pub fn run(options: &CheckOptions, output: &mut dyn Write, errors: &mut dyn Write) -> u8 {
    let verdict = match looks(options) {
        Ok((look, later)) => Verdict::over(limits::findings(options, &look, later.as_ref())),
        Err(error) => Verdict { status: UNKNOWN, reason: shown(&format!("unknown: {error}")), findings: Vec::new() },
    };
    let line = if options.json { verdict.json() } else { verdict.reason.clone() };
    match writeln!(output, "{line}").and_then(|()| output.flush()) {
        Err(error) if !reader_is_gone(&error) => {
            let _ = writeln!(errors, "memtrack: cannot write the result: {error}");
            FAILED
        }
        _ => verdict.status,
    }
}

/// One look, and for a limit of growth another one later.
fn looks(options: &CheckOptions) -> Result<(Look, Option<Look>), LookError> {
    let machine = Machine::open(&options.look)?;
    let look = machine.look()?;
    if options.max_growth.is_none() {
        return Ok((look, None));
    }
    thread::sleep(options.over);
    Ok((look, Some(machine.look()?)))
}

/// What came of all limits.
struct Verdict {
    status: u8,
    reason: String,
    findings: Vec<Finding>,
}

impl Verdict {
    /// What is exceeded counts before what cannot be told.
    fn over(findings: Vec<Finding>) -> Self {
        let of = |outcome: Outcome| findings.iter().filter(move |finding| finding.outcome == outcome);
        let told = |word: &str, mut found: Vec<&Finding>| {
            let first = found.remove(0);
            let more = if found.is_empty() { String::new() } else { format!(" (and {} more)", found.len()) };
            shown(&format!("{word}: {}{more}", first.sentence))
        };
        let exceeded: Vec<&Finding> = of(Outcome::Exceeded).collect();
        let unknown: Vec<&Finding> = of(Outcome::Unknown).collect();
        let (status, reason) = match (exceeded.is_empty(), unknown.is_empty()) {
            (false, _) => (EXCEEDED, told("exceeded", exceeded)),
            (true, false) => (UNKNOWN, told("unknown", unknown)),
            (true, true) => {
                let devices: BTreeSet<&str> = findings.iter().map(|finding| finding.device.as_str()).collect();
                let limits: BTreeSet<&str> = findings.iter().map(|finding| finding.limit.name()).collect();
                let devices = counted(devices.len() as u64, "device");
                match limits.contains(Limit::Answers.name()) {
                    true => (0, format!("ok: {devices} with figures")),
                    false => (0, format!("ok: {devices} within {}", counted(limits.len() as u64, "limit"))),
                }
            }
        };
        Self { status, reason, findings }
    }

    fn json(&self) -> String {
        let findings = self.findings.iter().map(|finding| {
            json!({
                "device": finding.device,
                "limit": finding.limit.name(),
                "outcome": finding.outcome.name(),
                "value": finding.value,
                "limit_value": finding.limit_value,
                "sentence": finding.sentence,
            })
        });
        json!({
            "schema_version": SCHEMA_VERSION,
            "status": match self.status { 0 => "ok", EXCEEDED => "exceeded", _ => "unknown" },
            "exit_status": self.status,
            "reason": self.reason,
            "findings": findings.collect::<Vec<_>>(),
        })
        .to_string()
    }
}
