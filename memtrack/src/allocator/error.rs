//! Why an allocation was refused.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::private_pools::PoolId;
use super::rounding::SMALL_LIMIT_BYTES;
use crate::device::{DeviceError, Stream};
use crate::diagnosis::{Finding, FindingCode, Request, told_apart};
use crate::stats::PoolKind;
use crate::units::Bytes;

/// Why an allocator did not do as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationError {
    /// No memory for it, also after giving cached memory back.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A size of 2^60 bytes or more: a mistake in the program, not a full device.
    #[error(
        "tried to allocate {requested_bytes} bytes, more than any device has (the limit is 2^60 bytes); check the arithmetic that led to this size"
    )]
    TooLarge {
        /// As asked for; [`u64::MAX`] when the element count times the element size is larger than that.
        requested_bytes: u64,
    },
    /// A share of the device's memory that is not from 0 to 1.
    #[error("a memory fraction of {fraction} is invalid; write a number from 0 to 1")]
    InvalidFraction {
        /// As given.
        fraction: f64,
    },
    /// An address that this allocator did not hand out, or has taken back.
    #[error("invalid device pointer: {address:#x} is not the start of an allocation of this allocator")]
    InvalidPointer {
        /// As given.
        address: u64,
    },
    /// Two buffers, or a buffer and a slice, whose lengths differ.
    #[error("cannot copy {source_len} elements into a buffer of {target_len}; the lengths must be equal")]
    LengthMismatch {
        /// Elements given.
        source_len: usize,
        /// Elements there is room for.
        target_len: usize,
    },
    /// The device does not offer this access to its bytes.
    #[error("{device} memory cannot be {access}; {advice}")]
    NoAccess {
        /// The device's name.
        device: String,
        /// What was tried.
        access: &'static str,
        /// What to use instead.
        advice: &'static str,
    },
    /// A pool that allocations are led into already, by a guard or a capture.
    #[error(
        "memory pool {pool} is in use already: allocations are led into it by one guard or capture at a time; end the other first"
    )]
    PoolInUse {
        /// The pool.
        pool: PoolId,
    },
    /// What the native backend has alone.
    #[error("the backend cudaMallocAsync has no {what}; use the backend native")]
    NotWithBackend {
        /// What was asked for.
        what: &'static str,
    },
    /// All handles of the buffer's allocator are gone.
    #[error("the buffer's allocator has been dropped; keep a handle of it to allocate more")]
    AllocatorDropped,
    /// The device refused or failed otherwise.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Who refused the last attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The device has no room.
    Device,
    /// The allocator's own limit, set by a memory fraction.
    Limit,
}

/// An out of memory with its numbers. All sizes are bytes.
///
/// Its `Display` is the message; `{:#}` adds the [`findings`](Self::findings) with evidence and advice. Its `Debug` text is the message
/// and a line for each finding, since that is what a `main` that returns it prints; `{:#?}` lists the numbers.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The device's name.
    pub device: String,
    /// The stream of the request.
    pub stream: Stream,
    /// As asked for.
    pub requested_bytes: u64,
    /// The block that the request was rounded to.
    pub rounded_bytes: u64,
    /// What the device was asked for: the segment that the request would have opened.
    pub segment_bytes: u64,
    /// Who refused.
    pub refused_by: Refusal,
    /// Handed to the program at that moment, rounded.
    pub allocated_bytes: u64,
    /// Taken from the device at that moment.
    pub reserved_bytes: u64,
    /// The largest free block that a request of this size and stream can be served from: of its stream, and of the small or
    /// the large pool as its size says.
    pub largest_usable_block_bytes: u64,
    /// The largest free block of all, whichever stream and pool it belongs to.
    pub largest_free_block_bytes: u64,
    /// Free on the device, `None` when it did not say.
    pub device_free_bytes: Option<u64>,
    /// What the device has.
    pub device_total_bytes: u64,
    /// The allocator's limit, `None` without one.
    pub limit_bytes: Option<u64>,
    /// Cached memory that was given back to the device on the way, in vain.
    pub returned_bytes: u64,
    /// The phase the requesting thread was in.
    pub phase: Option<&'static str>,
    /// Why, see [`findings`](Self::findings).
    pub(super) findings: Vec<Finding>,
    /// See [`post_mortem`](Self::post_mortem).
    pub(super) post_mortem: Option<PathBuf>,
}

