//! `memtrack fit`: what its answers are, on programs whose answer is known and on PyTorch's traces, and how it is told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::{Folder, fixtures, run, unpacked};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// The objects that `memtrack fit --json` writes, and the status.
fn fit(arguments: &[&str]) -> (u8, Vec<Value>) {
    let (status, output, errors) = run(&[&["fit", "--json"], arguments].concat());
    assert!(status != 2, "{errors}");
    (status, output.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn fit_text(name: &str, trace: &str, options: &[&str]) -> Value {
    let folder = Folder::new(&format!("fit-{name}"));
    let file = folder.write("trace.txt", trace);
    fit(&[options, &[file.as_str()]].concat()).1.remove(0)
}

fn policy<'a>(report: &'a Value, name: &str) -> &'a Value {
    let policies = report["policies"].as_array().unwrap();
    policies.iter().find(|policy| policy["names"].as_array().unwrap().iter().any(|known| known == name)).unwrap()
}

fn mib(value: &Value) -> u64 {
    let bytes = value.as_u64().unwrap_or_else(|| panic!("{value} is no size"));
    assert_eq!(bytes % MIB, 0);
    bytes / MIB
}

/// How many allocations found no memory in a replay with a limit.
fn ooms(file: &str, options: &[&str], limit_bytes: u64) -> u64 {
    let limit = limit_bytes.to_string();
    let (status, output, errors) = run(&[&["replay", "--json", "--limit", &limit], options, &[file]].concat());
    assert_eq!(status, 0, "{errors}");
    let report: Value = serde_json::from_str(&output).unwrap();
    report["ooms"].as_u64().unwrap()
}

#[test]
fn a_buffer_in_place_of_another_needs_the_larger_one_and_a_retry() {
    // Of 30 MiB and of 40 MiB are the segments, and never are both needed.
    let report = fit_text("place", "a 1 30000000\nf 1\na 2 40000000\nf 2\n", &[]);
    let default = policy(&report, "default");
    assert_eq!(report["requested_peak_bytes"], 40_000_000);
    assert_eq!(mib(&default["unlimited_peak_bytes"]), 70);
    assert_eq!(mib(&default["smallest_limit_bytes"]), 40);
    assert_eq!((&default["retries"], &default["device_allocations"]), (&1.into(), &2.into()));
    assert_eq!(default["retries_per_1000"], 500.0);
    assert_eq!((mib(&default["calm_limit_bytes"]), mib(&default["unfelt_limit_bytes"])), (70, 70));
    // 38 MiB are less than is requested.
    assert_eq!(default["fails_below"], Value::Null);
    assert_eq!(default["all_above_tested"], true);
    assert_eq!(default["names"], serde_json::json!(["default", "recorded"]));
}

#[test]
fn two_buffers_at_once_need_both_their_segments() {
    // 21 MiB each, in segments of 22 MiB; small blocks take a segment of 2 MiB in another pool.
    let report = fit_text("both", "a 1 22020096\na 2 22020096\na 3 512\n", &["--policy", "default"]);
    let default = policy(&report, "default");
    assert_eq!(mib(&default["smallest_limit_bytes"]), 46);
    assert_eq!((&default["retries"], &default["device_allocations"]), (&0.into(), &3.into()));
    let below = &default["fails_below"];
    assert_eq!((&below["step"], &below["allocations_before"]), (&3.into(), &2.into()));
    assert_eq!(below["operation"], "line 3, alloc 3, 512 bytes on stream 0");
}

#[test]
fn streams_that_take_turns_fit_in_one_segment_and_are_calm_in_two() {
    // Blocks of one stream are no use to another, so each turn gives the other's segment back.
    let turns: String = (0..10).map(|turn| format!("a {turn} 31457280 {}\nf {turn}\n", turn % 2)).collect();
    let report = fit_text("turns", &turns, &["--policy", "default"]);
    let default = policy(&report, "default");
    assert_eq!((mib(&default["smallest_limit_bytes"]), mib(&default["calm_limit_bytes"])), (30, 60));
    assert_eq!((&default["retries"], &default["late_retries"]), (&9.into(), &5.into()));
}

#[test]
fn a_recording_without_allocations_needs_nothing() {
    let report = fit_text("nothing", "# none\n", &[]);
    for name in ["default", "expandable", "compact"] {
        assert_eq!(policy(&report, name)["smallest_limit_bytes"], 0, "{name}");
    }
}

