//! Figures of any size, as a damaged file or a driver's "unknown" have them: no finding overflows, here where overflows are checked.

use memtrack::PoolKind;
use memtrack::device::Stream;
use memtrack::diagnosis::{
    AllocatorView, BlockView, FailedAttemptView, Finding, Floor, LeakDetector, LiveGroup, OutsideView, Request,
    SegmentView, SettingsView, Severity, Trend, examine, examine_external, examine_failure, fragmentation,
    growing_sizes, growth_by_group, idle_cache, judge_floors, pinned_segments, retries_every_step, rounding_overhead,
};
use memtrack::history::BlockStatus;
use memtrack::units::{GIB, MIB};

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Near a place where something may overflow, or an everyday size.
    fn figure(&mut self) -> u64 {
        let near =
            [0, 512, MIB, 2 * MIB, 20 * MIB, GIB, 1 << 60, 1 << 62, 1 << 63, u64::MAX / 10, u64::MAX / 2, u64::MAX];
        let near = near[self.below(near.len() as u64) as usize];
        let off = [0, 1, 511, MIB][self.below(4) as usize];
        match self.below(4) {
            0 => near.saturating_sub(off),
            1 => near.saturating_add(off),
            2 => near,
            _ => self.next(),
        }
    }

    fn signed(&mut self) -> i64 {
        match self.below(4) {
            0 => i64::MIN + self.below(3) as i64,
            1 => i64::MAX - self.below(3) as i64,
            _ => self.figure() as i64,
        }
    }

    fn maybe(&mut self) -> Option<u64> {
        self.flag().then(|| self.figure())
    }

    fn group(&mut self) -> LiveGroup {
        let names = ["", "a", "b"];
        LiveGroup {
            place: names[self.below(3) as usize].to_owned(),
            scope: names[self.below(3) as usize].to_owned(),
            block_count: self.figure(),
            requested_bytes: self.figure(),
            size_bytes: self.figure(),
        }
    }

    fn groups(&mut self) -> Vec<LiveGroup> {
        (0..self.below(5)).map(|_| self.group()).collect()
    }

    fn pool(&mut self) -> PoolKind {
        if self.below(4) == 0 { PoolKind::Small } else { PoolKind::Large }
    }

    fn segment(&mut self) -> SegmentView {
        let statuses = [BlockStatus::Inactive, BlockStatus::ActiveAllocated, BlockStatus::ActivePendingFree];
        let is_idle = self.below(3) == 0;
        let block = |random: &mut Self| BlockView {
            size_bytes: random.figure(),
            status: if is_idle { BlockStatus::Inactive } else { statuses[random.below(3) as usize] },
            group: random.flag().then(|| random.below(6) as u32),
        };
        SegmentView {
            stream: Stream([0, 1, u64::MAX][self.below(3) as usize]),
            pool: self.pool(),
            private_pool: (self.below(4) == 0).then_some((u64::MAX, 1)),
            is_kept: self.flag(),
            is_expandable: self.flag(),
            blocks: (0..self.below(5)).map(|_| block(self)).collect(),
        }
    }

    fn view(&mut self) -> AllocatorView {
        AllocatorView {
            device: "any".to_owned(),
            allocated_bytes: self.figure(),
            active_bytes: self.figure(),
            requested_bytes: self.figure(),
            reserved_bytes: self.figure(),
            limit_bytes: self.maybe(),
            device_free_bytes: self.maybe(),
            device_total_bytes: self.figure(),
            settings: SettingsView {
                expandable_segments: self.flag(),
                expandable_possible: self.flag(),
                max_split_size_bytes: self.maybe(),
                large_segment_size_bytes: self.figure(),
            },
            segments: (0..self.below(8)).map(|_| self.segment()).collect(),
            free_page_bytes: self.figure(),
            default_pools_kept: self.flag(),
            live: self.groups(),
            failed_attempts: (0..self.below(3))
                .map(|_| FailedAttemptView {
                    scope: "attempt".to_owned(),
                    requested_bytes: self.figure(),
                    alive: self.groups(),
                })
                .collect(),
            outside: OutsideView {
                before_bytes: self.maybe(),
                context_bytes: self.maybe(),
                other_processes_bytes: self.maybe(),
                process_count: self.maybe(),
                own_growth_bytes: self.flag().then(|| self.signed()),
                without_driver: self.flag(),
            },
        }
    }

    fn request(&mut self) -> Request {
        Request {
            requested_bytes: self.figure(),
            rounded_bytes: self.figure(),
            segment_bytes: self.figure(),
            stream: Stream(self.below(2)),
            pool: self.pool(),
            private_pool: (self.below(4) == 0).then_some((u64::MAX, 1)),
            by_limit: self.flag(),
        }
    }

    fn floors(&mut self) -> Vec<Floor> {
        let count = self.below(60);
        let kind = self.below(3);
        let slope = self.figure() as i64 / 60;
        let floor = |random: &mut Self, at: u64| Floor {
            number: if kind == 0 { random.figure() } else { u64::MAX - count + at },
            live_bytes: if kind == 1 {
                i64::MIN.saturating_add(slope.saturating_mul(2 * at as i64))
            } else {
                random.signed()
            },
            peak_bytes: random.flag().then(|| random.signed()),
        };
        (0..count).map(|at| floor(self, at)).collect()
    }
}

