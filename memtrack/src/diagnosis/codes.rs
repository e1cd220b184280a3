//! The codes of findings, and the figures that come with each.

use crate::device::Stream;

/// A figure as a whole number, for files and fields; `None` when it is unknown.
trait Figure {
    fn figure(&self) -> Option<i64>;
}

impl Figure for u64 {
    fn figure(&self) -> Option<i64> {
        Some(crate::units::signed(*self))
    }
}

impl Figure for i64 {
    fn figure(&self) -> Option<i64> {
        Some(*self)
    }
}

impl Figure for bool {
    fn figure(&self) -> Option<i64> {
        Some(i64::from(*self))
    }
}

impl Figure for Stream {
    fn figure(&self) -> Option<i64> {
        self.0.figure()
    }
}

impl<T: Figure> Figure for Option<T> {
    fn figure(&self) -> Option<i64> {
        self.as_ref().and_then(Figure::figure)
    }
}

macro_rules! findings {
    ($(
        $(#[$doc:meta])*
        $code:ident = $text:literal { $( $(#[$field_doc:meta])* $field:ident: $kind:ty, )* }
    )*) => {
        /// What kind of finding it is. The text form is stable: scripts and alerts may rely on it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FindingCode {
            $( $(#[$doc])* $code, )*
        }

        impl FindingCode {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$( Self::$code, )*];

            /// The text form, such as `fragmentation`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $( Self::$code => $text, )*
                }
            }
        }

        /// The figures of a finding. Sizes are bytes, rounded unless said otherwise.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Numbers {
            $(
                $(#[$doc])*
                #[non_exhaustive]
                $code { $( $(#[$field_doc])* $field: $kind, )* },
            )*
        }

        impl Numbers {
            /// The code they belong to.
            pub fn code(&self) -> FindingCode {
                match self {
                    $( Self::$code { .. } => FindingCode::$code, )*
                }
            }

            /// All figures by name, as whole numbers; yes is 1, and `None` stands for what is unknown.
            pub fn entries(&self) -> Vec<(&'static str, Option<i64>)> {
                match self {
                    $( Self::$code { $( $field, )* } => vec![$( (stringify!($field), $field.figure()), )*], )*
                }
            }

            /// The names of a code's figures.
            pub fn names(code: FindingCode) -> &'static [&'static str] {
                match code {
                    $( FindingCode::$code => &[$( stringify!($field), )*], )*
                }
            }
        }
    };
}

findings! {
    /// The request alone is larger than what may be reserved at all.
    RequestNeverFits = "request-never-fits" {
        /// As asked for.
        requested_bytes: u64,
        /// What may be reserved: the limit, or what the device has.
        capacity_bytes: u64,
        /// By how much the request is larger.
        short_bytes: u64,
        /// What the device has beyond the limit.
        withheld_bytes: u64,
        /// On the device and not this allocator's; unknown when the device did not say.
        outside_bytes: Option<u64>,
    }
    /// The allocator's own limit refuses, not the card.
    LimitRefuses = "limit-refuses" {
        /// As asked for.
        requested_bytes: u64,
        /// The segment that the request would have opened, or its whole pages where segments are expandable.
        segment_bytes: u64,
        /// What may be reserved.
        limit_bytes: u64,
        /// What is reserved.
        reserved_bytes: u64,
        /// Free on the device.
        device_free_bytes: Option<u64>,
        /// The least limit that holds what is reserved and what the request would have opened.
        needed_limit_bytes: u64,
    }
    /// What is live and the request are more than there is, however it were arranged.
    LiveMemoryTooLarge = "live-memory-too-large" {
        /// As asked for.
        requested_bytes: u64,
        /// Handed to the program.
        allocated_bytes: u64,
        /// In the cache, to be reused or given back; without what is idle beside blocks in use in the other pool of the same stream.
        cached_bytes: u64,
        /// What the device, or the limit, has left.
        room_bytes: u64,
        /// What is missing.
        short_bytes: u64,
    }
    /// There is room for the request but not for the segment that it opens.
    SegmentTooLarge = "segment-too-large" {
        /// As asked for.
        requested_bytes: u64,
        /// The segment that it opens by the settings, or its whole pages where segments are expandable.
        segment_bytes: u64,
        /// What the device, or the limit, has left.
        room_bytes: u64,
    }
    /// The device refused although it says that it has room.
    DeviceRefusesWithRoom = "device-refuses-with-room" {
        /// As asked for.
        requested_bytes: u64,
        /// What it refused.
        segment_bytes: u64,
        /// What it says is free.
        device_free_bytes: u64,
    }
    /// Enough is free, in places that each are too small.
    Fragmentation = "fragmentation" {
        /// As asked for.
        requested_bytes: u64,
        /// Handed to the program.
        allocated_bytes: u64,
        /// Taken from the device.
        reserved_bytes: u64,
        /// Free in segments that also hold live blocks.
        unused_inside_bytes: u64,
        /// How many places that is.
        hole_count: u64,
        /// The largest of them.
        largest_hole_bytes: u64,
        /// What the device, or the limit, has left.
        room_bytes: u64,
        /// What is missing in the largest place, inside or outside.
        short_bytes: u64,
        /// What is missing in the largest hole.
        hole_short_bytes: u64,
        /// Expandable segments are on.
        expandable_segments: bool,
    }
    /// A free block is large enough, and the split limit keeps it from the request.
    SplitLimitRefuses = "split-limit-refuses" {
        /// As asked for.
        requested_bytes: u64,
        /// The smallest free block that is large enough.
        block_bytes: u64,
        /// Blocks of this size or more are not cut.
        max_split_size_bytes: u64,
        /// What the device, or the limit, has left.
        room_bytes: u64,
    }
    /// Few live bytes keep a segment that could otherwise go back.
    PinnedSegment = "pinned-segment" {
        /// The segment.
        segment_bytes: u64,
        /// Free in it.
        idle_bytes: u64,
        /// Live in it.
        pinning_bytes: u64,
        /// In so many blocks.
        pinning_block_count: u64,
        /// What the device, or the limit, has left beside it.
        room_bytes: u64,
        /// The stream it serves.
        stream: Stream,
    }
    /// Free memory belongs to another stream or to a private pool.
    IdleCacheOfAnotherStream = "idle-cache-of-another-stream" {
        /// As asked for.
        requested_bytes: u64,
        /// The stream of the request.
        stream: Stream,
        /// Free in segments of the request's stream.
        own_idle_bytes: u64,
        /// Free in segments that serve others.
        other_idle_bytes: u64,
        /// The stream, besides the request's, that has the most.
        largest_stream: Stream,
        /// How much that one has.
        largest_stream_idle_bytes: u64,
        /// What the device, or the limit, has left.
        room_bytes: u64,
    }
    /// Blocks that the program gave back wait for other streams.
    PendingFrees = "pending-frees" {
        /// In blocks that wait.
        pending_bytes: u64,
        /// So many.
        pending_block_count: u64,
        /// Handed to the program.
        allocated_bytes: u64,
        /// What can be reused at once: reserved less active.
        reusable_bytes: u64,
    }
    /// What an attempt that ran out of memory allocated is still live, though the attempt is over.
    FailedAttemptAlive = "failed-attempt-alive" {
        /// Live of it, as asked for.
        alive_bytes: u64,
        /// In so many blocks.
        alive_block_count: u64,
        /// What the attempt had asked for when it failed.
        attempt_requested_bytes: u64,
    }
    /// Nothing in the figures forbids the request any more: others gave memory back between the failure and the look at it.
    FreedMeanwhile = "freed-meanwhile" {
        /// As asked for.
        requested_bytes: u64,
        /// Reserved and in no use now.
        idle_bytes: u64,
        /// The largest free block now that the request can be served from.
        largest_usable_bytes: u64,
        /// What the device, or the limit, has left now.
        room_bytes: u64,
    }
    /// A request of somebody else fails while this allocator keeps memory that it does not use.
    CacheStarvesOutside = "cache-starves-outside" {
        /// What was asked for outside.
        requested_bytes: u64,
        /// Reserved and not in use.
        idle_bytes: u64,
        /// Of that what emptying the cache would give back now: segments and pages wholly free, without those of private pools in use.
        returnable_bytes: u64,
        /// Free on the device.
        device_free_bytes: Option<u64>,
        /// On the device and not this allocator's.
        outside_bytes: Option<u64>,
        /// What is to stay free for others.
        headroom_bytes: u64,
        /// The limit that leaves it.
        cap_bytes: Option<u64>,
        /// The same as thousandths of what the device has.
        cap_thousandths: Option<u64>,
    }
    /// Memory that others have on the device would do for the request.
    OtherProcesses = "other-processes" {
        /// As asked for; 0 without a request.
        requested_bytes: u64,
        /// On the device and not this allocator's.
        outside_bytes: u64,
        /// Of that, other processes'; unknown without the driver's list.
        other_processes_bytes: Option<u64>,
        /// So many processes.
        process_count: Option<u64>,
        /// What the device has.
        device_total_bytes: u64,
    }
    /// What others have on the device has grown since it was first looked at.
    ForeignGrowth = "foreign-growth" {
        /// Then.
        before_bytes: u64,
        /// Now.
        now_bytes: u64,
        /// By so much.
        growth_bytes: i64,
        /// Of that in this process; unknown without the driver's list.
        own_process_bytes: Option<i64>,
    }
    /// The driver shows far more than the program has allocated.
    DriverAboveAllocated = "driver-above-allocated" {
        /// In use on the device.
        used_bytes: u64,
        /// Handed to the program.
        allocated_bytes: u64,
        /// Kept by the allocator.
        cached_bytes: u64,
        /// The context; unknown without the driver's view.
        context_bytes: Option<u64>,
        /// Other processes; unknown without the driver's list.
        other_processes_bytes: Option<u64>,
        /// What is left, with its sign.
        rest_bytes: i64,
    }
    /// Reserved is far above allocated.
    IdleCache = "idle-cache" {
        /// Taken from the device.
        reserved_bytes: u64,
        /// Handed to the program.
        allocated_bytes: u64,
        /// Of the difference what emptying the cache would give back now.
        returnable_bytes: u64,
    }
    /// Segments of many sizes, each used once: batches grow.
    GrowingSizes = "growing-sizes" {
        /// Segments that are wholly or nearly idle.
        idle_segment_count: u64,
        /// Of so many sizes.
        size_count: u64,
        /// Their bytes.
        idle_segment_bytes: u64,
        /// The largest.
        largest_segment_bytes: u64,
        /// Handed to the program.
        allocated_bytes: u64,
        /// Expandable segments are on.
        expandable_segments: bool,
    }
    /// The cache is given back and taken again in nearly every step.
    RetriesEveryStep = "retries-every-step" {
        /// Steps of the program, such as those of an epoch, in which the retries were counted; 0 without any.
        step_count: u64,
        /// Allocations in them that gave cached memory back and asked again.
        retry_count: u64,
        /// Taken from the device.
        reserved_bytes: u64,
        /// What may be reserved.
        limit_bytes: u64,
    }
    /// What blocks are rounded up to is far more than was asked for.
    RoundingOverhead = "rounding-overhead" {
        /// As asked for.
        requested_bytes: u64,
        /// Rounded.
        allocated_bytes: u64,
        /// Live blocks.
        block_count: u64,
    }
    /// What is live at the end of a step, or of an epoch, grows time after time. The series is either of steps or of epochs, and all
    /// figures count the same; the headline says which.
    Leak = "leak" {
        /// By so much per step, or per epoch.
        slope_bytes: i64,
        /// Steps, or epochs, that the slope was taken from; the first two of the series are left out.
        step_count: u64,
        /// Live at the end of the last of them.
        floor_bytes: i64,
        /// Of the growth, what the scope in the evidence owns, per step or per epoch; unknown of a leak that began late.
        group_slope_bytes: Option<i64>,
        /// And in so many blocks per step or per epoch, in thousandths.
        group_blocks_thousandths: Option<i64>,
        /// Steps, or epochs, that still fit; unknown when nobody said what may be live.
        steps_left: Option<u64>,
        /// The number of the step, or of the epoch, that will not.
        failing_step: Option<u64>,
    }
    /// What was allocated once and is kept, as a library's workspace: no leak.
    OneTimeAllocation = "one-time-allocation" {
        /// How much the floor, what is live at the end of a step or of an epoch, rose in all.
        risen_bytes: i64,
        /// In how many steps, or epochs, it rose.
        rise_count: u64,
        /// Steps, or epochs, at the end of the series without a rise; the headline says which.
        flat_step_count: u64,
    }
}

impl std::fmt::Display for FindingCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