impl std::fmt::Debug for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !f.alternate() {
            write!(f, "{self}")?;
            return self.findings.iter().try_for_each(|finding| write!(f, "\n{finding}"));
        }
        f.debug_struct("OutOfMemory")
            .field("device", &self.device)
            .field("stream", &self.stream)
            .field("requested_bytes", &self.requested_bytes)
            .field("rounded_bytes", &self.rounded_bytes)
            .field("segment_bytes", &self.segment_bytes)
            .field("refused_by", &self.refused_by)
            .field("allocated_bytes", &self.allocated_bytes)
            .field("reserved_bytes", &self.reserved_bytes)
            .field("largest_usable_block_bytes", &self.largest_usable_block_bytes)
            .field("largest_free_block_bytes", &self.largest_free_block_bytes)
            .field("device_free_bytes", &self.device_free_bytes)
            .field("device_total_bytes", &self.device_total_bytes)
            .field("limit_bytes", &self.limit_bytes)
            .field("returned_bytes", &self.returned_bytes)
            .field("phase", &self.phase)
            .field("findings", &self.findings)
            .field("post_mortem", &self.post_mortem)
            .finish()
    }
}

impl std::error::Error for OutOfMemory {}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = Bytes::unsigned;
        // These are compared by whoever reads them.
        let free_bytes = self.device_free_bytes.unwrap_or(self.requested_bytes);
        let [_, segment, free, usable] = told_apart(
            [self.requested_bytes, self.segment_bytes, free_bytes, self.largest_usable_block_bytes],
            |bytes| size(bytes).to_string(),
        );
        write!(
            f,
            "out of memory on {}: tried to allocate {} ({} bytes)",
            self.device,
            size(self.requested_bytes),
            self.requested_bytes,
        )?;
        // Equal where memory comes from the driver's own pool, without segments.
        if self.segment_bytes != self.requested_bytes {
            write!(f, ", which needs a segment of {segment}")?;
        }
        f.write_str("; ")?;
        match self.refused_by {
            Refusal::Device => f.write_str("the device has no room")?,
            Refusal::Limit => f.write_str("the memory fraction allows no more")?,
        }
        write!(f, ". {} has a total capacity of {}", self.device, size(self.device_total_bytes))?;
        match self.device_free_bytes {
            Some(_) => write!(f, " of which {free} is free")?,
            None => f.write_str(" (how much of it is free is unknown)")?,
        }
        if let Some(limit_bytes) = self.limit_bytes {
            write!(f, "; {} allowed", size(limit_bytes))?;
        }
        let cached_bytes = self.reserved_bytes.saturating_sub(self.allocated_bytes);
        write!(
            f,
            ". Of {} reserved, {} is allocated and {} is cached, the largest free block for this request being {usable}",
            size(self.reserved_bytes),
            size(self.allocated_bytes),
            size(cached_bytes),
        )?;
        if self.largest_free_block_bytes > self.largest_usable_block_bytes {
            write!(f, " (of all streams and pools {})", size(self.largest_free_block_bytes))?;
        }
        if self.returned_bytes > 0 {
            write!(f, "; {} of cached memory was given back first, in vain", size(self.returned_bytes))?;
        }
        if let Some(phase) = self.phase {
            write!(f, " (phase {phase})")?;
        }
        write!(f, ". {}", self.advice())?;
        if f.alternate() {
            self.findings.iter().try_for_each(|finding| write!(f, "\n{finding:#}"))?;
        }
        Ok(())
    }
}

impl OutOfMemory {
    /// Why it failed, the most likely cause first, from the state of the allocator at that moment.
    ///
    /// `docs/findings.md` lists what there can be. With the backend `cudaMallocAsync` only findings that need no segments come.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The folder that a post-mortem was written to, if one was; see [`post_mortem`](crate::post_mortem).
    pub fn post_mortem(&self) -> Option<&Path> {
        self.post_mortem.as_deref()
    }

