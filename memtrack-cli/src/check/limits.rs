//! What a look says of each limit.

use memtrack::driver::{DriverMemory, Exactness, PartKind, comparable};
use memtrack::plain_text::counted;
use memtrack::publish::PublishedAllocator;
use memtrack::units::Bytes;

use super::CheckOptions;
use crate::smi::{DeviceLook, Look};

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The device answers with its memory.
    Answers,
    /// Bytes in use.
    MaxUsed,
    /// Bytes free.
    MinFree,
    /// Bytes that nobody explains.
    MaxUnexplained,
    /// Growth of the bytes in use.
    MaxGrowth,
    /// Scattered cache of a process.
    MaxFragmentation,
    /// Processes that do not publish.
    MaxForeign,
}

impl Limit {
    /// As its option is named.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::MaxUsed => "max-used",
            Self::MinFree => "min-free",
            Self::MaxUnexplained => "max-unexplained",
            Self::MaxGrowth => "max-growth",
            Self::MaxFragmentation => "max-fragmentation",
            Self::MaxForeign => "max-foreign",
        }
    }
}

/// What came of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It holds.
    Ok,
    /// It does not.
    Exceeded,
    /// It cannot be told.
    Unknown,
}

impl Outcome {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Exceeded => "exceeded",
            Self::Unknown => "unknown",
        }
    }
}

/// What came of one limit on one device.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// `GPU 0`.
    pub device: String,
    /// Which limit.
    pub limit: Limit,
    /// What came of it.
    pub outcome: Outcome,
    /// The figure: bytes, processes, or a share from 0 to 1; `None` when unknown.
    pub value: Option<f64>,
    /// The limit in the same unit.
    pub limit_value: Option<f64>,
    /// For people.
    pub sentence: String,
}

/// Every limit on every device; `later` is the second look of a limit of growth.
pub(super) fn findings(options: &CheckOptions, look: &Look, later: Option<&Look>) -> Vec<Finding> {
    // The figures of the moment are those of the latest look.
    let now = later.unwrap_or(look);
    let mut findings = Vec::new();
    for (place, device) in now.devices.iter().enumerate() {
        // A GPU split into instances may answer for itself to nobody in a container; they are judged.
        let has_instances = now.devices.iter().any(|other| other.index == device.index && other.mig_index.is_some());
        if has_instances && device.mig_index.is_none() && device.memory.is_err() {
            continue;
        }
        let of = Of { device, findings: &mut findings };
        of.all(options, look.devices.get(place));
    }
    findings
}

/// Figures are read one after the other, and a program allocates in between: so much too much is no contradiction.
const READING_APART_BYTES: u64 = 64 << 20;

struct Of<'a> {
    device: &'a DeviceLook,
    findings: &'a mut Vec<Finding>,
}