#[test]
fn a_recording_that_never_held_anything_needs_nothing_with_any_policy() {
    for (name, trace) in
        [("refused", "o 500\n"), ("refused-large", "o 50000000\no 1000000000000000\n"), ("empty", "a 1 0\nf 1\n")]
    {
        for options in
            [&["--by", "card"][..], &["--by", "fraction"], &["--on", "0", "--context", "0"], &["--on", "1MiB"]]
        {
            let report = fit_text(&format!("{name}-held"), trace, options);
            for name in ["default", "expandable", "compact"] {
                assert_eq!(policy(&report, name)["smallest_limit_bytes"], 0, "{trace:?} {name} {options:?}");
            }
        }
    }
}

/// What is found for a policy of a trace; a replay with the answer as its limit finds memory, and with less it does not.
fn agrees_with_replay(trace: &str, name: &str, replay: &[&str]) -> Value {
    let file = fixtures().join("traces").join(trace);
    let file = file.to_str().unwrap();
    let (_, reports) = fit(&["--by", "fraction", "--policy", name, file]);
    let found = policy(&reports[0], name).clone();
    let limit_bytes = found["smallest_limit_bytes"].as_u64().unwrap();
    assert_eq!(ooms(file, replay, limit_bytes), 0, "{trace}, {name}: {limit_bytes}");
    assert!(ooms(file, replay, limit_bytes - 2 * MIB) > 0, "{trace}, {name}: {limit_bytes}");
    found
}

const EXPANDABLE: [&str; 2] = ["--config", "torch_exact:True,expandable_segments:True"];

#[test]
fn a_trace_completes_in_a_replay_with_the_answer_as_its_limit_and_not_below() {
    for trace in ["gnn_sampled.default.txt.gz", "prefetch_streams.default.txt.gz"] {
        let found = agrees_with_replay(trace, "default", &["--config", "torch_exact:True"]);
        assert!(found["smallest_limit_bytes"].as_u64() < found["unlimited_peak_bytes"].as_u64(), "{found}");
        agrees_with_replay(trace, "expandable", &EXPANDABLE);
        agrees_with_replay(trace, "compact", &["--policy", "compact"]);
    }
}

#[test]
fn a_trace_completes_in_a_replay_on_a_device_that_has_the_answer_and_not_on_a_smaller_one() {
    let folder = Folder::new("fit-device");
    // Without what PyTorch answered, which a smaller device cannot.
    let trace = unpacked("traces/gnn_sampled.default.txt.gz").replace("# final", "# was").replace("# marks", "# were");
    let whole = folder.write("trace.txt", &trace);
    let (_, reports) = fit(&["--policy", "default,expandable", &whole]);
    for (name, config) in [("default", "torch_exact:True"), ("expandable", EXPANDABLE[1])] {
        let limit_bytes = policy(&reports[0], name)["smallest_limit_bytes"].as_u64().unwrap();
        let ooms_with = |total_bytes: u64| {
            let was = "\"total_memory\": 150109880320";
            assert!(trace.contains(was));
            let smaller = trace.replace(was, &format!("\"total_memory\": {total_bytes}"));
            let file = folder.write("smaller.txt", smaller);
            let (_, output, _) = run(&["replay", "--json", "--config", config, &file]);
            serde_json::from_str::<Value>(&output).unwrap()["ooms"].as_u64()
        };
        assert_eq!(ooms_with(limit_bytes), Some(0), "{name}");
        assert!(ooms_with(limit_bytes - 2 * MIB) > Some(0), "{name}");
    }
}

#[test]
fn a_fraction_counts_all_of_a_request_where_a_card_maps_the_missing_pages() {
    // Pages of 20 MiB: the second block takes the 20 MiB of the first and 20 more, and a fraction wants room for all of its 30.
    let trace = "a 1 20971520\nf 1\na 2 31457280\nf 2\n";
    let of = |by: &str| {
        let report = fit_text(by, trace, &["--policy", "expandable", "--by", by]);
        mib(&policy(&report, "expandable")["unfelt_limit_bytes"])
    };
    assert_eq!((of("card"), of("fraction")), (40, 50));
}

