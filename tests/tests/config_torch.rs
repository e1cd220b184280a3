//! Settings read as PyTorch 2.11 reads them: what it accepts, what it makes of it, and what it says to the rest.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use flate2::read::GzDecoder;
use memtrack::TorchException::{IndexError, RuntimeError, ValueError};
use memtrack::device::{Simulated, Stream};
use memtrack::history::SettingValue;
use memtrack::{Backend, CachingAllocator, Config};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// The most MiB whose bytes fit 64 bits.
const MOST: u64 = u64::MAX - MIB + 1;

const OUT_OF_BOUNDS: &str = "INTERNAL ASSERT FAILED: Index out of bounds in ConfigTokenizer";
const UNCLOSED: &str =
    "INTERNAL ASSERT FAILED: Expected closing bracket ']' in ConfigTokenizer but reached end of config";

fn read(text: &str) -> Config {
    Config::from_torch(text).unwrap_or_else(|error| panic!("`{text}`: {error}"))
}

fn table(text: &str) -> [u64; 16] {
    read(&format!("roundup_power2_divisions:{text}")).roundup_power2_divisions.table()
}

/// The first entries given, the others 0.
fn starting(first: &[u64]) -> [u64; 16] {
    let mut table = [0; 16];
    table[..first.len()].copy_from_slice(first);
    table
}

#[test]
fn what_pytorch_accepts_is_accepted() {
    let split = |text| read(text).max_split_size_bytes;
    let rows = [
        ("max_split_size_mb:30", 30 * MIB),
        ("max_split_size_mb,30", 30 * MIB),
        ("max_split_size_mb]30", 30 * MIB),
        ("max_split_size_mb:30,", 30 * MIB),
        ("max_split_size_mb:30:expandable_segments:True", 30 * MIB),
        ("max_split_size_mb:30abc", 30 * MIB),
        ("max_split_size_mb:+30", 30 * MIB),
        ("max_split_size_mb:-1", MOST),
        ("max_split_size_mb:99999999999999", MOST),
        ("max _split_\tsize_mb : 3 0", 30 * MIB),
        ("max_split_size_mb:30,max_split_size_mb:40", 40 * MIB),
        ("max_split_size_mb:11,large_segment_size_mb:11", 11 * MIB),
    ];
    for (text, bytes) in rows {
        assert_eq!(split(text), Some(bytes), "{text}");
    }
    assert!(read("expandable_segments,True").expandable_segments);
    assert_eq!(read(""), Config::default());
    assert_eq!(read(" \t "), Config::default());
    assert_eq!(read("garbage_collection_threshold:0x1p-1").garbage_collection_threshold, Some(0.5));
    assert_eq!(read("garbage_collection_threshold:.5x").garbage_collection_threshold, Some(0.5));
    assert_eq!(read("per_process_memory_fraction:-0").per_process_memory_fraction, 0.0);
    assert_eq!(read("large_segment_size_mb:-1").large_segment_size_bytes, MOST);
    assert_eq!(read("large_segment_size_mb:40").max_non_split_rounding_bytes, 40 * MIB);
    assert!(read("release_lock_on_hipmalloc:True").release_lock_on_cudamalloc);
    assert!(read("pinned_use_hip_host_register:True").pinned_use_cuda_host_register);
    assert_eq!(read("pinned_num_register_threads:128").pinned_num_register_threads, 128);
    assert_eq!(read("pinned_reserve_segment_size_mb:-1").pinned_reserve_segment_size_bytes, Some(u64::MAX));
    assert_eq!(read("backend:cudaMallocAsync").backend, Backend::CudaMallocAsync);
    assert_eq!(read("backend:native").backend, Backend::Native);
}