    /// The out of memory that `error` is, or that is behind it: in an [`AllocationError`], or in the chain of its sources.
    pub fn behind<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(AllocationError::OutOfMemory(found)) = error.downcast_ref() {
                return Some(found);
            }
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// The codes of the findings, separated by commas; `none` without any.
    pub(super) fn codes(&self) -> String {
        if self.findings.is_empty() {
            return "none".to_owned();
        }
        self.findings.iter().map(|finding| finding.code().as_str()).collect::<Vec<_>>().join(",")
    }

    /// What the findings are about, as if it had been for the default pools.
    pub(super) fn request(&self) -> Request {
        let pool = if self.rounded_bytes <= SMALL_LIMIT_BYTES { PoolKind::Small } else { PoolKind::Large };
        Request {
            requested_bytes: self.requested_bytes,
            rounded_bytes: self.rounded_bytes,
            segment_bytes: self.segment_bytes,
            stream: self.stream,
            pool,
            private_pool: None,
            by_limit: self.refused_by == Refusal::Limit,
        }
    }

    /// One sentence on what to do: that of the first finding, so that the two never differ; from the numbers where nothing was found.
    fn advice(&self) -> Cow<'static, str> {
        let within_limit_bytes = self.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.reserved_bytes));
        let room_bytes = self.device_free_bytes.unwrap_or(0).min(within_limit_bytes);
        if let Some(finding) = self.findings.first() {
            return self.advice_of(finding);
        }
        if self.rounded_bytes > self.limit_bytes.unwrap_or(self.device_total_bytes) {
            NEVER_FITS.into()
        } else if room_bytes >= self.rounded_bytes && room_bytes < self.segment_bytes {
            "There is room for the request but not for its segment: free buffers earlier".into()
        } else {
            FREE_EARLIER.into()
        }
    }

    fn advice_of(&self, finding: &Finding) -> Cow<'static, str> {
        let lines = || finding.advice.join("; ");
        match finding.code() {
            FindingCode::RequestNeverFits => NEVER_FITS.into(),
            FindingCode::FailedAttemptAlive => {
                "An earlier attempt that failed still holds memory: drop its error value before trying again".into()
            }
            FindingCode::LiveMemoryTooLarge
                if self.segment_bytes > self.limit_bytes.unwrap_or(self.device_total_bytes) =>
            {
                "Make the batch smaller: no freeing makes room for a segment of that size".into()
            }
            FindingCode::LimitRefuses
                if self.findings.iter().any(|other| other.code() == FindingCode::IdleCacheOfAnotherStream)
                    && self.largest_free_block_bytes >= self.rounded_bytes =>
            {
                "Raise the memory fraction; or free what holds the segment of a free block of that size, which belongs to another stream \
                 or pool"
                    .into()
            }
            FindingCode::LimitRefuses if self.limit_bytes.is_some_and(|limit| self.segment_bytes > limit) => {
                "Raise the memory fraction: no freeing makes room for a segment of that size".into()
            }
            FindingCode::LimitRefuses => {
                "Raise the memory fraction, free buffers earlier, or make the batch smaller".into()
            }
            FindingCode::Fragmentation => {
                "Enough is cached, but in pieces that do not fit together: allocate large and long-lived buffers before small ones"
                    .into()
            }
            FindingCode::IdleCacheOfAnotherStream => {
                let what = if self.largest_free_block_bytes >= self.rounded_bytes {
                    "A free block of that size belongs to another stream or pool, and its segment is in use"
                } else {
                    "Much of what is idle belongs to another stream or pool"
                };
                let how = finding.advice.first().map_or(FREE_EARLIER, String::as_str);
                format!("{what}: {how}").into()
            }
            FindingCode::SplitLimitRefuses => {
                format!("A free block is large enough, but the split limit keeps it: {}", lines()).into()
            }
            FindingCode::PinnedSegment => format!("Few live bytes keep a segment: {}", lines()).into(),
            FindingCode::SegmentTooLarge => {
                format!("There is room for the request but not for its segment: {}", lines()).into()
            }
            FindingCode::DeviceRefusesWithRoom => {
                "The device refused although it says that it has room: try again, or ask for less at once".into()
            }
            FindingCode::PendingFrees => {
                "What was given back waits for other streams: let the stream that lags behind catch up".into()
            }
            FindingCode::FreedMeanwhile => "Memory has been given back meanwhile: try again".into(),
            FindingCode::OtherProcesses | FindingCode::ForeignGrowth => {
                "Others hold what is missing: end or move them, free buffers earlier or make the batch smaller".into()
            }
            _ => FREE_EARLIER.into(),
        }
    }
}

