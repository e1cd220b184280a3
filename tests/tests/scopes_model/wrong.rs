//! Methods that are in use elsewhere, and what is wrong with each: a list of events that they pass would prove nothing.

use std::collections::BTreeMap;

use super::log::{Cause, Entry, Log, ScopeId};

/// By scope.
pub(crate) type Answers = BTreeMap<ScopeId, i64>;

/// A device's change of live bytes through an entry, if it is an event there.
fn change(log: &Log, entry: &Entry, of: usize) -> Option<i64> {
    match *entry {
        Entry::Event { device, cause: Cause::Allocated(block), .. } if device == of => {
            Some(log.blocks[block].size_bytes)
        }
        Entry::Event { device, cause: Cause::Freed(block), .. } if device == of => Some(-log.blocks[block].size_bytes),
        _ => None,
    }
}

fn is_on(log: &Log, scope: ScopeId, device: usize) -> bool {
    log.scopes[scope].part(device).is_some()
}

/// Rises above entry where one peak is kept and set back whenever a scope opens.
pub(crate) fn one_peak_that_is_reset(log: &Log, device: usize) -> Answers {
    let (mut live, mut peak) = (0_i64, 0_i64);
    let (mut before, mut answers) = (Answers::new(), Answers::new());
    for entry in &log.entries {
        match *entry {
            Entry::Opened(scope) if is_on(log, scope, device) => {
                before.insert(scope, live);
                peak = live;
            }
            Entry::Closed(scope) if is_on(log, scope, device) => {
                answers.insert(scope, peak - before[&scope]);
            }
            _ => {}
        }
        live += change(log, entry, device).unwrap_or(0);
        peak = peak.max(live);
    }
    answers
}

/// Rises above entry where counters are pushed onto a stack and the topmost are popped and merged into those below; and whether
/// scopes closed from the top, which the method takes for granted.
pub(crate) fn counters_on_a_stack(log: &Log, device: usize) -> (Answers, bool) {
    let mut stack: Vec<(ScopeId, i64, i64)> = Vec::new();
    let mut answers = Answers::new();
    let mut is_nested = true;
    for entry in &log.entries {
        match *entry {
            Entry::Opened(scope) if is_on(log, scope, device) => stack.push((scope, 0, 0)),
            Entry::Closed(scope) if is_on(log, scope, device) => {
                let Some((top, value, peak)) = stack.pop() else { continue };
                is_nested &= top == scope;
                answers.insert(scope, peak);
                if let Some((_, outer_value, outer_peak)) = stack.last_mut() {
                    *outer_peak = (*outer_peak).max(*outer_value + peak);
                    *outer_value += value;
                }
            }
            _ => {}
        }
        if let (Some(bytes), Some((_, value, peak))) = (change(log, entry, device), stack.last_mut()) {
            *value += bytes;
            *peak = (*peak).max(*value);
        }
    }
    (answers, is_nested)
}

/// What is left of what a scope allocated, where a free is credited to the scope that the freeing thread is in.
pub(crate) fn frees_credited_to_whoever_frees(log: &Log, of: usize) -> Answers {
    let mut answers = Answers::new();
    for (moment, entry) in log.entries.iter().enumerate() {
        let Entry::Event { device, cause, context } = *entry else { continue };
        let bytes = match cause {
            Cause::Allocated(block) => log.blocks[block].requested_bytes,
            Cause::Freed(block) => -log.blocks[block].requested_bytes,
            _ => continue,
        };
        if device == of {
            for scope in log.open_around(context, device, moment) {
                *answers.entry(scope).or_default() += bytes;
            }
        }
    }
    answers
}
