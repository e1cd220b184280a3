//! Whether what is live at the end of each step grows for ever, and when that fails.
//!
//! It is told from *floors*, the live bytes at the end of a step, not from peaks: a peak moves with the batch. The slope is the
//! median of the slopes between all pairs of steps, so a few steps that differ do not move it. A leak needs growth that repeats; what
//! rises once, as a library's workspace does at its first call on each stream, is none, and neither is what goes up and down by chance. What
//! rises and fits none of these is not judged.

use super::codes::Numbers;
use super::finding::{Finding, Severity};
use super::growth::GroupGrowth;
use super::late_leak::late_leak;
use super::series::{rise_count, rises_throughout, slope};
use crate::units::Bytes;

/// The first steps are left out: caches, workspaces and optimizer states are made in them.
pub(super) const WARM_UP_COUNT: usize = 2;
/// Fewer steps after the warm-up are no series.
const LEAST_COUNT: usize = 8;
/// So many steps without a rise, at least, are a floor that stays.
const LEAST_FLAT_COUNT: usize = 4;
/// So many lines of the program are listed.
const LISTED_COUNT: usize = 5;

/// The end of one step, or of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// Its number.
    pub number: u64,
    /// Live at its end, rounded.
    pub live_bytes: i64,
    /// The most that was live in it, rounded; `None` when it was not measured.
    pub peak_bytes: Option<i64>,
}

/// What a series of floors does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trend {
    /// Fewer than ten steps.
    TooShort,
    /// It does not rise.
    Flat,
    /// It rose, and has stayed there for at least four steps, for a quarter of all, and for longer than it ever stayed between two
    /// rises.
    OneTime,
    /// It is higher than it was, and neither rises again and again nor stays: nothing is to be said yet.
    Unclear,
    /// It rises again and again, through the whole series or through its latest part.
    Leak,
}

/// What a floor is the end of, for the text of findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Unit {
    #[default]
    Step,
    Epoch,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Epoch => "epoch",
        }
    }

    fn with_article(self) -> &'static str {
        match self {
            Self::Step => "a step",
            Self::Epoch => "an epoch",
        }
    }

    fn counted(self, count: u64) -> String {
        format!("{count} {}{}", self.name(), if count == 1 { "" } else { "s" })
    }
}

/// A series of floors, judged. The first two steps are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FloorTrend {
    /// What it does.
    pub trend: Trend,
    /// The median growth per step. As in all that follows a step is an epoch in a series [of epochs](Self::of_epochs).
    pub slope_bytes: i64,
    /// Steps looked at; of a leak that begins late, those of the latest part.
    pub step_count: u64,
    /// The last floor less the first.
    pub risen_bytes: i64,
    /// Steps that ended higher than the one before.
    pub rise_count: u64,
    /// Steps at the end that ended no higher than the one before.
    pub flat_step_count: u64,
    /// The last floor.
    pub floor_bytes: i64,
    /// The number of the last step.
    pub last_number: u64,
    /// The highest peak above the end of its step, 0 when none was measured.
    pub transient_bytes: i64,
    /// The leak was seen in the latest part only.
    is_late: bool,
    unit: Unit,
}

/// How long it goes on at most: memory in pieces, and growth that quickens, end it sooner. A step is an epoch in a series of epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forecast {
    /// Steps that still fit.
    pub steps_left: u64,
    /// The number of the first that does not.
    pub failing_step: u64,
}

/// Judges floors in the order of their steps, the first two of which are left out.
pub fn judge_floors(floors: &[Floor]) -> FloorTrend {
    judge(floors.get(WARM_UP_COUNT..).unwrap_or_default())
}

/// As [`judge_floors`], of floors after the warm-up.
pub(super) fn judge(floors: &[Floor]) -> FloorTrend {
    let (first, last) = match floors {
        [] => (0, None),
        [first, ..] => (first.live_bytes, floors.last()),
    };
    let floor_bytes = last.map_or(0, |floor| floor.live_bytes);
    let rises: Vec<bool> = floors.windows(2).map(|pair| pair[1].live_bytes > pair[0].live_bytes).collect();
    let transients = floors.iter().filter_map(|floor| Some(floor.peak_bytes?.saturating_sub(floor.live_bytes)));
    // Of most programs the floors are equal, and then there is nothing to sort.
    let is_level = floors.iter().all(|floor| floor.live_bytes == first);
    let slope_bytes = if is_level { 0 } else { slope(floors) };
    let risen_bytes = floor_bytes.saturating_sub(first);
    let whole = (slope_bytes, floors.len(), false);
    let (trend, (slope_bytes, step_count, is_late)) = if floors.len() < LEAST_COUNT {
        (Trend::TooShort, whole)
    } else if is_level {
        (Trend::Flat, whole)
    } else if slope_bytes > 0 && rises_throughout(floors) {
        (Trend::Leak, whole)
    } else if let Some((slope_bytes, count)) = late_leak(floors) {
        (Trend::Leak, (slope_bytes, count, true))
    } else if risen_bytes <= 0 {
        (Trend::Flat, whole)
    } else if has_settled(&rises) {
        (Trend::OneTime, whole)
    } else {
        (Trend::Unclear, whole)
    };
    FloorTrend {
        trend,
        slope_bytes,
        step_count: step_count as u64,
        risen_bytes,
        rise_count: rise_count(floors) as u64,
        flat_step_count: rises.iter().rev().take_while(|rise| !**rise).count() as u64,
        floor_bytes,
        last_number: last.map_or(0, |floor| floor.number),
        transient_bytes: transients.max().unwrap_or(0).max(0),
        is_late,
        unit: Unit::Step,
    }
}