#[test]
fn expandable_segments_have_the_addresses_of_the_card_that_is_asked_about() {
    // On a card that is hardly larger than the run their address ranges are full at times, and it goes another way.
    let file = fixtures().join("traces/resnet50.expand.txt.gz");
    let of = |options: &[&str]| {
        let arguments = [options, &["--policy", "expandable", file.to_str().unwrap()]].concat();
        policy(&fit(&arguments).1[0], "expandable").clone()
    };
    let (tight, on_card) = (of(&["--on", "3200MiB", "--context", "0"]), of(&["--on", "24GiB"]));
    assert_eq!(on_card["unfelt_limit_bytes"], on_card["unlimited_peak_bytes"]);
    assert!(tight["unfelt_limit_bytes"].as_u64() > tight["unlimited_peak_bytes"].as_u64(), "{tight}");
}

#[test]
fn without_a_card_the_smallest_limit_is_that_of_the_cards_it_fits() {
    // A card of the limit's size would have too few addresses for some limits above 7828 MiB; but part of a card is the context's.
    let file = fixtures().join("traces/gpt2.expand.txt.gz");
    let of = |options: &[&str]| {
        let arguments = [options, &["--policy", "expandable", file.to_str().unwrap()]].concat();
        let found = policy(&fit(&arguments).1[0], "expandable").clone();
        (mib(&found["smallest_limit_bytes"]), found["fails_above"].as_array().unwrap().len())
    };
    let without = of(&[]);
    assert_eq!(without, (7828, 0));
    for card in ["8428MiB", "24GiB", "80GiB"] {
        assert_eq!(of(&["--on", card]), without, "{card}");
    }
    let (tight_mib, gaps) = of(&["--on", "7868MiB", "--context", "0"]);
    assert!(tight_mib > 7828 && gaps > 0, "{tight_mib} {gaps}");
}

#[test]
fn what_a_limit_is_a_part_of_is_said() {
    let folder = Folder::new("fit-part");
    let file = folder.write("trace.txt", "a 1 30000000\n");
    for (options, said, by, device_mib) in [
        (&[][..], "a limit is what is left of a card of 1.00 TiB, which has addresses to spare", "card", 1 << 20),
        (&["--on", "2GiB"], "a limit is what is left of a card of 2048 MiB\n", "card", 2048),
        (&["--by", "fraction"], "a limit is a memory fraction of a device of 1.00 TiB\n", "fraction", 1 << 20),
        (
            &["--by", "fraction", "--on", "2GiB"],
            "a limit is a memory fraction of a device of 1.00 TiB\n",
            "fraction",
            1 << 20,
        ),
    ] {
        let arguments = [options, &[file.as_str()]].concat();
        let (_, text, _) = run(&[&["fit"], &arguments[..]].concat());
        assert!(text.contains(said), "{options:?}: {text}");
        let report = fit(&arguments).1.remove(0);
        assert_eq!((&report["limit_by"], mib(&report["device_bytes"])), (&by.into(), device_mib), "{options:?}");
    }
}

#[test]
fn a_limit_that_fails_above_one_that_completes_is_found_in_a_real_trace() {
    let found = agrees_with_replay("resnet50.expand.txt.gz", "expandable", &EXPANDABLE);
    let gaps = found["fails_above"].as_array().unwrap();
    assert!(!gaps.is_empty(), "{found}");
    let file = fixtures().join("traces/resnet50.expand.txt.gz");
    let file = file.to_str().unwrap();
    let first_bytes = found["first_limit_bytes"].as_u64().unwrap();
    assert_eq!(ooms(file, &EXPANDABLE, first_bytes), 0);
    for gap in gaps {
        let gap_bytes = gap["limit_bytes"].as_u64().unwrap();
        assert!(gap_bytes > first_bytes && gap_bytes < found["smallest_limit_bytes"].as_u64().unwrap());
        assert!(ooms(file, &EXPANDABLE, gap_bytes) > 0, "{gap}");
    }
    let (_, text, _) = run(&["fit", "--by", "fraction", "--policy", "expandable", file]);
    assert!(text.contains(" MiB, but fails with "), "{text}");
}

