//! Random programs: what a step can be, and how steps are drawn so that the interesting sizes and states come up often.

use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// One step. Picks are taken modulo the number of live blocks; streams are indices into [`STREAMS`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Allocate { bytes: u64, stream: usize },
    Free { pick: usize },
    RecordStream { pick: usize, stream: usize },
    Busy { stream: usize },
    Idle { stream: usize },
    Synchronize,
    EmptyCache,
    ResetPeak,
    ResetAccumulated,
    Fraction { thousandths: u32 },
    OtherUse { mebibytes: u64 },
}

/// Handles whose order is not that of their indices: pools are walked in the order of handles.
pub(crate) const STREAMS: [u64; 4] = [0, u64::MAX, 0x7f00_1234_5670, 3];

/// Sizes at which a rule changes its answer.
const TURNING_POINTS: [u64; 24] = [
    0,
    512,
    1024,
    64 << 10,
    MIB / 2,
    MIB - 512,
    MIB,
    MIB + 512,
    2 * MIB,
    5 * MIB,
    9 * MIB,
    10 * MIB - 512,
    10 * MIB,
    12 * MIB,
    18 * MIB,
    19 * MIB,
    20 * MIB,
    21 * MIB,
    25 * MIB,
    31 * MIB,
    32 * MIB,
    40 * MIB,
    52 * MIB,
    64 * MIB,
];

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (prop::sample::select(&TURNING_POINTS[..]), prop::sample::select(&[-513_i64, -512, -1, 0, 0, 0, 1, 512][..]))
            .prop_map(|(bytes, offset)| bytes.saturating_add_signed(offset).max(1)),
        3 => 1..4096_u64,
        2 => 1..MIB,
        3 => MIB..12 * MIB,
        1 => 12 * MIB..80 * MIB,
    ]
}

fn step(streams: usize) -> impl Strategy<Value = Step> {
    let pick = 0..usize::MAX;
    let stream = move || 0..streams;
    prop_oneof![
        40 => (size(), stream()).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        30 => pick.clone().prop_map(|pick| Step::Free { pick }),
        6 => (pick, stream()).prop_map(|(pick, stream)| Step::RecordStream { pick, stream }),
        2 => stream().prop_map(|stream| Step::Busy { stream }),
        2 => stream().prop_map(|stream| Step::Idle { stream }),
        1 => Just(Step::Synchronize),
        1 => Just(Step::EmptyCache),
        1 => Just(Step::ResetPeak),
        1 => Just(Step::ResetAccumulated),
        // 1000 takes the limit away, and with it the counting of searches for the garbage collector.
        1 => prop_oneof![Just(1000), 0..=1000_u32].prop_map(|thousandths| Step::Fraction { thousandths }),
        1 => (0..200_u64).prop_map(|mebibytes| Step::OtherUse { mebibytes }),
    ]
}

/// A program of 100 to 140 steps on up to `streams` streams.
pub(crate) fn program(streams: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(streams), 100..140)
}

/// A program on one or two streams in which most blocks are used by other streams too, which are busy most of the time.
pub(crate) fn waiting_program() -> impl Strategy<Value = Vec<Step>> {
    let pick = 0..usize::MAX;
    let bytes = prop_oneof![4 => MIB..12 * MIB, 1 => size()];
    let step = prop_oneof![
        40 => (bytes, 0..2_usize).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        20 => pick.clone().prop_map(|pick| Step::Free { pick }),
        30 => (pick, 1..4_usize).prop_map(|(pick, stream)| Step::RecordStream { pick, stream }),
        8 => (1..4_usize).prop_map(|stream| Step::Busy { stream }),
        1 => (1..4_usize).prop_map(|stream| Step::Idle { stream }),
        1 => Just(Step::EmptyCache),
    ];
    prop::collection::vec(step, 100..140)
}