impl Of<'_> {
    fn all(mut self, options: &CheckOptions, before: Option<&DeviceLook>) {
        let CheckOptions { max_used, min_free, max_unexplained, max_growth, max_fragmentation, max_foreign, .. } =
            options;
        let count_before = self.findings.len();
        if let Some(most) = max_used {
            self.with_memory(Limit::MaxUsed, |memory| {
                let most_bytes = most.of(memory.total_bytes);
                let sentence = format!("used {}, more than {most}", Bytes::unsigned(memory.used_bytes));
                (memory.used_bytes, most_bytes, memory.used_bytes > most_bytes, sentence)
            });
        }
        if let Some(fewest) = min_free {
            self.with_memory(Limit::MinFree, |memory| {
                let fewest_bytes = fewest.of(memory.total_bytes);
                let sentence = format!("free {}, less than {fewest}", Bytes::unsigned(memory.free_bytes));
                (memory.free_bytes, fewest_bytes, memory.free_bytes < fewest_bytes, sentence)
            });
        }
        if let Some(most) = max_unexplained {
            self.unexplained(*most);
        }
        if let Some(most_bytes) = max_growth {
            self.growth(*most_bytes, before);
        }
        if let Some(most) = max_fragmentation {
            self.fragmentation(*most);
        }
        if let Some(most) = max_foreign {
            self.foreign(*most);
        }
        if self.findings.len() == count_before {
            self.with_memory(Limit::Answers, |memory| (memory.used_bytes, memory.total_bytes, false, String::new()));
        }
    }

    fn put(&mut self, limit: Limit, outcome: Outcome, figures: Option<(f64, f64)>, sentence: &str) {
        let device = self.device.title();
        let sentence = match outcome {
            Outcome::Ok => String::new(),
            _ => format!("{device} {sentence}"),
        };
        let (value, limit_value) = figures.unzip();
        self.findings.push(Finding { device, limit, outcome, value, limit_value, sentence });
    }

    fn with_memory(&mut self, limit: Limit, judge: impl Fn(&DriverMemory) -> (u64, u64, bool, String)) {
        match &self.device.memory {
            Ok(memory) => {
                let (value, limit_value, is_exceeded, sentence) = judge(memory);
                let outcome = if is_exceeded { Outcome::Exceeded } else { Outcome::Ok };
                self.put(limit, outcome, Some((value as f64, limit_value as f64)), &sentence);
            }
            Err(failure) => {
                let sentence = format!("{}: {failure}", limit.name());
                self.put(limit, Outcome::Unknown, None, &sentence);
            }
        }
    }

    fn unexplained(&mut self, most: super::Share) {
        let limit = Limit::MaxUnexplained;
        let (memory, account) = match (&self.device.memory, &self.device.account) {
            (Ok(memory), Some(account)) => (memory, account),
            (Err(failure), _) => {
                let sentence = format!("max-unexplained: {failure}");
                return self.put(limit, Outcome::Unknown, None, &sentence);
            }
            (Ok(_), None) => return self.put(limit, Outcome::Unknown, None, "max-unexplained: no account"),
        };
        let most_bytes = most.of(memory.total_bytes);
        let line = account.line(PartKind::Unexplained);
        let bytes = line.bytes.unwrap_or(0);
        let figures = Some((bytes as f64, most_bytes as f64));
        let sentence = format!("unexplained {}, more than {most}", Bytes(bytes));
        let excess_bytes = i128::from(bytes).saturating_neg();
        if excess_bytes > i128::from(most_bytes.max(READING_APART_BYTES)) {
            let sentence = format!(
                "max-unexplained: published figures and the list of processes come to {} more than the driver shows; one of them is stale or wrong",
                Bytes(bytes.saturating_neg())
            );
            return self.put(limit, Outcome::Unknown, figures, &sentence);
        }
        if i128::from(bytes) <= i128::from(most_bytes) {
            // It may be less, never more.
            return self.put(limit, Outcome::Ok, figures, "");
        }
        // With a part unknown the rest may be that part's.
        let missing = account.lines.iter().find(|part| {
            matches!(part.exactness, Exactness::Unknown | Exactness::AtLeast) && part.kind != PartKind::Unexplained
        });
        match missing {
            None if memory.driver_reserved_bytes.is_none() => {
                let sentence =
                    format!("{sentence}, but what the driver reserves is in it: NVML's first query does not say");
                self.put(limit, Outcome::Unknown, figures, &sentence);
            }
            None => self.put(limit, Outcome::Exceeded, figures, &sentence),
            Some(part) => {
                let why = part.unknown.as_deref().unwrap_or("there may be more");
                let sentence = format!("{sentence}, but {} may be behind it: {why}", part.kind);
                self.put(limit, Outcome::Unknown, figures, &sentence);
            }
        }
    }

    fn growth(&mut self, most_bytes: u64, before: Option<&DeviceLook>) {
        let Some(before) = before else {
            return self.put(Limit::MaxGrowth, Outcome::Unknown, None, "max-growth: there was no look before");
        };
        match comparable(&before.memory, &self.device.memory) {
            Ok((earlier, later)) => {
                let grown = i128::from(later.used_bytes) - i128::from(earlier.used_bytes);
                let is_exceeded = grown > i128::from(most_bytes);
                let outcome = if is_exceeded { Outcome::Exceeded } else { Outcome::Ok };
                let grown_bytes = i64::try_from(grown).unwrap_or(i64::MAX);
                let most = Bytes::unsigned(most_bytes);
                let sentence = format!("grew by {}, more than {most}", Bytes(grown_bytes));
                self.put(Limit::MaxGrowth, outcome, Some((grown as f64, most_bytes as f64)), &sentence);
            }
            Err(why) => self.put(Limit::MaxGrowth, Outcome::Unknown, None, &format!("max-growth: {why}")),
        }
    }

    /// The worst of the processes that publish. Where none does it cannot be told, unless there is none at all.
    fn fragmentation(&mut self, most_percent: f64) {
        let shares = self.device.processes.iter().flat_map(|process| {
            process
                .published
                .iter()
                .filter_map(|allocator| Some((PublishedAllocator::fragmentation(allocator)?, process.pid)))
        });
        let device = self.device;
        let is_idle = device.list_failure.is_none() && device.list_is_complete && device.processes.is_empty();
        match shares.max_by(|(first, _), (second, _)| first.total_cmp(second)) {
            None if is_idle || device.processes.iter().any(|process| process.publishes()) => {
                self.put(Limit::MaxFragmentation, Outcome::Ok, Some((0.0, most_percent / 100.0)), "");
            }
            None => {
                let sentence = "max-fragmentation: no process publishes its figures (MEMTRACK_PUBLISH)";
                self.put(Limit::MaxFragmentation, Outcome::Unknown, None, sentence);
            }
            Some((share, pid)) => {
                let is_exceeded = share * 100.0 > most_percent;
                let outcome = if is_exceeded { Outcome::Exceeded } else { Outcome::Ok };
                let percent = share * 100.0;
                let sentence =
                    format!("process {pid} has {percent:.1}% of what it reserved scattered, more than {most_percent}%");
                self.put(Limit::MaxFragmentation, outcome, Some((share, most_percent / 100.0)), &sentence);
            }
        }
    }

    fn foreign(&mut self, most: usize) {
        let limit = Limit::MaxForeign;
        let found = match (&self.device.account, &self.device.list_failure) {
            (_, Some(failure)) => Err(failure.to_string()),
            (Some(account), None) => {
                let unknown = "a process that publishes is listed under a number that is not known here";
                account.foreign_count.ok_or_else(|| unknown.to_owned())
            }
            (None, None) => Ok(self.device.processes.iter().filter(|process| !process.publishes()).count()),
        };
        let is_complete = self.device.list_is_complete;
        match found {
            Err(why) => self.put(limit, Outcome::Unknown, None, &format!("max-foreign: {why}")),
            Ok(count) => {
                let figures = Some((count as f64, most as f64));
                let processes = counted(count as u64, "foreign process");
                let sentence = format!("has {processes}, more than {most}");
                match (count > most, is_complete) {
                    (true, _) => self.put(limit, Outcome::Exceeded, figures, &sentence),
                    (false, true) => self.put(limit, Outcome::Ok, figures, ""),
                    (false, false) => {
                        let sentence = "max-foreign: the driver may list only some of the processes in this container";
                        self.put(limit, Outcome::Unknown, figures, sentence);
                    }
                }
            }
        }
    }
}
