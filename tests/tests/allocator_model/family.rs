//! Families of random programs: settings that belong together, and how often each kind of step comes.

/// What the programs of a family have in common.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// One of these at the start.
    pub(crate) settings: &'static [&'static str],
    /// One of these as memory fraction at the start.
    pub(crate) fractions: &'static [f64],
    /// So many of the streams.
    pub(crate) streams: usize,
    /// So many threads.
    pub(crate) threads: usize,
    pub(crate) pools: bool,
    /// Any of these at run time.
    pub(crate) later_settings: &'static [&'static str],
    /// Most blocks are used by other streams too, which are busy most of the time.
    pub(crate) waits: bool,
    /// The card is nearly full of other processes' memory, and gaps are made in expandable segments.
    pub(crate) full_card: bool,
    /// Steps of a program, from and up to.
    pub(crate) steps: (u64, u64),
}

const PLAIN: Family = Family {
    name: "default rules",
    settings: &[""],
    fractions: &[1.0, 0.3],
    streams: 3,
    threads: 1,
    pools: false,
    later_settings: &[],
    waits: false,
    full_card: false,
    steps: (100, 140),
};

const SHORT: (u64, u64) = (30, 80);

const MIXED_SETTINGS: &[&str] = &[
    "expandable_segments:True",
    "expandable_segments:True",
    "expandable_segments:False",
    "expandable_segments:False",
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:40,expandable_segments:True",
    "max_split_size_mb:32,max_non_split_rounding_mb:64",
    "garbage_collection_threshold:0.3",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:2,4:4,16:8,>:1]",
    "roundup_power2_divisions:[>:4]",
    "large_segment_size_mb:30",
    "large_segment_size_mb:12",
    "large_segment_size_mb:20,max_split_size_mb:24,garbage_collection_threshold:0.5,expandable_segments:True",
];

/// Texts that are odd, but taken, and texts with a mistake, which are taken up to it.
const ODD_SETTINGS: &[&str] = &[
    "expandable_segments,True",
    " max_split_size_mb : 24abc , expandable_segments : False,",
    "max_split_size_mb:-1",
    "roundup_power2_divisions:[4:2,1:8]",
    "roundup_power2_divisions:[]",
    "max_split_size_mb:30,max_split_size_mb:24",
    "max_split_size_mb:24,foo:1,expandable_segments:True",
    "expandable_segments:True,max_split_size_mb:5",
    "expandable_segments:yes,max_split_size_mb:24",
    "garbage_collection_threshold:0.4,max_split_size_mb",
    "max_split_size_mb:30,,expandable_segments:True",
    "max_split_size_mb:24,roundup_power2_divisions:3",
    "roundup_power2_divisions:8,garbage_collection_threshold:1.2",
    "large_segment_size_mb:10,max_split_size_mb:24",
    "expandable_segments:False,backend:cudaMallocAsync",
    "max_split_size_mb:24,pinned_num_register_threads:3,expandable_segments:True",
    "per_process_memory_fraction:0.1",
    "max_split_size_mb:99999999999999999999",
];

/// All families.
pub(crate) const FAMILIES: &[Family] = &[
    PLAIN,
    Family {
        name: "split limits",
        settings: &[
            "max_split_size_mb:20",
            "max_split_size_mb:21",
            "max_split_size_mb:32,max_non_split_rounding_mb:64",
            "large_segment_size_mb:12,max_split_size_mb:12",
            "large_segment_size_mb:50,max_split_size_mb:64",
        ],
        fractions: &[1.0, 0.4],
        streams: 2,
        ..PLAIN
    },
    Family {
        name: "rounding to fractions of powers of two",
        settings: &[
            "roundup_power2_divisions:2",
            "roundup_power2_divisions:8",
            "roundup_power2_divisions:[1:2,4:4,16:8,>:1]",
            "roundup_power2_divisions:[1:0,>:4]",
            "roundup_power2_divisions:4,max_split_size_mb:24",
        ],
        fractions: &[0.5],
        streams: 2,
        ..PLAIN
    },
    Family {
        name: "garbage collection",
        settings: &[
            "garbage_collection_threshold:0.1",
            "garbage_collection_threshold:0.5",
            "garbage_collection_threshold:0.8",
            "garbage_collection_threshold:0.3,max_split_size_mb:25,roundup_power2_divisions:4",
        ],
        fractions: &[1.0, 0.999, 0.4],
        ..PLAIN
    },
    Family { name: "streams that wait for each other", fractions: &[0.06, 0.15], streams: 2, waits: true, ..PLAIN },
    Family {
        name: "expandable segments",
        settings: &[
            "expandable_segments:True",
            "expandable_segments:True",
            "expandable_segments:True,max_split_size_mb:20",
            "expandable_segments:True,garbage_collection_threshold:0.3",
            "expandable_segments:True,roundup_power2_divisions:4",
            "expandable_segments:True,large_segment_size_mb:40",
        ],
        fractions: &[1.0, 0.5, 0.2],
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "expandable segments and streams that wait",
        settings: &["expandable_segments:True"],
        fractions: &[0.06, 0.15],
        streams: 2,
        waits: true,
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "expandable segments on a full card",
        settings: &["expandable_segments:True", "expandable_segments:True,large_segment_size_mb:12"],
        fractions: &[1.0],
        streams: 1,
        full_card: true,
        ..PLAIN
    },
    Family {
        name: "a full card",
        settings: &["", "max_split_size_mb:20"],
        fractions: &[1.0],
        full_card: true,
        ..PLAIN
    },
    Family {
        name: "split limits that come and go",
        fractions: &[0.3, 0.4],
        streams: 1,
        later_settings: &["", "max_split_size_mb:20", "max_split_size_mb:20", "max_split_size_mb:32"],
        ..PLAIN
    },
    Family {
        name: "settings at run time",
        settings: &["", "expandable_segments:True", "max_split_size_mb:24"],
        fractions: &[1.0, 0.999, 0.4],
        later_settings: MIXED_SETTINGS,
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "odd settings at run time",
        settings: &["", "expandable_segments:True"],
        fractions: &[0.999, 0.4],
        later_settings: ODD_SETTINGS,
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "pools",
        settings: &["", "max_split_size_mb:20", "garbage_collection_threshold:0.3"],
        fractions: &[1.0, 0.4, 0.2],
        streams: 2,
        pools: true,
        steps: SHORT,
        ..PLAIN
    },
    Family { name: "pools for out of memory", fractions: &[0.1, 0.2], streams: 1, pools: true, ..PLAIN },
    Family {
        name: "expandable pools",
        settings: &["expandable_segments:True"],
        fractions: &[1.0, 0.4],
        streams: 2,
        pools: true,
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "pools and streams that wait",
        settings: &["", "expandable_segments:True"],
        fractions: &[0.15, 0.3],
        streams: 2,
        pools: true,
        waits: true,
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "everything in one thread",
        settings: &["", "expandable_segments:True"],
        fractions: &[0.999, 0.4],
        pools: true,
        later_settings: MIXED_SETTINGS,
        steps: SHORT,
        ..PLAIN
    },
    Family {
        name: "everything in two threads",
        settings: &["", "expandable_segments:True"],
        fractions: &[0.999, 0.4],
        threads: 2,
        pools: true,
        later_settings: MIXED_SETTINGS,
        steps: SHORT,
        ..PLAIN
    },
];