/// All ways in which a finding is shown.
fn show(findings: impl IntoIterator<Item = Finding>, codes: &mut std::collections::BTreeSet<&'static str>) {
    for finding in findings {
        assert!(!format!("{finding:#}").is_empty());
        assert!(serde_json::from_str::<serde_json::Value>(&finding.to_json()).is_ok(), "{finding:#?}");
        codes.insert(finding.code().as_str());
    }
}

#[test]
fn no_finding_overflows_whatever_the_figures_are() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let (view, request) = (random.view(), random.request());
        show(examine(&view), &mut found);
        show(examine_failure(&view, &request), &mut found);
        show(examine_external(&view, random.figure()), &mut found);
        // Each by itself as well, where the whole would stop before it.
        show(fragmentation(&view, &request), &mut found);
        show(growing_sizes(&view), &mut found);
        show(idle_cache(&view), &mut found);
        show(rounding_overhead(&view), &mut found);
        show(pinned_segments(&view, random.figure(), Severity::Note), &mut found);
        let [steps, retries, reserved, limit] = std::array::from_fn(|_| random.figure());
        show(retries_every_step(steps, retries, reserved, limit), &mut found);
        let _ = [view.idle_bytes(), view.pending_bytes(), view.returnable_bytes(), view.room_bytes()];
        let _ = (view.capacity_bytes(), view.outside_bytes());
    }
    // So that not all of them are turned away at the door.
    assert!(found.len() >= 18, "{found:?}");
}

#[test]
fn no_series_overflows_whatever_the_floors_are() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut found = std::collections::BTreeSet::new();
    let mut leak_count = 0;
    for _ in 0..5000 {
        let floors = random.floors();
        let grown = growth_by_group(&random.groups(), &random.groups());
        let trend = judge_floors(&floors);
        leak_count += usize::from(trend.trend == Trend::Leak);
        let _ = trend.forecast(random.figure());
        show(trend.finding(random.maybe(), &grown, random.figure()), &mut found);
        show(trend.of_epochs().finding(random.maybe(), &grown, random.figure()), &mut found);
    }
    assert!(leak_count > 100, "{leak_count}");
    for _ in 0..200 {
        let mut detector = LeakDetector::new();
        for floor in random.floors() {
            let view = random.view();
            show(detector.end_step(floor, || view), &mut found);
        }
        show(detector.finding(&random.view()), &mut found);
    }
    assert!(found.contains("leak"), "{found:?}");
    // A sum of what no counter holds.
    let group = || LiveGroup { size_bytes: u64::MAX, block_count: u64::MAX, ..LiveGroup::default() };
    let grown = growth_by_group(&[], &[group(), group(), group()]);
    assert_eq!((grown[0].size_bytes, grown[0].block_count), (i64::MAX, i64::MAX));
}