const NEVER_FITS: &str = "No freeing can help: the request alone is larger than what may be reserved";
const FREE_EARLIER: &str = "Free buffers earlier or make the batch smaller";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{AllocatorView, SettingsView, examine_failure};
    use crate::units::{GIB, MIB};

    #[test]
    fn the_advice_follows_from_the_numbers() {
        let error = OutOfMemory {
            device: "cuda:0".to_owned(),
            stream: Stream::DEFAULT,
            requested_bytes: 100 * MIB,
            rounded_bytes: 100 * MIB,
            segment_bytes: 100 * MIB,
            refused_by: Refusal::Device,
            allocated_bytes: GIB,
            reserved_bytes: GIB,
            largest_usable_block_bytes: 0,
            largest_free_block_bytes: 0,
            device_free_bytes: Some(10 * MIB),
            device_total_bytes: 2 * GIB,
            limit_bytes: None,
            returned_bytes: 0,
            phase: None,
            findings: Vec::new(),
            post_mortem: None,
        };
        let advises = |error: OutOfMemory, advice: &str| {
            let text = error.to_string();
            assert!(text.contains(advice), "`{advice}` in `{text}`");
        };
        advises(error.clone(), ". Free buffers earlier or make the batch smaller");
        let explained = |error: OutOfMemory, large_segment_size_bytes| {
            let view = AllocatorView {
                allocated_bytes: error.allocated_bytes,
                active_bytes: error.allocated_bytes,
                reserved_bytes: error.reserved_bytes,
                limit_bytes: error.limit_bytes,
                device_free_bytes: error.device_free_bytes,
                device_total_bytes: error.device_total_bytes,
                settings: SettingsView { large_segment_size_bytes, ..SettingsView::default() },
                ..AllocatorView::default()
            };
            OutOfMemory { findings: examine_failure(&view, &error.request()), ..error }
        };
        let limited = OutOfMemory { refused_by: Refusal::Limit, limit_bytes: Some(GIB), ..error.clone() };
        advises(explained(limited.clone(), 20 * MIB), ". Free buffers earlier");
        let card_has_room = OutOfMemory { device_free_bytes: Some(500 * MIB), ..limited };
        advises(explained(card_has_room, 20 * MIB), ". Raise the memory fraction");
        advises(OutOfMemory { rounded_bytes: 3 * GIB, ..error.clone() }, ". No freeing can help");
        let medium = OutOfMemory { rounded_bytes: 5 * MIB, segment_bytes: 20 * MIB, ..error.clone() };
        advises(medium.clone(), ". There is room for the request but not for its segment: free buffers earlier");
        advises(explained(medium.clone(), 20 * MIB), "its segment: free at least 10.00 MiB earlier");
        let more_room = OutOfMemory { device_free_bytes: Some(11 * MIB), ..medium.clone() };
        advises(
            explained(more_room, 20 * MIB),
            "its segment: set large_segment_size_mb to 11 (it is 20): such a segment fits now; set from the start it may help; free at \
             least 9.00 MiB earlier",
        );
        let refused_with_room = OutOfMemory { device_free_bytes: Some(20 * MIB), ..medium };
        advises(explained(refused_with_room, 20 * MIB), ". The device refused although it says that it has room");
        let nearly = OutOfMemory { device_free_bytes: Some(100 * MIB - 512), ..error.clone() };
        advises(nearly, " of which 100.00 MiB (104857088 B) is free");
        let small = OutOfMemory { rounded_bytes: MIB, segment_bytes: 2 * MIB, ..error.clone() };
        advises(small, ". Free buffers earlier");
        let own_block_too_small = OutOfMemory {
            requested_bytes: 80 * MIB,
            largest_usable_block_bytes: 90 * MIB,
            largest_free_block_bytes: 90 * MIB,
            ..error.clone()
        };
        advises(own_block_too_small, ". Free buffers earlier");
        assert_eq!(format!("{error:?}"), error.to_string(), "what a `main` that returns it prints");
    }
}