/// Whether the floors stay where they are: of `rises`, one for each step but the first, the last are none for long enough.
fn has_settled(rises: &[bool]) -> bool {
    let rising: Vec<usize> = rises.iter().enumerate().filter_map(|(at, rise)| rise.then_some(at)).collect();
    let longest_gap = rising.windows(2).map(|pair| pair[1] - pair[0] - 1).max();
    let flat_count = rising.last().map_or(rises.len(), |last| rises.len() - 1 - last);
    flat_count >= LEAST_FLAT_COUNT.max((rises.len() + 1) / 4) && longest_gap.is_none_or(|gap| flat_count > gap)
}

impl FloorTrend {
    /// The same, of floors that are the ends of epochs: the text of its finding counts epochs. The figures keep their names.
    #[must_use]
    pub fn of_epochs(self) -> Self {
        Self { unit: Unit::Epoch, ..self }
    }

    pub(super) fn of(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// When a leak fails, if live memory may come to `capacity_bytes`: what the device or the limit allows, less what others have.
    /// Each step needs what its peak rises above its end. `None` without a leak.
    pub fn forecast(&self, capacity_bytes: u64) -> Option<Forecast> {
        if self.trend != Trend::Leak {
            return None;
        }
        let left_bytes = i128::from(capacity_bytes) - i128::from(self.floor_bytes) - i128::from(self.transient_bytes);
        let steps_left = left_bytes.max(0) / i128::from(self.slope_bytes.max(1));
        let steps_left = u64::try_from(steps_left).unwrap_or(u64::MAX);
        Some(Forecast { steps_left, failing_step: self.last_number.saturating_add(steps_left).saturating_add(1) })
    }

    /// The finding, if it is a leak or a one-time allocation. `growth` is what scopes' live blocks grew by in `growth_step_count`
    /// steps, see [`growth_by_group`](crate::diagnosis::growth_by_group).
    pub fn finding(
        &self,
        capacity_bytes: Option<u64>,
        growth: &[GroupGrowth],
        growth_step_count: u64,
    ) -> Option<Finding> {
        match self.trend {
            Trend::TooShort | Trend::Flat | Trend::Unclear => None,
            Trend::OneTime => Some(self.one_time(growth)),
            Trend::Leak => Some(self.leak(capacity_bytes, growth, growth_step_count)),
        }
    }

    fn one_time(&self, growth: &[GroupGrowth]) -> Finding {
        let Self { risen_bytes, rise_count, flat_step_count, unit, .. } = *self;
        let numbers = Numbers::OneTimeAllocation { risen_bytes, rise_count, flat_step_count };
        let headline = format!(
            "not a leak: {} more is live, it grew in {}, and has not grown for {}",
            Bytes(risen_bytes),
            unit.counted(rise_count),
            unit.counted(flat_step_count)
        );
        let advice = "allow it by name where a check compares before and after; warm up before measuring".to_owned();
        Finding::new(Severity::Note, numbers, headline).evidence(growth_lines(growth)).advice([advice])
    }

    fn leak(&self, capacity_bytes: Option<u64>, growth: &[GroupGrowth], growth_step_count: u64) -> Finding {
        let forecast = capacity_bytes.and_then(|bytes| self.forecast(bytes));
        let top = growth.first().filter(|_| growth_step_count > 0);
        let steps = i64::try_from(growth_step_count).unwrap_or(i64::MAX).max(1);
        // Growth that began late, divided by all steps, would say less than the slope does.
        let by_step = top.filter(|_| !self.is_late);
        let group_blocks_thousandths = by_step.map(|group| group.block_count.saturating_mul(1000) / steps);
        let (name, with_article) = (self.unit.name(), self.unit.with_article());
        let numbers = Numbers::Leak {
            slope_bytes: self.slope_bytes,
            step_count: self.step_count,
            floor_bytes: self.floor_bytes,
            group_slope_bytes: by_step.map(|group| group.size_bytes / steps),
            group_blocks_thousandths,
            steps_left: forecast.map(|forecast| forecast.steps_left),
            failing_step: forecast.map(|forecast| forecast.failing_step),
        };
        let mut headline = format!(
            "what is live at the end of {with_article} grows by {} ({} B) {with_article}, over {}{}",
            Bytes(self.slope_bytes),
            self.slope_bytes,
            if self.is_late { "the last " } else { "" },
            self.unit.counted(self.step_count)
        );
        if let Some(Forecast { steps_left, failing_step }) = forecast {
            headline.push_str(&format!(
                "; at most {} more fit, {name} {failing_step} fails at the latest",
                self.unit.counted(steps_left)
            ));
        }
        let owner = top.map(|group| {
            if self.is_late {
                let since = self.last_number.saturating_sub(growth_step_count);
                let size = Bytes(group.size_bytes);
                return format!(
                    "{} has grown by {size} and {:+} blocks since {name} {since}",
                    named(&group.scope),
                    group.block_count
                );
            }
            format!(
                "{} grows by {} and {:+.1} blocks {with_article}",
                named(&group.scope),
                Bytes(group.size_bytes / steps),
                group.block_count as f64 / steps as f64
            )
        });
        let mut advice =
            vec![format!("look for what each {name} appends to: losses kept with their graph, histories, hooks")];
        if let Some(group) = top {
            advice.insert(
                0,
                format!(
                    "drop what {} keeps before the {name} ends, or copy its values to the host",
                    named(&group.scope)
                ),
            );
        }
        Finding::new(Severity::Warning, numbers, headline).evidence(owner).evidence(growth_lines(growth)).advice(advice)
    }
}

fn named(scope: &str) -> String {
    if scope.is_empty() { "code outside of all scopes".to_owned() } else { format!("scope `{scope}`") }
}

fn growth_lines(growth: &[GroupGrowth]) -> Vec<String> {
    let places = growth.iter().flat_map(|group| group.places.iter().map(move |place| (group, place)));
    let line = |(group, (place, bytes, blocks)): (&GroupGrowth, &(String, i64, i64))| {
        format!("{:+} blocks, {}, allocated at {place} in {}", blocks, Bytes(*bytes), named(&group.scope))
    };
    places.take(LISTED_COUNT).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(floors: impl IntoIterator<Item = i64>) -> FloorTrend {
        let floor = |(number, live_bytes)| Floor { number, live_bytes, peak_bytes: None };
        judge_floors(&(1..).zip(floors).map(floor).collect::<Vec<_>>())
    }

    #[test]
    fn growth_that_repeats_is_a_leak_and_growth_that_ends_is_none() {
        assert_eq!(judged([]).trend, Trend::TooShort);
        assert_eq!(judged((0..9).map(|n| n * 10)).trend, Trend::TooShort);
        for count in 10..20 {
            assert_eq!(judged((0..count).map(|n| n * 10)).trend, Trend::Leak, "{count} steps");
        }
        assert_eq!(judged([5; 20]).trend, Trend::Flat);
        assert_eq!(judged((0..20).rev()).trend, Trend::Flat);
        assert_eq!(judged((0..40).map(|n: i64| n.min(25) * 10)).trend, Trend::OneTime, "a cache that fills up");
        assert_eq!(judged((0..20).map(|n: i64| if n < 2 { n * 1000 } else { 2000 })).trend, Trend::Flat, "a warm-up");
        assert_eq!(judged((0..40).map(|n: i64| n / 4 * 10)).trend, Trend::Leak, "in every fourth step");
    }

    #[test]
    fn what_rises_and_does_not_stay_is_not_called_a_one_time_allocation() {
        let late = |clean: i64, leaking: i64| judged((0..clean + leaking).map(|n| (n + 1 - clean).max(0) << 20));
        assert_eq!(late(300, 3).trend, Trend::Unclear);
        assert_eq!(late(300, 20).trend, Trend::Unclear);
        assert_eq!(judged((0..41).map(|n| if n % 2 == 0 { 10 } else { 1 })).trend, Trend::Flat);
        assert_eq!(judged((0..40).map(|n| if n % 2 == 1 { 10 } else { 1 })).trend, Trend::Unclear, "in turn");
        assert_eq!(judged((0..20).map(|n| i64::from(n > 16))).trend, Trend::Unclear, "not flat for long");
        assert_eq!(judged((0..20).map(|n| i64::from(n > 14))).trend, Trend::OneTime);
        assert_eq!(judged((0..100).map(|n| n / 40)).trend, Trend::Unclear, "it may rise again at the next fortieth");
    }

    #[test]
    fn a_leak_that_begins_late_is_told_by_the_latest_part() {
        let late = |clean: i64, leaking: i64| judged((0..clean + leaking).map(|n| (n + 1 - clean).max(0) << 20));
        let trend = late(300, 60);
        assert_eq!((trend.trend, trend.slope_bytes, trend.step_count), (Trend::Leak, 1 << 20, 64));
        assert_eq!(trend.forecast(70 << 20), Some(Forecast { steps_left: 10, failing_step: 371 }));
        let found = trend.finding(None, &[], 0).map(|finding| finding.headline);
        assert!(found.as_ref().is_some_and(|text| text.ends_with("over the last 64 steps")), "{found:?}");
        assert_eq!(judged((0..395).map(|n| n % 100)).trend, Trend::Unclear, "filled and emptied in turn");
        assert_eq!(
            judged((0..80).map(|n: i64| [0, 1, 2, 3][(n.max(44) as usize - 44) / 9])).trend,
            Trend::Unclear,
            "three workspaces"
        );
    }

    #[test]
    fn findings_by_epochs_count_epochs() {
        let leak = judged((0..12).map(|n| n * 10));
        let text = |trend: FloorTrend| trend.finding(Some(200), &[], 0).map(|finding| format!("{finding:#}"));
        let of_steps = text(leak).unwrap_or_default();
        assert!(
            of_steps
                .contains("end of a step grows by 10 B (10 B) a step, over 10 steps; at most 9 steps more fit, step 22 fails at the latest"),
            "{of_steps}"
        );
        let of_epochs = text(leak.of_epochs()).unwrap_or_default();
        assert!(
            of_epochs.contains("an epoch, over 10 epochs; at most 9 epochs more fit, epoch 22 fails"),
            "{of_epochs}"
        );
        assert!(!of_epochs.contains("step"), "{of_epochs}");
        let once = text(judged((0..20).map(|n| i64::from(n > 9))).of_epochs()).unwrap_or_default();
        assert!(once.contains("it grew in 1 epoch, and has not grown for 9 epochs"), "{once}");
    }

    #[test]
    fn what_has_come_back_to_its_start_or_rises_no_more_is_no_leak() {
        for tooth in [16, 20, 32, 50, 100, 200] {
            for teeth in 1..5 {
                let trend = judged((0..tooth * teeth).map(|n| n % tooth + 1).chain([0])).trend;
                assert_ne!(trend, Trend::Leak, "{teeth} teeth of {tooth}, and all is free");
                if teeth > 1 {
                    let trend = judged((0..tooth * teeth).map(|n| n % tooth + 1)).trend;
                    assert_ne!(trend, Trend::Leak, "{teeth} teeth of {tooth}, the last at its top");
                }
            }
        }
        let then_more = (0..50).map(|n| n % 50).chain((0..120).map(|n| n * 2));
        assert_eq!(judged(then_more).trend, Trend::Leak, "from the fall on it rises to a new height");
        assert_eq!(judged((0..120).map(|n: i64| n.min(100) << 20)).trend, Trend::Unclear, "full for twenty steps");
        assert_eq!(judged((0..120).map(|n: i64| n << 20)).trend, Trend::Leak);
        let with_a_cache = (0..200).map(|n| n % 10 * 10 + n);
        assert_eq!(judged(with_a_cache).trend, Trend::Leak, "one a step beside up to ninety that come and go");
    }

    #[test]
    fn the_slope_is_not_moved_by_a_few_steps_that_differ() {
        let noisy = (0..40).map(|n: i64| n * 100 + if n % 13 == 5 { 50_000 } else { 0 });
        let trend = judged(noisy);
        assert_eq!((trend.trend, trend.slope_bytes), (Trend::Leak, 100));
        assert_eq!(judged((0..10_000).map(|n| n * 7)).slope_bytes, 7, "of a long series a part is looked at");
    }

    #[test]
    fn the_forecast_leaves_room_for_the_peak_of_each_step() {
        let floors = |transient| {
            let floor = |n: i64| Floor { number: n as u64, live_bytes: n * 10, peak_bytes: Some(n * 10 + transient) };
            judge_floors(&(1..=20).map(floor).collect::<Vec<_>>())
        };
        assert_eq!(floors(0).forecast(255), Some(Forecast { steps_left: 5, failing_step: 26 }));
        assert_eq!(floors(30).forecast(255), Some(Forecast { steps_left: 2, failing_step: 23 }));
        assert_eq!(floors(300).forecast(255), Some(Forecast { steps_left: 0, failing_step: 21 }));
        assert_eq!(judged([5; 20]).forecast(255), None);
    }
}
