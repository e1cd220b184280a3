//! The strict reader of settings: mistakes are errors that name their place, and what it accepts PyTorch reads the same way.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::process::Command;
use std::sync::Arc;

use memtrack::device::{Simulated, Stream};
use memtrack::{Backend, CachingAllocator, Config, TorchConfigError};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Set in the process that a test starts to read the environment.
const CHILD: &str = "MEMTRACK_TEST_CHILD";

#[test]
fn r23_a_malformed_option_string_is_an_error_that_names_key_and_place() {
    // The text, the key, the character where the mistake is, and a part of what is said.
    let bad = [
        ("max_split_size_mb", "", 1, "`max_split_size_mb` has no value"),
        ("max_split_size_mb:", "max_split_size_mb", 19, "must be a whole number"),
        ("max_split_size_mb:128,", "", 23, "a key is missing"),
        (",", "", 1, "a key is missing"),
        (":128", "", 1, "a key is missing before the colon"),
        ("max_split_size_mb:abc", "max_split_size_mb", 19, "must be a whole number"),
        ("max_split_size_mb:-1", "max_split_size_mb", 19, "must be a whole number"),
        ("max_split_size_mb:99999999999999999999", "max_split_size_mb", 19, "too large"),
        ("max_split_size_mb:19", "max_split_size_mb", 19, "at least the large segment size, 20"),
        ("garbage_collection_threshold:1.5", "garbage_collection_threshold", 30, "below 1"),
        ("garbage_collection_threshold:0", "garbage_collection_threshold", 30, "above 0"),
        ("garbage_collection_threshold:nan", "garbage_collection_threshold", 30, "must be a number"),
        ("expandable_segments:yes", "expandable_segments", 21, "must be True or False"),
        ("expandable_segments:true", "expandable_segments", 21, "must be True or False"),
        ("roundup_power2_divisions:[256:1,512:2", "roundup_power2_divisions", 26, "closing bracket"),
        ("roundup_power2_divisions:[]", "roundup_power2_divisions", 26, "no pair"),
        ("max_split_size_mb:128,max_split_size_mb:64", "max_split_size_mb", 23, "given twice"),
        (
            "release_lock_on_cudamalloc:True, release_lock_on_hipmalloc:True",
            "release_lock_on_hipmalloc",
            34,
            "given twice",
        ),
        ("backend:cuda", "backend", 9, "native and cudaMallocAsync"),
        ("pinned_num_register_threads:3", "pinned_num_register_threads", 29, "power of two, at most 128"),
        ("pinned_num_register_threads:256", "pinned_num_register_threads", 29, "power of two, at most 128"),
        ("pinned_reserve_segment_size_mb:0", "pinned_reserve_segment_size_mb", 32, "more than 0"),
        ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom", 1, "unknown key"),
        ("expandable_segments_page_size:2", "expandable_segments_page_size", 1, "unknown key"),
        ("torch_exact:1", "torch_exact", 13, "must be True or False"),
    ];
    for (text, key, position, problem) in bad {
        let error = text.parse::<Config>().unwrap_err();
        assert_eq!((error.key.as_str(), error.position), (key, position), "{error}");
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(error.text, text);
    }
    assert_eq!("".parse(), Ok(Config::default()));
    let mut split = Config::default();
    split.max_split_size_bytes = Some(128 * MIB);
    assert_eq!(" max_split_size_mb : 128 ".parse(), Ok(split.clone()), "blanks around keys and values");
    assert_eq!("\tmax_split_size_mb\n:128".parse(), Ok(split.clone()));
    assert!("max_split _size_mb:128".parse::<Config>().is_err(), "none inside");
    assert!("\u{a0}max_split_size_mb:128".parse::<Config>().is_err(), "and none that PyTorch takes for text");
    split.max_split_size_bytes = Some(20 * MIB);
    assert_eq!("max_split_size_mb:20".parse(), Ok(split));
}

