//! The same programs show what is wrong with methods in use elsewhere, so they can tell right from wrong.

use std::collections::BTreeMap;

use memtrack::scope::CallSite;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::crew::Crew;
use super::log::{Entry, Log, ScopeId};
use super::program::program;
use super::world::log_of;
use super::wrong::{self, Answers};

const PROGRAM_COUNT: usize = 500;

impl Log {
    fn own_delta(&self, scope: ScopeId, device: usize) -> i64 {
        self.figures(scope, &[device], "").own_delta
    }

    fn own_allocated(&self, scope: ScopeId, device: usize) -> i64 {
        self.figures(scope, &[device], "").own_allocated
    }

    fn peak(&self, scope: ScopeId, devices: &[usize]) -> i64 {
        self.figures(scope, devices, "").peak
    }

    /// How far the peak rose above entry.
    fn rise(&self, scope: ScopeId, device: usize) -> i64 {
        let figures = self.figures(scope, &[device], "");
        figures.peak - figures.before
    }
}

/// Whether an answer is not the list's.
fn is_wrong(answers: Answers, truth: impl Fn(ScopeId) -> i64) -> bool {
    answers.into_iter().any(|(scope, answer)| answer != truth(scope))
}

/// Whether the peaks of some scope's devices do not add up to the peak of their sum.
fn sum_of_peaks_is_wrong(log: &Log) -> bool {
    (0..log.scopes.len()).any(|scope| {
        let devices: Vec<usize> = log.scopes[scope].parts.iter().map(|part| part.device).collect();
        devices.iter().map(|device| log.peak(scope, &[*device])).sum::<i64>() != log.peak(scope, &devices)
    })
}

/// Whether the inclusive bytes of some site are not the sum over all its calls.
fn sum_over_calls_is_wrong(log: &Log, device: usize, names: &[&'static str]) -> bool {
    if log.entries.iter().any(|entry| matches!(entry, Entry::CallSitesReset(_))) {
        return false;
    }
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (scope, facts) in log.scopes.iter().enumerate() {
        if let Some(site) = facts.site.filter(|_| facts.part(device).is_some()) {
            *sums.entry(names[site]).or_default() += log.own_allocated(scope, device);
        }
    }
    log.call_sites(device, names).iter().any(|totals| sums.get(totals.name).is_some_and(|sum| *sum != totals.inclusive))
}

#[test]
fn methods_in_use_elsewhere_do_not_pass() {
    let sites = sites!();
    let names = sites.each_ref().map(CallSite::name);
    let mut crew = Crew::inline();
    let mut runner = TestRunner::deterministic();
    let mut mistakes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut nested_count = 0;
    for _ in 0..PROGRAM_COUNT {
        let program = program().new_tree(&mut runner).unwrap().current();
        let log = log_of(&program, &mut crew, sites).unwrap();
        let mut count = |method, is_wrong| *mistakes.entry(method).or_default() += usize::from(is_wrong);
        count("sum of peaks", sum_of_peaks_is_wrong(&log));
        // One device is enough.
        let reset = wrong::one_peak_that_is_reset(&log, 0);
        count("one peak that is reset", is_wrong(reset, |scope| log.rise(scope, 0)));
        let credited = wrong::frees_credited_to_whoever_frees(&log, 0);
        count("frees credited to whoever frees", is_wrong(credited, |scope| log.own_delta(scope, 0)));
        count("sum over recursive calls", sum_over_calls_is_wrong(&log, 0, &names));
        let (stacked, is_nested) = wrong::counters_on_a_stack(&log, 0);
        let stack_is_wrong = is_wrong(stacked, |scope| log.rise(scope, 0));
        count("counters on a stack", stack_is_wrong);
        assert!(!(is_nested && stack_is_wrong), "a stack is right for what nests");
        nested_count += usize::from(is_nested && log.scopes.len() > 2);
    }
    println!("of {PROGRAM_COUNT} programs, {nested_count} of them nested: {mistakes:?}");
    assert_eq!(mistakes.len(), 5);
    assert!(nested_count > 0 && mistakes.values().all(|count| *count >= PROGRAM_COUNT / 25), "{mistakes:?}");
}
