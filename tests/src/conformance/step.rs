//! One step of a program, the same for recordings and for random programs.

/// Blocks and pools go by numbers that the program gives them; a step about one that there is not does nothing, so steps
/// can be left out of a program. Streams are handles.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask for bytes.
    Allocate {
        /// The block's number.
        id: u64,
        /// Bytes.
        bytes: u64,
        /// On which stream.
        stream: u64,
        /// Of which thread; the first is 0.
        thread: usize,
    },
    /// Give a block back.
    Free {
        /// The block's number.
        id: u64,
    },
    /// The block is used on another stream too.
    RecordStream {
        /// The block's number.
        id: u64,
        /// The other stream.
        stream: u64,
    },
    /// Events recorded on the stream from now on do not complete.
    Busy {
        /// The stream.
        stream: u64,
    },
    /// The stream's events are complete.
    Idle {
        /// The stream.
        stream: u64,
    },
    /// So many of the oldest incomplete events are complete.
    CompleteEvents {
        /// How many.
        count: usize,
    },
    /// Every stream is idle.
    Synchronize,
    /// The call of that name.
    EmptyCache,
    /// Peaks become what is.
    ResetPeak,
    /// What accumulates becomes 0.
    ResetAccumulated,
    /// The memory fraction.
    Fraction {
        /// From 0 to 1, which is no limit.
        fraction: f64,
    },
    /// Other processes have so much of the device.
    OtherUse {
        /// Bytes.
        bytes: u64,
    },
    /// Settings at run time.
    Settings {
        /// As in `PYTORCH_CUDA_ALLOC_CONF`.
        text: String,
    },
    /// A new private pool.
    CreatePool {
        /// The pool's number.
        pool: u64,
        /// It helps out where memory runs out.
        use_on_oom: bool,
        /// Its blocks are not split.
        no_split: bool,
    },
    /// A thread's allocations go to the pool.
    EnterPool {
        /// The pool's number.
        pool: u64,
        /// Whose allocations.
        thread: usize,
    },
    /// They do no more.
    LeavePool {
        /// The pool's number.
        pool: u64,
    },
    /// The pool's owner drops it. Nothing while any pool is entered: there PyTorch stops the process.
    DeletePool {
        /// The pool's number.
        pool: u64,
    },
}
