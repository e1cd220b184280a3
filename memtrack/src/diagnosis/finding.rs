//! One finding: what it says and how it is shown.

use std::fmt;

use super::codes::{FindingCode, Numbers};
use super::json;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Worth to know; nothing has to be done.
    Note,
    /// It will cost memory or time.
    Warning,
    /// It made a request fail.
    Cause,
}

impl Severity {
    /// `note`, `warning` or `cause`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Cause => "cause",
        }
    }
}

/// Something found out about memory. Its `Display` is one line; `{:#}` adds evidence and advice, a line each.
///
/// ```
/// use std::sync::Arc;
/// use memtrack::diagnosis::FindingCode;
/// use memtrack::{AllocationError, Buffer, CachingAllocator, device::Simulated};
///
/// let allocator = CachingAllocator::new(Arc::new(Simulated::with_capacity(100 << 20)));
/// let _kept = Buffer::<u8>::uninit(&allocator, 60 << 20)?;
/// let Err(AllocationError::OutOfMemory(error)) = Buffer::<u8>::uninit(&allocator, 50 << 20) else { panic!() };
/// let [finding] = error.findings() else { panic!() };
/// assert_eq!(finding.code(), FindingCode::LiveMemoryTooLarge);
/// println!("{finding:#}");
/// # Ok::<(), AllocationError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The figures behind it.
    pub numbers: Numbers,
    /// What is the matter, in one line.
    pub headline: String,
    /// Where that shows, a line each.
    pub evidence: Vec<String>,
    /// What to do, a line each, the first choice first.
    pub advice: Vec<String>,
}

impl Finding {
    pub(super) fn new(severity: Severity, numbers: Numbers, headline: String) -> Self {
        Self { severity, numbers, headline, evidence: Vec::new(), advice: Vec::new() }
    }

    pub(super) fn evidence(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(lines);
        self
    }

    pub(super) fn advice(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.advice.extend(lines);
        self
    }

    /// What kind of finding it is.
    pub fn code(&self) -> FindingCode {
        self.numbers.code()
    }

    /// As one object of JSON: `code`, `severity`, `headline`, `numbers` by name (`null` for what is unknown), `evidence`,
    /// `advice`.
    pub fn to_json(&self) -> String {
        let numbers = self.numbers.entries().into_iter().map(|(name, figure)| {
            let figure = figure.map_or_else(|| "null".to_owned(), |figure| figure.to_string());
            format!("{}:{figure}", json::text(name))
        });
        let numbers: Vec<String> = numbers.collect();
        format!(
            "{{\"code\":{},\"severity\":{},\"headline\":{},\"numbers\":{{{}}},\"evidence\":{},\"advice\":{}}}",
            json::text(self.code().as_str()),
            json::text(self.severity.as_str()),
            json::text(&self.headline),
            numbers.join(","),
            json::texts(&self.evidence),
            json::texts(&self.advice),
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.headline)?;
        if f.alternate() {
            self.evidence.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
            self.advice.iter().try_for_each(|line| write!(f, "\n  -> {line}"))?;
        }
        Ok(())
    }
}
