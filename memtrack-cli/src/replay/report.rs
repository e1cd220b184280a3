//! What is printed of a file: a line for people, or a JSON object.

use std::path::Path;

use memtrack::plain_text::{counted, shown};
use memtrack::units::Bytes;
use serde::Serialize;

use super::verify::Difference;
use super::{ReplayError, Replayed, Verification};
use crate::recording::{Kind, Recording};

/// What came of one file. Its fields are those of the JSON object, `None` where one does not apply.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The file, as it was named.
    pub file: String,
    /// Its format, `None` when it could not be read.
    pub kind: Option<Kind>,
    /// Whether all is as the file says PyTorch had it; `None` when nothing was compared.
    pub agrees: Option<bool>,
    /// The first thing that is not.
    pub first_difference: Option<Difference>,
    /// Operations of the file that were done.
    pub operations: Option<usize>,
    /// The most bytes asked for and not given back.
    pub requested_peak_bytes: Option<i64>,
    /// The most bytes handed out.
    pub allocated_peak_bytes: Option<i64>,
    /// The most bytes taken from the device.
    pub reserved_peak_bytes: Option<i64>,
    /// Allocations that gave cached memory back and asked again.
    pub retries: Option<i64>,
    /// Allocations that found no memory.
    pub ooms: Option<i64>,
    /// The most segments at once.
    pub segments: Option<i64>,
    /// Nanoseconds of an operation over a warm cache.
    pub ns_per_operation: Option<f64>,
    /// What could not be done as recorded.
    pub skipped: Option<String>,
    /// Why there is no result.
    pub error: Option<String>,
    /// Values of statistics that were compared and agree.
    pub compared_statistics: Option<usize>,
    /// Addresses that were compared and agree.
    pub compared_addresses: Option<usize>,
}

impl Report {
    /// Of a file of which nothing was replayed yet.
    pub(super) fn empty(path: &Path) -> Self {
        Self {
            file: path.display().to_string(),
            kind: None,
            agrees: None,
            first_difference: None,
            operations: None,
            requested_peak_bytes: None,
            allocated_peak_bytes: None,
            reserved_peak_bytes: None,
            retries: None,
            ooms: None,
            segments: None,
            ns_per_operation: None,
            skipped: None,
            error: None,
            compared_statistics: None,
            compared_addresses: None,
        }
    }

    /// Of a file that is no recording.
    pub(super) fn unreadable(path: &Path, error: &ReplayError) -> Self {
        Self { error: Some(error.to_string()), ..Self::empty(path) }
    }

    /// Of a recording that could not be run.
    pub(super) fn failed(path: &Path, recording: &Recording, error: &ReplayError) -> Self {
        Self { kind: Some(recording.kind), ..Self::unreadable(path, error) }
    }

    /// Adds what came of a recording. Figures of several devices are added up.
    pub(super) fn add(&mut self, recording: &Recording, replayed: Replayed, skipped: Option<String>) {
        self.kind = Some(recording.kind);
        if let Some(skipped) = skipped {
            match &mut self.skipped {
                Some(before) if *before != skipped => *before = format!("{before}; {skipped}"),
                before => *before = Some(skipped),
            }
        }
        let (operations, figures) = match replayed {
            Replayed::Verified(Verification { difference, statistics, addresses, operations, figures, .. }) => {
                self.agrees = Some(difference.is_none());
                self.first_difference = difference;
                self.compared_statistics = Some(statistics);
                self.compared_addresses = Some(addresses);
                (operations, figures)
            }
            Replayed::Measured(figures) => (recording.operation_count, figures),
        };
        let before = self.operations.unwrap_or(0);
        self.operations = Some(before + operations);
        for (sum, figure) in [
            (&mut self.requested_peak_bytes, figures.requested_peak_bytes),
            (&mut self.allocated_peak_bytes, figures.allocated_peak_bytes),
            (&mut self.reserved_peak_bytes, figures.reserved_peak_bytes),
            (&mut self.retries, figures.retries),
            (&mut self.ooms, figures.ooms),
            (&mut self.segments, figures.segments),
        ] {
            *sum = Some(sum.unwrap_or(0) + figure);
        }
        if let Some(ns) = figures.ns_per_operation {
            let total_ns = self.ns_per_operation.unwrap_or(0.0) * before as f64 + ns * operations as f64;
            let ns = total_ns / (before + operations) as f64;
            // Tenths are enough, and all that is meant.
            self.ns_per_operation = Some((ns * 10.0).round() / 10.0);
        }
    }

    /// 0 when all is well, 1 when something is not as PyTorch had it, 2 when there is no result.
    pub fn status(&self) -> u8 {
        match (&self.error, self.agrees) {
            (Some(_), _) => 2,
            (None, Some(false)) => 1,
            (None, _) => 0,
        }
    }

    /// The result in a line, `None` when there is none but an error.
    pub fn line(&self) -> Option<String> {
        if self.error.is_some() {
            return None;
        }
        let operations = counted(self.operations.unwrap_or_default() as u64, "operation");
        let mut line = match (&self.first_difference, self.agrees) {
            (Some(difference), _) => {
                let kind = self.kind.unwrap_or(Kind::Program);
                format!("{}: differs: {}", self.file, difference.describe(kind))
            }
            (None, Some(_)) => {
                let statistics = counted(self.compared_statistics.unwrap_or_default() as u64, "statistic");
                let addresses = counted(self.compared_addresses.unwrap_or_default() as u64, "address");
                format!("{}: verified: {operations}, {statistics} and {addresses} agree", self.file)
            }
            (None, None) => format!("{}: measured: {}", self.file, self.figures(&operations)),
        };
        if let Some(skipped) = &self.skipped {
            line.push_str("; ");
            line.push_str(skipped);
        }
        Some(shown(&line))
    }

    fn figures(&self, operations: &str) -> String {
        let bytes = |value: Option<i64>| Bytes(value.unwrap_or_default());
        let count = |value: Option<i64>| value.unwrap_or_default();
        let requested = self.requested_peak_bytes.filter(|bytes| *bytes > 0);
        let share = requested.zip(self.reserved_peak_bytes);
        let share = share.map_or(String::new(), |(requested, reserved)| {
            format!(" ({:.3} of requested)", reserved as f64 / requested as f64)
        });
        let time = self.ns_per_operation.map_or(String::new(), |ns| format!(", {ns:.0} ns each"));
        format!(
            "requested peak {}, allocated peak {}, reserved peak {}{share}, retries {}, OOMs {}, segments {}, {operations}{time}",
            bytes(self.requested_peak_bytes),
            bytes(self.allocated_peak_bytes),
            bytes(self.reserved_peak_bytes),
            count(self.retries),
            count(self.ooms),
            count(self.segments),
        )
    }
}
