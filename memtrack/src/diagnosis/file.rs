//! A view of a snapshot, so that findings can be made of a file.

use std::collections::HashMap;

use super::view::{AllocatorView, BlockView, LiveGroup, SegmentView, SettingsView};
use crate::history::{BlockStatus, Frame, SettingValue, Snapshot};
use crate::units::MIB;

/// PyTorch's, where a file does not say.
const LARGE_SEGMENT_BYTES: u64 = 20 * MIB;

impl AllocatorView {
    /// One device's part of a snapshot. A snapshot does not say what the device has, what is free on it and what the limit is: set them
    /// before findings are made, or those that need them stay out. Lines are those of recorded call sites; there are no scopes.
    pub fn from_snapshot(snapshot: &Snapshot, device: i32) -> Self {
        let mut view = Self { device: format!("cuda:{device}"), ..Self::default() };
        let mut group_of: HashMap<String, u32> = HashMap::new();
        for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
            view.reserved_bytes = view.reserved_bytes.saturating_add(segment.total_size);
            view.allocated_bytes = view.allocated_bytes.saturating_add(segment.allocated_size);
            view.active_bytes = view.active_bytes.saturating_add(segment.active_size);
            view.requested_bytes = view.requested_bytes.saturating_add(segment.requested_size);
            let mut blocks = Vec::with_capacity(segment.blocks.len());
            for block in &segment.blocks {
                let group = (block.state == BlockStatus::ActiveAllocated).then(|| {
                    let place = block.frames.first().map(place).unwrap_or_default();
                    let index = *group_of.entry(place).or_insert_with_key(|place| {
                        view.live.push(LiveGroup { place: place.clone(), ..LiveGroup::default() });
                        view.live.len() as u32 - 1
                    });
                    let group = &mut view.live[index as usize];
                    group.block_count += 1;
                    group.requested_bytes = group.requested_bytes.saturating_add(block.requested_size);
                    group.size_bytes = group.size_bytes.saturating_add(block.size);
                    index
                });
                blocks.push(BlockView { size_bytes: block.size, status: block.state, group });
            }
            view.segments.push(SegmentView {
                stream: segment.stream,
                pool: segment.segment_type,
                private_pool: (segment.segment_pool_id != (0, 0)).then_some(segment.segment_pool_id),
                // A file does not say; what is in a pool that nobody uses goes back when memory runs short.
                is_kept: segment.segment_pool_id != (0, 0),
                is_expandable: segment.is_expandable,
                blocks,
            });
        }
        view.settings = settings(snapshot);
        view.sort_live();
        view
    }
}

fn place(frame: &Frame) -> String {
    format!("{}:{}", frame.filename, frame.line)
}

fn settings(snapshot: &Snapshot) -> SettingsView {
    let get = |name| snapshot.allocator_settings.get(name);
    let max_split_size_bytes = match get("max_split_size") {
        Some(SettingValue::Integer(bytes)) => u64::try_from(*bytes).ok(),
        _ => None,
    };
    SettingsView {
        expandable_segments: get("expandable_segments") == Some(&SettingValue::Bool(true)),
        // Any device that PyTorch runs on.
        expandable_possible: true,
        max_split_size_bytes,
        large_segment_size_bytes: LARGE_SEGMENT_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{FindingCode, Request, examine_failure};
    use crate::history::{AllocatorSettings, Block, Segment};
    use crate::stats::PoolKind;

    #[test]
    fn a_file_has_the_findings_of_what_it_shows() {
        let block = |size, state, line| Block {
            size,
            requested_size: size,
            state,
            frames: [Frame::new("f", "train.py", line)].into(),
            ..Block::default()
        };
        let segment = |line| Segment {
            total_size: 530 * MIB,
            allocated_size: 270 * MIB,
            active_size: 270 * MIB,
            requested_size: 270 * MIB,
            segment_type: PoolKind::Large,
            blocks: vec![
                block(270 * MIB, BlockStatus::ActiveAllocated, line),
                block(260 * MIB, BlockStatus::Inactive, line),
            ],
            ..Segment::default()
        };
        let snapshot = Snapshot {
            segments: vec![segment(1), segment(2), segment(2), Segment { device: 1, ..segment(3) }],
            allocator_settings: AllocatorSettings::torch_defaults(""),
            ..Snapshot::default()
        };
        let mut view = AllocatorView::from_snapshot(&snapshot, 0);
        view.device_total_bytes = 2000 * MIB;
        view.device_free_bytes = Some(410 * MIB);
        assert_eq!([view.reserved_bytes, view.allocated_bytes, view.idle_bytes()], [1590 * MIB, 810 * MIB, 780 * MIB]);
        let live = view.live.iter().map(|group| (group.place.as_str(), group.block_count));
        assert_eq!(live.collect::<Vec<_>>(), [("train.py:2", 2), ("train.py:1", 1)]);
        let request = Request {
            requested_bytes: 530 * MIB,
            rounded_bytes: 530 * MIB,
            segment_bytes: 530 * MIB,
            stream: snapshot.segments[0].stream,
            pool: PoolKind::Large,
            private_pool: None,
            by_limit: false,
        };
        let findings = examine_failure(&view, &request);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.code(), FindingCode::Fragmentation);
        assert!(finding.evidence.iter().any(|line| line.ends_with("allocated at train.py:2")), "{finding:#}");
    }
}
