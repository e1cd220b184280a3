//! Budgets: what a function may take, keep and allocate, and what happens when it takes more.
//!
//! They are held against the owner view, requested bytes that the call's own threads and tasks allocated: what runs
//! beside it cannot breach them. Where a source alone is measured, they are held against its figures, which are the process's.

use super::opened::Closed;
use super::site::Site;
use crate::plain_text::shown;
use crate::scope::{DeviceName, LiveSite, ScopeRecord};
use crate::testing::is_strict;
use crate::units::Bytes;
use std::fmt;

/// A budget of `#[track_memory]`, by the option that sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Budget {
    /// `max_delta`: requested bytes that the call may leave allocated.
    MaxDelta,
    /// `max_peak`: requested bytes that may be live at once of those it allocates.
    MaxPeak,
    /// `max_allocs`: allocations that it may make.
    MaxAllocs,
    /// `leak_check`: requested bytes that may be forgotten.
    LeakCheck,
}

impl Budget {
    /// The option's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxDelta => "max_delta",
            Self::MaxPeak => "max_peak",
            Self::MaxAllocs => "max_allocs",
            Self::LeakCheck => "leak_check",
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call that took more than its budget. Shown as one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Exceeded {
    /// The function's name.
    pub function: &'static str,
    /// The module it is in.
    pub module_path: &'static str,
    /// Its file.
    pub file: &'static str,
    /// The line of its name.
    pub line: u32,
    /// The budget breached.
    pub budget: Budget,
    /// What was allowed: requested bytes, or allocations for [`Budget::MaxAllocs`].
    pub limit: i64,
    /// What was measured, in the same unit.
    pub measured: i64,
    /// The device, or the devices.
    pub device: DeviceName,
    /// All figures of the call.
    pub record: ScopeRecord,
    /// For [`Budget::MaxDelta`] and [`Budget::LeakCheck`]: the lines that allocated what it keeps, the most bytes first.
    pub kept: Vec<LiveSite>,
}

/// So many lines that keep memory are shown.
const SHOWN_SITES: usize = 3;

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, file, line, budget, limit, measured, device, kept, .. } = self;
        // Below 1 KiB the unit is bytes already.
        let size = |bytes: i64| match bytes.unsigned_abs() {
            0..1024 => Bytes(bytes).to_string(),
            _ => format!("{} ({bytes} bytes)", Bytes(bytes)),
        };
        let allocations = if *measured == 1 { "allocation" } else { "allocations" };
        write!(f, "`{function}` at {file}:{line} exceeded {budget} on {device}: ")?;
        match budget {
            Budget::MaxDelta => write!(f, "it left {} allocated, allowed {}", size(*measured), size(*limit)),
            Budget::MaxPeak => write!(f, "it had {} allocated at once, allowed {}", size(*measured), size(*limit)),
            Budget::MaxAllocs => write!(f, "it made {measured} {allocations}, allowed {limit}"),
            Budget::LeakCheck => {
                write!(f, "it ended with {} still allocated, allowed {}", size(*measured), size(*limit))
            }
        }?;
        show_sites(f, kept)
    }
}

/// Shows the lines that keep the most memory, behind a colon.
pub(super) fn show_sites(f: &mut impl fmt::Write, sites: &[LiveSite]) -> fmt::Result {
    let mut separator = ": ";
    for site in sites.iter().take(SHOWN_SITES) {
        write!(f, "{separator}{site}")?;
        separator = "; ";
    }
    match sites.len().saturating_sub(SHOWN_SITES) {
        0 => Ok(()),
        1 => write!(f, "; and one more place"),
        others => write!(f, "; and {others} more places"),
    }
}

/// What a breached budget does.
#[derive(Debug, Clone, Copy)]
pub enum OnExceed {
    /// A warning through `tracing`.
    Event,
    /// A panic.
    Panic,
    /// A call of the user's function.
    Call(fn(&Exceeded)),
}

/// What is to be raised once a call is over.
#[must_use = "a budget that panics must be raised"]
#[derive(Debug)]
pub(super) struct Verdict(Option<String>);

impl Verdict {
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Panics if a budget asks for it.
    #[inline]
    pub(super) fn raise(self) {
        if let Some(message) = self.0 {
            raise(&message);
        }
    }
}

#[cold]
fn raise(message: &str) {
    panic!("{message}");
}

/// Holds a call against its budgets, inside its span. `may_panic`: the call ended by itself.
#[inline]
pub(super) fn judge(site: &Site, closed: &Closed, may_panic: bool) -> Verdict {
    if !site.options.has_budget() {
        return Verdict::none();
    }
    if closed.record.has_allocator {
        return judge_budgets(site, closed, may_panic);
    }
    judge_by_source(site, closed, may_panic)
}