#[test]
fn on_a_card_each_policy_has_its_verdict_and_the_status_is_1_when_none_fits() {
    let folder = Folder::new("fit-card");
    let file = folder.write("trace.txt", "a 1 30000000\nf 1\na 2 40000000\nf 2\n");
    let ask = |options: &[&str]| {
        let (status, mut reports) = fit(&[options, &["--policy", "default", file.as_str()]].concat());
        (status, reports.remove(0))
    };
    let (status, report) = ask(&["--on", "100MiB", "--context", "50MiB", "--others", "10MiB"]);
    assert_eq!((status, &report["fits"]), (0, &true.into()));
    assert_eq!(report["card"]["available_bytes"], 40 * MIB);
    let on_card = &report["policies"][0]["on_card"];
    assert_eq!((&on_card["fits"], &on_card["margin_bytes"]), (&true.into(), &0.into()));
    assert_eq!((&on_card["retries"], &on_card["device_allocations"]), (&1.into(), &2.into()));

    let (status, report) = ask(&["--on", "100MiB", "--context", "50MiB", "--others", "11MiB"]);
    assert_eq!((status, &report["fits"]), (1, &false.into()));
    assert_eq!(report["policies"][0]["on_card"]["margin_bytes"], -(MIB as i64));

    // More context than card, and a card without a limit that is felt.
    assert_eq!(ask(&["--on", "100MiB"]).0, 1);
    let (status, report) = ask(&["--on", "24GiB"]);
    assert_eq!((status, &report["card"]["context_bytes"]), (0, &(600 * MIB).into()));
    assert_eq!(report["policies"][0]["on_card"]["retries"], 0);
}

#[test]
fn one_file_that_no_policy_fits_decides_and_one_that_cannot_be_read_more_so() {
    let folder = Folder::new("fit-status");
    let small = folder.write("small.txt", "a 1 30000000\n");
    let large = folder.write("large.txt", "a 1 300000000\n");
    let bad = folder.write("bad.txt", "a 1\n");
    let status = |files: &[&str]| run(&[&["fit", "--on", "200MiB", "--context", "0"], files].concat()).0;
    assert_eq!(status(&[&small]), 0);
    assert_eq!(status(&[&small, &large]), 1);
    assert_eq!(status(&[&large, &bad]), 2);
    let (status, output, errors) = run(&["fit", &small, &bad]);
    assert_eq!(status, 2);
    assert!(output.contains("small.txt: requested peak"), "{output}");
    assert!(errors.contains("bad.txt: line 1: the bytes is missing"), "{errors}");
    let (_, output, _) = run(&["fit", "--json", &bad]);
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["error"], "line 1: the bytes is missing");
}

#[test]
fn wrong_usage_says_what_is_wrong() {
    let folder = Folder::new("fit-usage");
    let file = folder.write("trace.txt", "a 1 30000000\n");
    for (options, said) in [
        (&["--on", "2TiB"][..], "at most 1.00 TiB, which the simulated device has"),
        (&["--on", "24G"], "ambiguous unit `G`"),
        (&["--context", "1GiB"], "--on"),
        (&["--policy", "fast"], "default, recorded, expandable, compact"),
        (&["--config", "per_process_memory_fraction:0.5"], "is the limit that is searched for"),
        (&["--config", "backend:cudaMallocAsync"], "the driver's own pool decides"),
        (&["--config", "nothing:1"], "unknown key `nothing`"),
        (&["--threads", "0"], "0 is not in 1..=1024"),
    ] {
        let (status, output, errors) = run(&[&["fit"], options, &[file.as_str()]].concat());
        assert_eq!((status, output.as_str()), (2, ""), "{options:?}");
        assert!(errors.contains(said), "{options:?}: {errors}");
    }
}

#[test]
fn how_many_threads_search_changes_nothing() {
    let folder = Folder::new("fit-threads");
    let turns: String = (0..40).map(|turn| format!("a {turn} {} {}\nf {turn}\n", turn * 700_000, turn % 3)).collect();
    let files: Vec<String> = (0..4)
        .map(|number| folder.write(&format!("{number}.txt"), format!("a 99 {}\n{turns}", (number + 1) * 9_000_000)))
        .collect();
    let with = |threads: &str| {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        run(&[&["fit", "--on", "1GiB", "--threads", threads], &files[..]].concat())
    };
    let one = with("1");
    assert_eq!(one.0, 0);
    assert_eq!(one.1.matches("requested peak").count(), 4);
    assert_eq!(with("7"), one);
}