#[test]
fn division_lists_fill_as_pytorch_fills_them() {
    assert_eq!(table("8"), [8; 16]);
    assert_eq!(table("1"), [1; 16]);
    assert_eq!(table("9223372036854775808"), [1 << 63; 16]);
    assert_eq!(table("[]"), [0; 16]);
    let from_second = std::array::from_fn(|index| if index == 0 { 0 } else { 4 });
    assert_eq!(table("[>:4]"), from_second);
    let mixed = std::array::from_fn(|index| match index {
        0..=9 => 2,
        10 => 8,
        _ => 4,
    });
    assert_eq!(table("[512:2,>:4,1024:8]"), mixed);
    assert_eq!(table("[4:2,1:8]"), starting(&[8, 2, 2]));
    assert_eq!(table("[1:2,8:4]"), starting(&[2, 0, 0, 4]));
    let all_but_the_last = std::array::from_fn(|index| if index == 15 { 2 } else { 8 });
    assert_eq!(table("[16384:8,1099511627776:2]"), all_but_the_last, "larger sizes belong to the last entry");
    assert_eq!(table("[2,4,>,8]"), std::array::from_fn(|index| if index < 2 { 4 } else { 8 }));
    assert_eq!(table("[4:0,>:2]"), std::array::from_fn(|index| if index < 3 { 0 } else { 2 }));
}