/// Where a source alone was measured: what it tells is held against the budgets, and it tells nothing of how many allocations there were.
#[cold]
fn judge_by_source(site: &Site, closed: &Closed, may_panic: bool) -> Verdict {
    let Some(source) = closed.record.sources.first() else { return judge_unmeasured(site, may_panic) };
    let name = shown(&source.name);
    if let Some(failure) = &source.failure {
        return unmeasured(site, may_panic, "a budget", &format!("{name} said: {}", shown(&failure.to_string())));
    }
    let Verdict(exceeded) = judge_budgets(site, closed, may_panic);
    let Verdict(uncounted) = match site.options.max_allocation_count {
        Some(_) => {
            unmeasured(site, may_panic, "max_allocs", &format!("{name} counts bytes, and an allocator allocations"))
        }
        None => Verdict::none(),
    };
    let messages: Vec<String> = [exceeded, uncounted].into_iter().flatten().collect();
    Verdict((!messages.is_empty()).then(|| messages.join("\n")))
}

/// For a call that could not be measured: a strict test must not pass because nothing was looked at.
pub(super) fn judge_unmeasured(site: &Site, may_panic: bool) -> Verdict {
    if !site.options.has_budget() {
        return Verdict::none();
    }
    let why = "no allocator is current; call memtrack::set_default(&allocator) once, or make_current() on this thread, or name one by \
               `device`";
    unmeasured(site, may_panic, "a budget", why)
}

fn unmeasured(site: &Site, may_panic: bool, budget: &str, why: &str) -> Verdict {
    if !(may_panic && is_strict()) {
        return Verdict::none();
    }
    let (name, file, line) = (site.call_site.name(), site.call_site.file(), site.call_site.line());
    Verdict(Some(format!("`{name}` at {file}:{line} has {budget} and was not measured: {why}")))
}

#[inline(never)]
fn judge_budgets(site: &Site, closed: &Closed, may_panic: bool) -> Verdict {
    let (options, record) = (&site.options, &closed.record);
    let (delta_bytes, peak_bytes) = match record.has_allocator {
        true => (record.own_delta_bytes, record.own_peak_bytes),
        // A source cannot tell who allocated.
        false => (record.delta_bytes(), record.peak_delta_bytes()),
    };
    let budgets = [
        (Budget::MaxDelta, options.max_delta_bytes, delta_bytes),
        (Budget::MaxPeak, options.max_peak_bytes, peak_bytes),
        (Budget::MaxAllocs, options.max_allocation_count, record.own_allocation_count),
        (Budget::LeakCheck, options.leak_allowance_bytes, delta_bytes),
    ];
    let mut message: Option<String> = None;
    for (budget, limit, measured) in budgets {
        let Some(limit) = limit.filter(|limit| measured > *limit) else { continue };
        let exceeded = Exceeded {
            function: site.call_site.name(),
            module_path: site.call_site.module_path(),
            file: site.call_site.file(),
            line: site.call_site.line(),
            budget,
            limit,
            measured,
            device: record.device.clone(),
            record: record.clone(),
            kept: match budget {
                Budget::MaxDelta | Budget::LeakCheck => closed.kept.clone(),
                Budget::MaxPeak | Budget::MaxAllocs => Vec::new(),
            },
        };
        let on_exceed = match options.on_exceed {
            OnExceed::Event if is_strict() => OnExceed::Panic,
            given => given,
        };
        match on_exceed {
            OnExceed::Call(function) => function(&exceeded),
            OnExceed::Panic if may_panic => {
                let text = exceeded.to_string();
                match &mut message {
                    Some(message) => {
                        message.push('\n');
                        message.push_str(&text);
                    }
                    None => message = Some(text),
                }
            }
            OnExceed::Panic | OnExceed::Event => log(&exceeded),
        }
    }
    Verdict(message)
}

fn log(exceeded: &Exceeded) {
    let Exceeded { function, file, line, budget, limit, measured, device, record, .. } = exceeded;
    let (device, phase) = (device.as_str(), record.phase.unwrap_or("other"));
    let place = format_args!("{file}:{line}");
    macro_rules! warn {
        ($target:literal) => {
            tracing::warn!(
                target: $target,
                {
                    mem.device = device,
                    mem.phase = phase,
                    function,
                    budget = budget.as_str(),
                    limit,
                    measured,
                    place = %place,
                },
                "{exceeded}"
            )
        };
    }
    if *budget == Budget::LeakCheck {
        warn!("memtrack::leak");
    } else {
        warn!("memtrack::budget_exceeded");
    }
}