#[test]
fn r23_the_variable_is_named_and_a_program_that_never_allocates_runs() {
    if std::env::var_os(CHILD).is_some() {
        match Config::from_env() {
            Ok(config) => println!("read {:?}", config.max_split_size_bytes),
            Err(error) => println!("refused {error}"),
        }
        return;
    }
    let child = |text: &str| {
        let name = "r23_the_variable_is_named_and_a_program_that_never_allocates_runs";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").env("MEMTRACK_ALLOC_CONF", text);
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(child("max_split_size_mb:64").contains("read Some(67108864)"));
    assert!(child("").contains("read None"));
    let refused = child("max_split_size_mb");
    let expected =
        "refused MEMTRACK_ALLOC_CONF: allocator configuration, character 1: `max_split_size_mb` has no value";
    assert!(refused.contains(expected), "{refused}");
}

/// The size of a block and what is counted as asked for.
fn block(config: &Config, bytes: u64) -> (u64, u64) {
    let device = Arc::new(Simulated::with_capacity(16 << 30));
    let allocator = CachingAllocator::with_config(device, config.clone()).unwrap();
    let address = allocator.allocate_raw(bytes, Stream::DEFAULT).unwrap();
    let stats = allocator.memory_stats();
    allocator.free_raw(address).unwrap();
    let figures = [stats.allocated_bytes.all.current, stats.requested_bytes.all.current];
    let [rounded, requested] = figures.map(|bytes| u64::try_from(bytes).unwrap());
    (rounded, requested)
}

#[test]
fn r24_power_of_two_rounding_and_the_value_1() {
    let with = |divisions: u64| -> Config { format!("roundup_power2_divisions:{divisions}").parse().unwrap() };
    let size = 514 * MIB;
    assert_eq!(block(&Config::default(), size), (size, size));
    let rounded = [(2, 768), (4, 640), (8, 576), (16, 544)];
    for (divisions, expected) in rounded {
        assert_eq!(block(&with(divisions), size), (expected * MIB, size), "{divisions} divisions");
    }
    // PyTorch takes 1 for off; the strict reader says so instead of guessing what was meant.
    assert_eq!(block(&Config::from_torch("roundup_power2_divisions:1").unwrap(), size), (size, size));
    for text in ["roundup_power2_divisions:1", "roundup_power2_divisions:[256:1,>:2]"] {
        let error = text.parse::<Config>().unwrap_err();
        assert_eq!((error.key.as_str(), error.position), ("roundup_power2_divisions", 26));
        assert!(error.problem.contains("1 division is no rounding at all in PyTorch"), "{error}");
    }
    assert!("roundup_power2_divisions:0".parse::<Config>().unwrap_err().problem.contains("leave the key out"));

    let four = with(4);
    assert_eq!(block(&four, 1200 * MIB), (1280 * MIB, 1200 * MIB));
    assert_eq!(block(&four, 1024 * MIB), (1024 * MIB, 1024 * MIB));
    assert_eq!(block(&four, 1200), (1536, 1200));
    assert_eq!(block(&four, 700), (1024, 700));

    for (config, reserved) in [(Config::default(), 3048), (four, 1024)] {
        let allocator = CachingAllocator::with_config(Arc::new(Simulated::with_capacity(16 << 30)), config).unwrap();
        for size in [1001, 1021, 1023] {
            let address = allocator.allocate_raw(size * MIB, Stream::DEFAULT).unwrap();
            allocator.free_raw(address).unwrap();
        }
        assert_eq!(allocator.memory_reserved(), reserved << 20);
    }
}

#[test]
fn every_key_is_read() {
    let text = "expandable_segments:True, backend:cudaMallocAsync, release_lock_on_hipmalloc:True, \
                graph_capture_record_stream_reuse:True, pinned_use_background_threads:True, \
                pinned_use_hip_host_register:True, pinned_num_register_threads:8, pinned_reserve_segment_size_mb:2048, \
                torch_exact:True";
    let config: Config = text.parse().unwrap();
    assert!(config.expandable_segments && config.release_lock_on_cudamalloc && config.torch_exact);
    assert!(config.graph_capture_record_stream_reuse && config.pinned_use_background_threads);
    assert!(config.pinned_use_cuda_host_register);
    assert_eq!(config.backend, Backend::CudaMallocAsync);
    assert_eq!(config.pinned_num_register_threads, 8);
    assert_eq!(config.pinned_reserve_segment_size_bytes, Some(2048 * MIB));
    assert_eq!(config.last_settings(), text);
    let off: Config = "expandable_segments:False,torch_exact:False,policy:torch".parse().unwrap();
    assert_eq!(off, Config::default());
}

/// What PyTorch reads otherwise than it looks is refused.
#[test]
fn what_pytorch_reads_otherwise_is_refused() {
    for text in [
        "roundup_power2_divisions:[>:4]",
        "roundup_power2_divisions:[65536:4]",
        "max_split_size_mb,30",
        "max_split_size_mb:30abc",
        "max_split_size_mb:30,",
        "garbage_collection_threshold:0x.8",
        "garbage_collection_threshold:0.5.5",
        "max_split_size_mb:3 0",
    ] {
        assert!(Config::from_torch(text).is_ok(), "PyTorch accepts {text}");
        assert!(text.parse::<Config>().is_err(), "{text}");
    }
}

/// Parts that texts are made of, good and bad.
fn part() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "large_segment_size_mb",
        "roundup_power2_divisions",
        "garbage_collection_threshold",
        "per_process_memory_fraction",
        "expandable_segments",
        "backend",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "policy",
        "torch_exact",
        "True",
        "False",
        "native",
        "cudaMallocAsync",
        "torch",
        ",",
        ":",
        "[",
        "]",
        ">",
        " ",
        "\t",
        "\u{a0}",
        "-",
        "+",
        "inf",
        "nan",
        "0x",
        "1e",
        ".",
        "é",
    ];
    prop_oneof![
        8 => prop::sample::select(WORDS).prop_map(str::to_owned),
        3 => any::<u64>().prop_map(|number| number.to_string()),
        2 => (0_u32..70).prop_map(|power| (1_u128 << power).to_string()),
        1 => any::<f64>().prop_map(|number| number.to_string()),
        1 => ".{0,3}",
    ]
}