#[test]
fn what_pytorch_refuses_is_refused_in_its_words() {
    let rows = [
        ("foo:1", ValueError, "Unrecognized key 'foo' in CUDA allocator config."),
        ("Max_split_size_mb:30", ValueError, "Unrecognized key 'Max_split_size_mb' in CUDA allocator config."),
        ("max_split_size_mb:30,,", ValueError, "Unrecognized key ',' in CUDA allocator config."),
        (",", ValueError, "Unrecognized key ',' in CUDA allocator config."),
        (":128", ValueError, "Unrecognized key ':' in CUDA allocator config."),
        ("torch_exact:True", ValueError, "Unrecognized key 'torch_exact' in CUDA allocator config."),
        ("policy:torch", ValueError, "Unrecognized key 'policy' in CUDA allocator config."),
        ("throw_on_cudamalloc_oom:True", ValueError, "Unrecognized key 'throw_on_cudamalloc_oom' in CUDA"),
        ("max_split_size_mb:2,foo:1", ValueError, "Unrecognized key 'foo' in CUDA"),
        ("max_split_size_mb", RuntimeError, OUT_OF_BOUNDS),
        ("max_split_size_mb:", RuntimeError, OUT_OF_BOUNDS),
        ("backend:", RuntimeError, OUT_OF_BOUNDS),
        ("roundup_power2_divisions:[", RuntimeError, UNCLOSED),
        ("roundup_power2_divisions:[256:1,", RuntimeError, UNCLOSED),
        ("roundup_power2_divisions:[256:1,512:2", RuntimeError, UNCLOSED),
        ("roundup_power2_divisions:[256", RuntimeError, UNCLOSED),
        (
            "roundup_power2_divisions:[256:3]",
            ValueError,
            "For roundups, the divisions has to be power of 2 or 0 to disable",
        ),
        ("roundup_power2_divisions:[3:4]", ValueError, "For roundups, the intervals have to be power of 2 "),
        ("roundup_power2_divisions:[0:4]", ValueError, "For roundups, the intervals have to be power of 2 "),
        ("roundup_power2_divisions:3", ValueError, "For roundups, the divisions has to be power of 2 "),
        ("roundup_power2_divisions:0", ValueError, "For roundups, the divisions has to be power of 2 "),
        ("roundup_power2_divisions:]", ValueError, "stoull"),
        (
            "expandable_segments:yes",
            ValueError,
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'yes'",
        ),
        (
            "max_split_size_mb:30,expandable_segments:true",
            ValueError,
            "Expected 'True' or 'False' at index 6 in ConfigTokenizer but got 'true'",
        ),
        (
            "expandable_segments:[True]",
            ValueError,
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '['",
        ),
        ("max_split_size_mb:abc", ValueError, "stoull"),
        ("max_split_size_mb:99999999999999999999", IndexError, "stoull"),
        ("max_split_size_mb:-99999999999999999999", IndexError, "stoull"),
        ("garbage_collection_threshold:x", ValueError, "stod"),
        ("garbage_collection_threshold:1e999", IndexError, "stod"),
        ("garbage_collection_threshold:1e-400", IndexError, "stod"),
        ("max_split_size_mb:19", ValueError, "CachingAllocator option max_split_size_mb too small, must be >= 20"),
        (
            "max_non_split_rounding_mb:31,large_segment_size_mb:32",
            ValueError,
            "CachingAllocator option max_non_split_rounding_mb too small, must be >= 32",
        ),
        ("large_segment_size_mb:10", ValueError, "CachingAllocator option large_segment_size_mb must be > 10 MB"),
        ("garbage_collection_threshold:0", ValueError, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
        ("garbage_collection_threshold:1", ValueError, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
        ("garbage_collection_threshold:nan", ValueError, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
        ("garbage_collection_threshold:inf", ValueError, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
        ("per_process_memory_fraction:1.1", ValueError, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"),
        ("per_process_memory_fraction:nan", ValueError, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"),
        ("backend:cuda", ValueError, "Unknown allocator backend, options are native and cudaMallocAsync"),
        (
            "backend:native,backend:cudaMallocAsync",
            RuntimeError,
            "INTERNAL ASSERT FAILED: Allocator backend parsed at runtime != allocator backend parsed at load time",
        ),
        ("pinned_num_register_threads:3", ValueError, "Number of register threads has to be power of 2, got 3"),
        ("pinned_num_register_threads:0", ValueError, "Number of register threads has to be power of 2, got 0"),
        (
            "pinned_num_register_threads:256",
            ValueError,
            "Number of register threads should be less than or equal to 128, got 256",
        ),
        ("pinned_reserve_segment_size_mb:0", ValueError, "Pinned reserve segment size has to be greater than 0"),
    ];
    for (text, exception, start) in rows {
        let error = Config::from_torch(text).unwrap_err();
        assert_eq!(error.exception(), exception, "{text}: {error}");
        assert!(error.to_string().starts_with(start), "{text}: {error}");
    }
    // A list that ends after a value is the reader's of lists to notice; at run time it comes first.
    let at_run_time = Config::default().apply_torch("roundup_power2_divisions:[256:1,512:2").unwrap_err();
    assert!(at_run_time.to_string().starts_with(OUT_OF_BOUNDS), "{at_run_time}");
    let at_run_time = Config::default().apply_torch("roundup_power2_divisions:[256:1,").unwrap_err();
    assert!(at_run_time.to_string().starts_with(UNCLOSED), "{at_run_time}");
}

#[test]
fn at_run_time_some_keys_stick_and_the_others_return_to_their_defaults() {
    let mut config = read(
        "large_segment_size_mb:40,max_split_size_mb:50,max_non_split_rounding_mb:60,garbage_collection_threshold:0.5,\
         roundup_power2_divisions:4,expandable_segments:True,pinned_use_background_threads:True,\
         release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True,pinned_num_register_threads:8,\
         pinned_reserve_segment_size_mb:16,graph_capture_record_stream_reuse:True,per_process_memory_fraction:0.5",
    );
    config.torch_exact = true;
    let mut expected = config.clone();
    expected.max_split_size_bytes = None;
    expected.max_non_split_rounding_bytes = 40 * MIB;
    expected.garbage_collection_threshold = None;
    expected.roundup_power2_divisions = Config::default().roundup_power2_divisions;
    config.apply_torch("").unwrap();
    assert_eq!(config, expected);
    assert_eq!(config.last_settings(), "");
    config.apply_torch("large_segment_size_mb:20,expandable_segments:False,max_split_size_mb:30").unwrap();
    expected.large_segment_size_bytes = 20 * MIB;
    expected.max_non_split_rounding_bytes = 20 * MIB;
    expected.expandable_segments = false;
    expected.max_split_size_bytes = Some(30 * MIB);
    assert_eq!(config, expected);
}

#[test]
fn at_run_time_a_failure_leaves_in_force_what_came_before_it() {
    let mut config = read("garbage_collection_threshold:0.5,max_split_size_mb:64");
    let text = "max_split_size_mb:30,foo:1,expandable_segments:True";
    let error = config.apply_torch(text).unwrap_err();
    assert_eq!(error.to_string(), "Unrecognized key 'foo' in Accelerator allocator config.");
    assert_eq!(error.exception(), ValueError);
    assert_eq!(config.max_split_size_bytes, Some(30 * MIB));
    assert_eq!(config.garbage_collection_threshold, None, "reset before the text is read");
    assert!(!config.expandable_segments);
    assert_eq!(config.last_settings(), text);

    // The large segment size comes first wherever it stands; keys of CUDA come last.
    let mut config = Config::default();
    config.apply_torch("pinned_num_register_threads:8,max_split_size_mb:2,large_segment_size_mb:40").unwrap_err();
    assert_eq!(config.large_segment_size_bytes, 40 * MIB);
    assert_eq!(config.max_non_split_rounding_bytes, 40 * MIB);
    assert_eq!(config.pinned_num_register_threads, 1);
    let mut config = Config::default();
    config.apply_torch("pinned_num_register_threads:3,max_split_size_mb:64").unwrap_err();
    assert_eq!(config.max_split_size_bytes, Some(64 * MIB));

    // Any word of that name counts, also where a value stands.
    let mut config = Config::default();
    let error = config.apply_torch("foo:large_segment_size_mb:12").unwrap_err();
    assert!(error.to_string().starts_with("Unrecognized key 'foo'"));
    assert_eq!(config.large_segment_size_bytes, 12 * MIB);

    // A list is applied as far as it was read.
    let mut config = Config::default();
    config.apply_torch("roundup_power2_divisions:[1:2,4:8,16:3]").unwrap_err();
    assert_eq!(config.roundup_power2_divisions.table(), starting(&[2, 0, 8]));

    // Here the size is in force and what follows from it is not; an allocator takes the result all the same.
    let mut config = Config::default();
    config.apply_torch("large_segment_size_mb:40,large_segment_size_mb:5").unwrap_err();
    assert_eq!(config.large_segment_size_bytes, 40 * MIB);
    assert_eq!(config.max_non_split_rounding_bytes, 20 * MIB);
    assert_eq!(config.check(), Ok(()));
}

#[test]
fn at_run_time_the_backend_stays_and_the_fraction_is_only_stored() {
    let mut config = Config::default();
    assert_eq!(config.apply_torch("backend:native"), Ok(()));
    let error = config.apply_torch("backend:cudaMallocAsync").unwrap_err();
    assert_eq!(error.exception(), RuntimeError);
    assert!(error.to_string().contains("cudaMallocAsync != native"), "{error}");
    assert_eq!(config.backend, Backend::Native);
    assert!(read("backend:cudaMallocAsync").apply_torch("backend:native").is_err());

    config.apply_torch("per_process_memory_fraction:0.25").unwrap();
    assert_eq!(config.per_process_memory_fraction, 0.25);
    config.apply_torch("").unwrap();
    assert_eq!(config.per_process_memory_fraction, 0.25, "read when an allocator is made of it");
    let allocator = CachingAllocator::with_config(Arc::new(Simulated::with_capacity(1 << 30)), config).unwrap();
    assert_eq!(allocator.limit_bytes(), Some(1 << 28));
}

#[test]
fn an_allocator_takes_whatever_pytorch_takes() {
    for text in [
        "max_split_size_mb:-1",
        "large_segment_size_mb:-1",
        "large_segment_size_mb:-1,max_split_size_mb:-1,max_non_split_rounding_mb:-1",
        "roundup_power2_divisions:9223372036854775808",
        "roundup_power2_divisions:[>:1]",
        "pinned_reserve_segment_size_mb:-1",
    ] {
        let device = Arc::new(Simulated::with_capacity(1 << 30));
        let allocator = CachingAllocator::with_config(device, read(text)).unwrap();
        for bytes in [1, 1000, 1025, MIB, MIB + 1, 30 * MIB, 1 << 40] {
            // Some of these have no room: what matters is that sizes are worked out without an overflow.
            if let Ok(address) = allocator.allocate_raw(bytes, Stream::DEFAULT) {
                allocator.free_raw(address).unwrap();
            }
        }
        assert_eq!(allocator.memory_allocated(), 0);
    }
    let device = Arc::new(Simulated::with_capacity(1 << 30));
    let allocator = CachingAllocator::with_config(device, read("max_split_size_mb:-1")).unwrap();
    assert_eq!(allocator.memory_stats().max_split_size, -(1 << 20), "as PyTorch shows it");
}

fn as_json(value: &SettingValue) -> Value {
    match value {
        SettingValue::Text(text) => json!(&**text),
        SettingValue::Integer(number) => json!(number),
        SettingValue::Float(number) => json!(number),
        SettingValue::Bool(flag) => json!(flag),
        // The files have Python's text of this one.
        SettingValue::Table(divisions) => {
            let pairs: Vec<String> =
                divisions.iter().map(|(size, value)| format!("'{size}': {}", as_json(value))).collect();
            json!(format!("{{{}}}", pairs.join(", ")))
        }
        other => panic!("{other:?} is new"),
    }
}

#[test]
fn settings_show_as_in_pytorchs_snapshots() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/torch-2.11/programs");
    let mut texts = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        let file = GzDecoder::new(BufReader::new(File::open(&path).unwrap()));
        let program: Value = serde_json::from_reader(BufReader::new(file)).unwrap();
        let text = program["config"].as_str().unwrap();
        let shown: serde_json::Map<String, Value> = read(text)
            .allocator_settings()
            .entries
            .iter()
            .map(|(key, value)| (key.to_string(), as_json(value)))
            .collect();
        assert_eq!(Value::Object(shown), program["allocator_settings"], "{text}");
        texts.insert(text.to_owned());
    }
    assert!(texts.len() > 10, "{texts:?}");
    let shown = read("max_split_size_mb:-1").allocator_settings();
    assert_eq!(shown.get("max_split_size"), Some(&SettingValue::Integer(-1_048_576)));
}

/// Set in the processes that the test below starts.
const CHILD: &str = "MEMTRACK_TEST_CHILD";

#[test]
fn of_pytorchs_variables_the_first_that_is_set_is_read() {
    if std::env::var_os(CHILD).is_some() {
        match Config::from_torch_env() {
            Ok(config) => println!("read `{}`", config.last_settings()),
            Err(error) => println!("refused {error}"),
        }
        return;
    }
    let child = |variables: &[(&str, &str)]| {
        let name = "of_pytorchs_variables_the_first_that_is_set_is_read";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
        for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
            command.env_remove(name);
        }
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (cuda, hip, all) = ("max_split_size_mb:30", "max_split_size_mb:40", "max_split_size_mb:50");
    let cuda_variable = ("PYTORCH_CUDA_ALLOC_CONF", cuda);
    let (hip_variable, all_variable) = (("PYTORCH_HIP_ALLOC_CONF", hip), ("PYTORCH_ALLOC_CONF", all));
    assert!(child(&[]).contains("read ``"));
    assert!(child(&[all_variable]).contains(&format!("read `{all}`")));
    assert!(child(&[all_variable, hip_variable]).contains(&format!("read `{hip}`")));
    assert!(child(&[all_variable, hip_variable, cuda_variable]).contains(&format!("read `{cuda}`")));
    assert!(child(&[all_variable, ("PYTORCH_CUDA_ALLOC_CONF", "")]).contains("read ``"), "set and empty is set");
    let refused = child(&[("PYTORCH_ALLOC_CONF", "foo:1"), ("MEMTRACK_ALLOC_CONF", "nonsense")]);
    assert!(
        refused.contains("refused PYTORCH_ALLOC_CONF: Unrecognized key 'foo' in CUDA allocator config."),
        "{refused}"
    );
}
