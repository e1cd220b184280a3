//! What is to be written, and how it reads.

use std::fmt::Write as _;

use crate::diagnosis::{Finding, LiveGroup, json_text};
use crate::history::{Snapshot, TraceEntry};
use crate::units::Bytes;

/// So many groups of live blocks are listed.
const LISTED_COUNT: usize = 1000;

/// What is known of an out of memory. What takes time is asked for on the thread that writes.
pub(crate) struct Material {
    pub(crate) report: Report,
    pub(crate) snapshot: Box<dyn FnOnce() -> Snapshot + Send>,
    pub(crate) driver: Box<dyn FnOnce() -> String + Send>,
}

/// The figures at that moment.
pub(crate) struct Report {
    pub(crate) message: String,
    pub(crate) device: String,
    pub(crate) phase: Option<&'static str>,
    pub(crate) requested_bytes: u64,
    pub(crate) allocated_bytes: u64,
    pub(crate) reserved_bytes: u64,
    pub(crate) device_free_bytes: Option<u64>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) live: Vec<LiveGroup>,
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\nfindings\n", self.message);
        // Writing to a text cannot fail.
        if self.findings.is_empty() {
            text.push_str("none\n");
        }
        for finding in &self.findings {
            let _ = writeln!(text, "{finding:#}");
        }
        text.push_str("\nlive bytes by line and scope, as asked for\n");
        for group in self.live.iter().take(LISTED_COUNT) {
            let _ = writeln!(text, "{group}");
        }
        if let Some(rest) = self.live.get(LISTED_COUNT..).filter(|rest| !rest.is_empty()) {
            let bytes = rest.iter().fold(0_u64, |sum, group| sum.saturating_add(group.requested_bytes));
            let _ = writeln!(text, "{} in {} more places", Bytes::unsigned(bytes), rest.len());
        }
        text.push_str("\nBeside this file, where there was time and room: the last events (if the history is recorded), a snapshot, the driver's view.\n");
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let findings: Vec<String> = self.findings.iter().map(Finding::to_json).collect();
        let live = self.live.iter().take(LISTED_COUNT).map(|group| {
            let LiveGroup { place, scope, block_count, requested_bytes, size_bytes } = group;
            format!(
                "{{\"place\":{},\"scope\":{},\"block_count\":{block_count},\"requested_bytes\":{requested_bytes},\
                 \"size_bytes\":{size_bytes}}}",
                json_text(place),
                json_text(scope)
            )
        });
        let live: Vec<String> = live.collect();
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
        format!(
            "{{\"message\":{},\"device\":{},\"phase\":{},\"requested_bytes\":{},\"allocated_bytes\":{},\"reserved_bytes\":{},\
             \"device_free_bytes\":{},\"findings\":[{}],\"live\":[{}]}}\n",
            json_text(&self.message),
            json_text(&self.device),
            or_null(self.phase.map(json_text)),
            self.requested_bytes,
            self.allocated_bytes,
            self.reserved_bytes,
            or_null(self.device_free_bytes.map(|bytes| bytes.to_string())),
            findings.join(","),
            live.join(","),
        )
    }
}

/// One event as a line.
pub(super) fn event_line(entry: &TraceEntry) -> String {
    let TraceEntry { action, addr, size, stream, time_us, user_metadata, .. } = entry;
    format!(
        "{{\"time_us\":{time_us},\"action\":{},\"address\":{addr},\"size_bytes\":{size},\"stream\":{},\"metadata\":{}}}\n",
        json_text(action.name()),
        stream.0,
        json_text(user_metadata)
    )
}
