//! Comparing what the allocator did by itself with what the file says it did.

use memtrack::PoolKind;
use memtrack::history::{ContextLevel, HistoryOptions, Segment, TraceAction, TraceEntry};
use memtrack::plain_text::counted;

use super::verify::{Difference, Figure};
use crate::recording::{Expected, ExpectedHistory, ExpectedSegment, Facts, HistoryEntry, Kind, is_device_call};
use crate::session::Session;

const NOTHING: &str = "nothing";

/// Switches the history on where the file has one, and forgets what was recorded.
pub(super) fn start(expected: &Expected, session: &Session) {
    let device_calls_alone = match &expected.history {
        Some(history) => history.device_calls_alone,
        None if expected.device_calls.is_some() => true,
        None => return,
    };
    let skipped = TraceAction::ALL
        .into_iter()
        .filter(|action| *action == TraceAction::Snapshot || (device_calls_alone && !is_device_call(*action)));
    let options = HistoryOptions::new().context(ContextLevel::None).clear_history(true).skip_actions(skipped);
    session.allocator().record_memory_history(Some(&options));
}

fn recorded(session: &Session) -> Vec<TraceEntry> {
    session.allocator().snapshot().device_traces.into_iter().next().unwrap_or_default()
}

/// Puts completions that directly follow each other in the order of addresses: when several streams are done at once, PyTorch
/// completes their blocks in an order that is not specified.
fn in_one_order<T>(entries: &mut [T], completed: impl Fn(&T) -> Option<u64>) {
    for run in entries.chunk_by_mut(|entry, next| completed(entry).is_some() && completed(next).is_some()) {
        run.sort_by_key(&completed);
    }
}

/// The first entry that differs, with both sides in words.
fn first_difference(expected: &[HistoryEntry], got: &[TraceEntry]) -> Option<(usize, String, String)> {
    let is_completion = |action: Option<TraceAction>| action == Some(TraceAction::FreeCompleted);
    let (mut expected, mut got) = (expected.to_vec(), got.to_vec());
    in_one_order(&mut expected, |entry| entry.address.filter(|_| is_completion(Some(entry.action))));
    in_one_order(&mut got, |entry| is_completion(entry.action.known()).then_some(entry.addr));
    let same = |expected: &HistoryEntry, got: &TraceEntry| {
        got.action.known() == Some(expected.action)
            && expected.address.is_none_or(|address| address == got.addr)
            && expected.bytes == got.size
            && expected.stream.is_none_or(|stream| stream == got.stream.0)
    };
    (0..expected.len().max(got.len())).find_map(|place| {
        let (expected, got) = (expected.get(place), got.get(place));
        if expected.zip(got).is_some_and(|(expected, got)| same(expected, got)) {
            return None;
        }
        let expected = expected.map_or(NOTHING.to_owned(), |entry| {
            described(entry.action.name(), entry.address, entry.bytes, entry.stream)
        });
        let got = got.map_or(NOTHING.to_owned(), |entry| {
            let address = (entry.action.known() != Some(TraceAction::Oom)).then_some(entry.addr);
            described(entry.action.name(), address, entry.size, Some(entry.stream.0))
        });
        Some((place, expected, got))
    })
}

fn described(action: &str, address: Option<u64>, bytes: u64, stream: Option<u64>) -> String {
    let address = address.map_or(String::new(), |address| format!(" at {address}"));
    let stream = stream.map_or(String::new(), |stream| format!(" on stream {stream}"));
    format!("{action} of {}{address}{stream}", counted(bytes, "byte"))
}

/// The first of the device calls of a step that is not as the file has it; forgets them.
pub(super) fn compare_step(
    expected: &Expected,
    number: usize,
    operation: &str,
    session: &Session,
) -> Option<Difference> {
    let calls = expected.device_calls.as_ref()?.get(&number).map_or(&[][..], Vec::as_slice);
    let (place, expected_call, got) = first_difference(calls, &recorded(session)).or_else(|| {
        start(expected, session);
        None
    })?;
    Some(Difference {
        step: Some(number),
        operation: operation.to_owned(),
        key: format!("device[{place}]"),
        expected: Figure::Text(expected_call),
        got: Figure::Text(got),
    })
}

/// The first entry of the whole history that is not as the file has it.
pub(super) fn compare_whole(expected: &ExpectedHistory, kind: Kind, session: &Session) -> Option<Difference> {
    let (place, said, got) = first_difference(&expected.entries, &recorded(session))?;
    let entry = expected.entries.get(place);
    let (step, operation, key) = match (kind, entry) {
        (Kind::Trace, Some(entry)) => (Some(entry.number), entry.action.name(), "device call".to_owned()),
        (Kind::Trace, None) => (None, "end", "device call".to_owned()),
        _ => (None, "end", format!("trace[{}]", entry.map_or(place, |entry| entry.number))),
    };
    Some(Difference {
        step,
        operation: operation.to_owned(),
        key,
        expected: Figure::Text(said),
        got: Figure::Text(got),
    })
}