/// Texts that are often good: keys with values of their kind.
fn setting() -> impl Strategy<Value = String> {
    let size = prop_oneof![10_u64..70, Just(u64::MAX / MIB), Just(1 << 43)];
    let flag = prop_oneof![Just("True"), Just("False"), Just("true")];
    let power = (0_u32..64).prop_map(|power| 1_u64 << power);
    let boundary =
        prop_oneof![4 => (0_u32..17).prop_map(|power| (1_u64 << power).to_string()), 1 => Just(">".to_owned())];
    let list = prop::collection::vec((boundary, prop_oneof![Just(0), power.clone()]), 0..4);
    let list = list.prop_map(|pairs| {
        let pairs: Vec<String> = pairs.iter().map(|(boundary, divisions)| format!("{boundary}:{divisions}")).collect();
        format!("roundup_power2_divisions:[{}]", pairs.join(","))
    });
    const SIZES: &[&str] =
        &["max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb", "pinned_reserve_segment_size_mb"];
    const FLAGS: &[&str] = &[
        "expandable_segments",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse",
        "pinned_use_background_threads",
        "pinned_use_hip_host_register",
    ];
    let fraction = prop_oneof![0.0..1.1, Just(1e-310), Just(0.0)];
    prop_oneof![
        (prop::sample::select(SIZES), size).prop_map(|(key, size)| format!("{key}:{size}")),
        (prop::sample::select(FLAGS), flag).prop_map(|(key, flag)| format!(" {key} : {flag}")),
        power.clone().prop_map(|divisions| format!("roundup_power2_divisions:{divisions}")),
        list,
        power.prop_map(|threads| format!("pinned_num_register_threads:{threads}")),
        fraction.clone().prop_map(|fraction| format!("garbage_collection_threshold:{fraction}")),
        fraction.prop_map(|fraction| format!("per_process_memory_fraction:{fraction}")),
        Just("backend:native".to_owned()),
        Just("backend:cudaMallocAsync".to_owned()),
    ]
}

/// Reads a text every way there is.
fn read_all(text: &str) -> Result<(), TestCaseError> {
    let strict: Result<Config, _> = text.parse();
    let lenient = Config::from_torch(text);
    let mut applied = Config::default();
    let at_run_time = applied.apply_torch(text);
    prop_assert_eq!(applied.last_settings(), text);
    for config in [strict.as_ref().ok(), lenient.as_ref().ok(), Some(&applied)].into_iter().flatten() {
        prop_assert_eq!(config.check(), Ok(()), "what was read can be used");
    }
    let own_keys = text.contains("policy") || text.contains("torch_exact");
    if let Ok(strict) = &strict
        && !own_keys
    {
        prop_assert_eq!(lenient.as_ref(), Ok(strict), "{}", text);
        // At run time the same, save that the backend is not for changing.
        if strict.backend == Backend::Native {
            prop_assert_eq!(&at_run_time, &Ok(()));
            prop_assert_eq!(&applied, strict);
        } else {
            let changed = matches!(at_run_time, Err(TorchConfigError::BackendChanged { .. }));
            prop_assert!(changed);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_reader_panic(parts in prop::collection::vec(part(), 0..14)) {
        read_all(&parts.concat())?;
    }

    #[test]
    fn the_strict_reader_accepts_only_what_pytorch_reads_the_same_way(
        settings in prop::collection::vec(setting(), 1..4),
    ) {
        read_all(&settings.join(","))?;
    }
}
