//! What a file says that the allocator did by itself: its history, its calls to the device, its segments at the end.

use memtrack::history::TraceAction;

use super::error::ReadError;
use super::json::At;
use super::{MOST_STREAM, OWN_STREAMS};

/// An entry of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Its place in the file: in the field `trace`, or the line.
    pub number: usize,
    /// What happened.
    pub action: TraceAction,
    /// Where; `None` where the file's address says something else.
    pub address: Option<u64>,
    /// How much.
    pub bytes: u64,
    /// For which stream, by its handle, where the file says it.
    pub stream: Option<u64>,
}

/// A history that a replay should have, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedHistory {
    /// Whether calls to the device are all that the file has.
    pub device_calls_alone: bool,
    /// In order.
    pub entries: Vec<HistoryEntry>,
}

/// Names and values, written out.
pub type Facts = Vec<(&'static str, String)>;

/// A segment at the end, as far as the file says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedSegment {
    /// Of the segment.
    pub facts: Facts,
    /// Of each block.
    pub blocks: Vec<Facts>,
}

/// Whether the allocator turns to the device.
pub fn is_device_call(action: TraceAction) -> bool {
    use TraceAction::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
    matches!(action, SegmentAlloc | SegmentFree | SegmentMap | SegmentUnmap)
}

/// Reads `[action, address, bytes, stream]`; a list of `count` items, of which the stream may not be one.
pub(super) fn entry(number: usize, item: &At<'_>, count: usize) -> Result<HistoryEntry, ReadError> {
    item.ends_at(count)?;
    let name = item.item(0, "the action")?;
    let unknown = |_| name.problem(format!("`{}` is no action of PyTorch's history", name.shown()));
    let action: TraceAction = name.text()?.parse().map_err(unknown)?;
    let address = item.item(1, "the address")?;
    // Of an out of memory it is what the device had free, or nothing.
    let address = if action == TraceAction::Oom { None } else { Some(address.unsigned()?) };
    let bytes = item.item(2, "the bytes")?.unsigned()?;
    let stream = match count {
        4 => Some(item.item(3, "the stream")?.at_most(OWN_STREAMS - 1, MOST_STREAM)?),
        _ => None,
    };
    Ok(HistoryEntry { number, action, address, bytes, stream })
}

/// Reads the list of segments that PyTorch's `memory_snapshot` gives.
pub(super) fn segments(list: &At<'_>) -> Result<Vec<ExpectedSegment>, ReadError> {
    let segment = |item: At<'_>| {
        let mut facts =
            numbers(&item, &["address", "total_size", "allocated_size", "active_size", "requested_size", "stream"])?;
        if let Some(kind) = item.optional("segment_type")? {
            facts.push(("segment_type", kind.text()?.to_owned()));
        }
        if let Some(pool) = item.optional("segment_pool_id")? {
            pool.ends_at(2)?;
            let number = |index| pool.item(index, "a number of the pool")?.unsigned();
            facts.push(("segment_pool_id", format!("({}, {})", number(0)?, number(1)?)));
        }
        if let Some(flag) = item.optional("is_expandable")? {
            facts.push(("is_expandable", flag.flag()?.to_string()));
        }
        let block = |item: At<'_>| {
            let mut facts = numbers(&item, &["address", "size", "requested_size"])?;
            if let Some(state) = item.optional("state")? {
                facts.push(("state", state.text()?.to_owned()));
            }
            Ok(facts)
        };
        let blocks = item.field("blocks")?.items()?.map(block).collect::<Result<_, ReadError>>()?;
        Ok(ExpectedSegment { facts, blocks })
    };
    list.items()?.map(segment).collect()
}

fn numbers(item: &At<'_>, names: &[&'static str]) -> Result<Facts, ReadError> {
    let mut facts = Facts::new();
    for name in names {
        if let Some(number) = item.optional(name)? {
            facts.push((name, number.unsigned()?.to_string()));
        }
    }
    Ok(facts)
}