/// The first thing of the segments at the end that is not as the file has it.
///
/// What was asked for blocks that are free now is that of the last of several blocks, and so of no specified one where blocks of
/// several streams completed at once: it is compared only for blocks in use then.
pub(super) fn compare_segments(
    expected: &[ExpectedSegment],
    history: Option<&ExpectedHistory>,
    session: &Session,
) -> Option<Difference> {
    let order_is_open = history.is_some_and(|history| {
        let is_completion = |entry: &HistoryEntry| entry.action == TraceAction::FreeCompleted;
        let together = |pair: &[HistoryEntry]| pair.iter().all(is_completion) && pair[0].stream != pair[1].stream;
        history.entries.windows(2).any(together)
    });
    let got: Vec<ExpectedSegment> = session.allocator().memory_snapshot().iter().map(facts_of).collect();
    let (key, expected, got) = segments_difference(expected, &got, order_is_open)?;
    let operation = "end".to_owned();
    Some(Difference { step: None, operation, key, expected: Figure::Text(expected), got: Figure::Text(got) })
}

fn segments_difference(
    expected: &[ExpectedSegment],
    got: &[ExpectedSegment],
    order_is_open: bool,
) -> Option<(String, String, String)> {
    let is_free = |block: &Facts| block.iter().any(|(name, value)| *name == "state" && value == "inactive");
    for (place, (expected, got)) in expected.iter().zip(got).enumerate() {
        let path = format!("final_segments[{place}]");
        if let Some((name, expected, got)) = facts_difference(&expected.facts, &got.facts) {
            return Some((format!("{path}.{name}"), expected, got));
        }
        for (place, (expected, got)) in expected.blocks.iter().zip(&got.blocks).enumerate() {
            let got_block = got;
            if let Some((name, expected, got)) = facts_difference(expected, got)
                && !(order_is_open && name == "requested_size" && is_free(got_block))
            {
                return Some((format!("{path}.blocks[{place}].{name}"), expected, got));
            }
        }
        if expected.blocks.len() != got.blocks.len() {
            let count = |blocks: &[Facts]| counted(blocks.len() as u64, "block");
            return Some((format!("{path}.blocks"), count(&expected.blocks), count(&got.blocks)));
        }
    }
    let count = |segments: &[ExpectedSegment]| counted(segments.len() as u64, "segment");
    (expected.len() != got.len()).then(|| ("final_segments".to_owned(), count(expected), count(got)))
}

fn facts_difference(expected: &Facts, got: &Facts) -> Option<(&'static str, String, String)> {
    expected.iter().find_map(|(name, expected)| {
        let (_, got) = got.iter().find(|(known, _)| known == name)?;
        (expected != got).then(|| (*name, expected.clone(), got.clone()))
    })
}

fn facts_of(segment: &Segment) -> ExpectedSegment {
    let (first, second) = segment.segment_pool_id;
    let facts = vec![
        ("address", segment.address.to_string()),
        ("total_size", segment.total_size.to_string()),
        ("allocated_size", segment.allocated_size.to_string()),
        ("active_size", segment.active_size.to_string()),
        ("requested_size", segment.requested_size.to_string()),
        ("stream", segment.stream.0.to_string()),
        ("segment_type", if segment.segment_type == PoolKind::Small { "small" } else { "large" }.to_owned()),
        ("segment_pool_id", format!("({first}, {second})")),
        ("is_expandable", segment.is_expandable.to_string()),
    ];
    let blocks = segment.blocks.iter().map(|block| {
        vec![
            ("address", block.address.to_string()),
            ("size", block.size.to_string()),
            ("requested_size", block.requested_size.to_string()),
            ("state", block.state.name().to_owned()),
        ]
    });
    ExpectedSegment { facts, blocks: blocks.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(action: TraceAction, address: u64, stream: u64) -> HistoryEntry {
        HistoryEntry { number: 0, action, address: Some(address), bytes: 512, stream: Some(stream) }
    }

    #[test]
    fn completions_that_follow_each_other_may_come_in_any_order_and_others_not() {
        use TraceAction::{Alloc, FreeCompleted, FreeRequested};
        let ordered = |places: &[(TraceAction, u64)]| {
            let mut entries: Vec<_> = places.iter().map(|(action, address)| entry(*action, *address, 0)).collect();
            let completed = |entry: &HistoryEntry| entry.address.filter(|_| entry.action == FreeCompleted);
            in_one_order(&mut entries, completed);
            entries.iter().map(|entry| entry.address.unwrap_or(0)).collect::<Vec<_>>()
        };
        assert_eq!(ordered(&[(FreeCompleted, 3), (FreeCompleted, 1), (Alloc, 0), (FreeCompleted, 2)]), [1, 3, 0, 2]);
        assert_eq!(ordered(&[(FreeRequested, 3), (FreeRequested, 1), (FreeCompleted, 3)]), [3, 1, 3]);
        assert_eq!(ordered(&[(FreeCompleted, 3), (FreeRequested, 1), (FreeCompleted, 1)]), [3, 1, 1]);
    }
}
