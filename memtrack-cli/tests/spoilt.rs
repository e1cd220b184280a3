//! A file that is wrong in one place differs there, and the difference says what is wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::{Folder, run, unpacked};
use memtrack_cli::recording::Recording;
use memtrack_cli::replay::{Choices, Difference, Figure, Replayed, replay};
use serde_json::{Value, json};

/// The first difference of a file with this content.
fn difference(name: &str, content: &str) -> Option<Difference> {
    let recordings = Recording::parse(name, content.as_bytes()).unwrap();
    match replay(&recordings[0], &Choices::default()).unwrap() {
        (Replayed::Verified(verification), None) => verification.difference,
        other => panic!("not verified: {other:?}"),
    }
}

fn json_difference(content: &Value) -> Difference {
    difference("spoilt.json", &content.to_string()).expect("the file is spoilt")
}

fn parsed(path: &str) -> Value {
    serde_json::from_str(&unpacked(path)).unwrap()
}

fn assert_statistic(difference: &Difference, step: Option<usize>, key: &str, expected: i64, got: i64) {
    let found = (difference.step, difference.key.as_str(), &difference.expected, &difference.got);
    assert_eq!(found, (step, key, &Figure::Statistic(expected), &Figure::Statistic(got)));
}

/// Two programs, one of each kind of segment: many of the statistics move in them.
const PROGRAMS: [&str; 2] = ["programs/oom-fragmented.json.gz", "programs/expandable-frag.json.gz"];

#[test]
fn every_changed_statistic_of_every_step_of_a_program_is_compared() {
    for program in PROGRAMS {
        let good = parsed(program);
        for (number, step) in good["ops"].as_array().unwrap().iter().enumerate() {
            for (key, value) in step["changed"].as_object().unwrap() {
                let value = value.as_i64().unwrap();
                let mut spoilt = good.clone();
                spoilt["ops"][number]["changed"][key] = json!(value + 1);
                assert_statistic(&json_difference(&spoilt), Some(number), key, value + 1, value);
            }
        }
    }
}

#[test]
fn every_statistic_is_compared_at_the_start_the_end_and_where_it_does_not_change() {
    let good = parsed("programs/oom-simple.json.gz");
    for (field, place) in [("initial_stats", "start"), ("final_stats", "end")] {
        for (key, value) in good[field].as_object().unwrap() {
            let value = value.as_i64().unwrap();
            let mut spoilt = good.clone();
            spoilt[field][key] = json!(value - 1);
            let difference = json_difference(&spoilt);
            assert_statistic(&difference, None, key, value - 1, value);
            assert_eq!(difference.operation, place);
        }
    }
    for key in good["initial_stats"].as_object().unwrap().keys() {
        let mut spoilt = good.clone();
        if spoilt["ops"][1]["changed"].get(key).is_none() {
            spoilt["ops"][1]["changed"][key] = json!(-7);
            let difference = json_difference(&spoilt);
            assert_eq!((difference.step, difference.key.as_str()), (Some(1), key.as_str()));
        }
    }
}

#[test]
fn a_change_that_a_step_does_not_list_is_noticed() {
    let mut spoilt = parsed("programs/oom-simple.json.gz");
    spoilt["ops"][1]["changed"].as_object_mut().unwrap().remove("num_ooms");
    assert_statistic(&json_difference(&spoilt), Some(1), "num_ooms", 0, 1);
}

#[test]
fn every_address_and_outcome_of_a_program_is_compared() {
    for program in PROGRAMS {
        let good = parsed(program);
        for (number, step) in good["ops"].as_array().unwrap().iter().enumerate() {
            let mut spoilt = good.clone();
            if let Some(address) = step.get("ptr") {
                let address = address.as_u64().unwrap();
                spoilt["ops"][number]["ptr"] = json!(address + 512);
                let difference = json_difference(&spoilt);
                assert_eq!((difference.step, difference.key.as_str()), (Some(number), "address"));
                assert_eq!(difference.expected, Figure::Address(address + 512));
                assert_eq!(difference.got, Figure::Address(address));

                let mut refused = good.clone();
                refused["ops"][number].as_object_mut().unwrap().remove("ptr");
                refused["ops"][number]["oom"] = json!("no memory");
                let difference = json_difference(&refused);
                assert_eq!((difference.step, difference.key.as_str()), (Some(number), "address"));
                assert_eq!(difference.expected, Figure::Text("out of memory".to_owned()));
            } else if step.get("oom").is_some() {
                spoilt["ops"][number].as_object_mut().unwrap().remove("oom");
                spoilt["ops"][number]["ptr"] = json!(512);
                let difference = json_difference(&spoilt);
                assert_eq!((difference.step, difference.key.as_str()), (Some(number), "address"));
                assert_eq!(difference.got, Figure::Text("out of memory".to_owned()));
            }
        }
    }
}

#[test]
fn another_request_limit_or_configuration_is_noticed() {
    let good = parsed("programs/oom-fragmented.json.gz");
    let spoilt = |spoil: &dyn Fn(&mut Value)| {
        let mut spoilt = good.clone();
        spoil(&mut spoilt);
        json_difference(&spoilt)
    };
    let difference = spoilt(&|program| program["ops"][1]["op"][2] = json!(1));
    assert_eq!((difference.step, difference.operation.as_str()), (Some(1), "alloc 1, 1 byte on stream 0"));
    let difference = spoilt(&|program| program["limit_bytes"] = json!(1 << 20));
    assert_eq!((difference.step, difference.got), (Some(0), Figure::Text("out of memory".to_owned())));
    let difference = spoilt(&|program| program["config"] = json!("expandable_segments:True"));
    assert_eq!(difference.step, Some(0));
    let difference = spoilt(&|program| program["config"] = json!("max_split_size_mb:64"));
    assert_statistic(&difference, None, "max_split_size", -1, 64 << 20);
}

#[test]
fn another_segment_address_is_noticed() {
    let mut spoilt = parsed("programs/oom-simple.json.gz");
    let address = spoilt["trace"][0][1].as_u64().unwrap();
    spoilt["trace"][0][1] = json!(address + (1 << 30));
    let difference = json_difference(&spoilt);
    assert_eq!((difference.step, difference.got), (Some(0), Figure::Address(address + (1 << 30))));
    // Where the next segment would overlap, the device cannot follow.
    let mut spoilt = parsed("programs/best-fit.json.gz");
    spoilt["trace"][2][1] = spoilt["trace"][0][1].clone();
    let error = json_error(&spoilt);
    assert!(
        error.starts_with("step 1, alloc 1, 26214400 bytes on stream 0: the recorded addresses cannot be"),
        "{error}"
    );
    assert!(error.contains("overlaps"), "{error}");
}

/// Why a file cannot be replayed.
fn json_error(content: &Value) -> String {
    let recordings = Recording::parse("spoilt.json", content.to_string().as_bytes());
    match recordings {
        Ok(recordings) => replay(&recordings[0], &Choices::default()).unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

fn assert_text(difference: &Difference, step: Option<usize>, key: &str, expected: &str, got: &str) {
    let text = |text: &str| Figure::Text(text.to_owned());
    assert_eq!((difference.step, difference.key.as_str()), (step, key), "{difference:?}");
    assert_eq!((&difference.expected, &difference.got), (&text(expected), &text(got)));
}

#[test]
fn every_entry_of_a_history_is_compared() {
    for program in PROGRAMS {
        let good = parsed(program);
        for (place, entry) in good["trace"].as_array().unwrap().iter().enumerate() {
            let (action, address) = (entry[0].as_str().unwrap(), entry[1].as_u64().unwrap());
            let key = format!("trace[{place}]");
            let says = |spoilt: &Value, part: &str| {
                let difference = json_difference(spoilt);
                assert_eq!((difference.step, &difference.key), (None, &key), "{difference:?}");
                assert!(matches!(&difference.expected, Figure::Text(text) if text.contains(part)), "{difference:?}");
            };
            if !action.starts_with("segment_") {
                let mut spoilt = good.clone();
                spoilt["trace"][place][1] = json!(address + 1);
                if action == "oom" {
                    assert_eq!(difference("oom.json", &spoilt.to_string()), None, "free memory of another machine");
                } else {
                    says(&spoilt, &format!("at {} on", address + 1));
                }
                if action != "alloc" {
                    spoilt["trace"][place][1] = json!(address);
                    spoilt["trace"][place][3] = json!(77);
                    says(&spoilt, "on stream 77");
                }
                let mut spoilt = good.clone();
                spoilt["trace"][place][2] = json!(3);
                says(&spoilt, " of 3 bytes");
            }
            if action == "free_completed" {
                let mut spoilt = good.clone();
                spoilt["trace"].as_array_mut().unwrap().remove(place);
                assert_eq!(json_difference(&spoilt).key, key);
                spoilt = good.clone();
                spoilt["trace"][place][0] = json!("free_requested");
                says(&spoilt, "free_requested of");
            }
        }
        let mut spoilt = good.clone();
        let more = json!(["segment_free", 512, 512, 0]);
        spoilt["trace"].as_array_mut().unwrap().push(more);
        let key = format!("trace[{}]", good["trace"].as_array().unwrap().len());
        assert_text(&json_difference(&spoilt), None, &key, "segment_free of 512 bytes at 512 on stream 0", "nothing");
    }
}

#[test]
fn every_part_of_the_segments_at_the_end_is_compared() {
    let good = parsed("programs/expandable-frag.json.gz");
    let first = good["final_segments"][0].as_object().unwrap();
    for (name, value) in first.iter().filter(|(name, _)| !matches!(name.as_str(), "device" | "blocks")) {
        let mut spoilt = good.clone();
        spoilt["final_segments"][0][name] = match value {
            Value::Number(number) => json!(number.as_u64().unwrap() + 1),
            Value::String(_) => json!("other"),
            Value::Bool(flag) => json!(!flag),
            _ => json!([0, 1]),
        };
        assert_eq!(json_difference(&spoilt).key, format!("final_segments[0].{name}"));
    }
    for (name, value) in first["blocks"][0].as_object().unwrap() {
        let mut spoilt = good.clone();
        spoilt["final_segments"][0]["blocks"][0][name] =
            value.as_u64().map_or(json!("other"), |number| json!(number + 1));
        assert_eq!(json_difference(&spoilt).key, format!("final_segments[0].blocks[0].{name}"));
    }
    let mut spoilt = good.clone();
    spoilt["final_segments"][0]["blocks"] = json!([]);
    assert_text(&json_difference(&spoilt), None, "final_segments[0].blocks", "0 blocks", "1 block");
    spoilt["final_segments"] = json!([]);
    let count = good["final_segments"].as_array().unwrap().len();
    assert_text(&json_difference(&spoilt), None, "final_segments", "0 segments", &format!("{count} segments"));
}

#[test]
fn every_call_to_the_device_of_a_golden_file_is_compared_in_its_step() {
    for file in ["toggle", "exp_large40"] {
        let good = parsed(&format!("golden/{file}.json.gz"));
        let steps = good["ops"].as_array().unwrap().iter().enumerate();
        let calls = steps.filter(|(_, step)| step["device"].as_array().is_some_and(|calls| !calls.is_empty()));
        for (number, _) in calls.step_by(9) {
            let mut spoilt = good.clone();
            let call = &mut spoilt["ops"][number]["device"][0];
            call[2] = json!(call[2].as_u64().unwrap() + 1);
            let found = json_difference(&spoilt);
            assert_eq!((found.step, found.key.as_str()), (Some(number), "device[0]"));
            spoilt["ops"][number]["device"] = json!([]);
            let found = json_difference(&spoilt);
            assert_eq!((found.step, found.expected), (Some(number), Figure::Text("nothing".to_owned())));
        }
    }
}

#[test]
fn more_events_than_are_outstanding_are_a_difference() {
    let mut spoilt = parsed("golden/events.json.gz");
    let steps = spoilt["ops"].as_array_mut().unwrap();
    let number =
        steps.iter().position(|step| step["events_completed"].as_u64().is_some_and(|count| count > 0)).unwrap();
    steps[number]["events_completed"] = json!(1_000);
    let found = json_difference(&spoilt);
    assert_eq!((found.step, found.key.as_str()), (Some(number), "events_completed"));
    assert_eq!(found.expected, Figure::Text("1000 outstanding events".to_owned()));
}

#[test]
fn addresses_without_segments_have_to_be_possible() {
    let program = |first: u64, second: u64, bytes: u64| {
        let steps = format!(
            r#"{{"op": ["alloc", 0, 1024, 0], "ptr": {first}}}, {{"op": ["alloc", 1, {bytes}, 0], "ptr": {second}}}"#
        );
        serde_json::from_str::<Value>(&format!(r#"{{"ops": [{steps}]}}"#)).unwrap()
    };
    for (first, second, bytes, said) in [
        (4096, 4096, 512, "ops[1].ptr: address 4096: block 0, which is not freed yet, has bytes there too"),
        (4096, 4608, 512, "ops[1].ptr: address 4608: block 0"),
        (4096, 3584, 1024, "ops[1].ptr: address 3584: block 0"),
        (4096, 8192, 0, "ops[1].ptr: address 8192: no bytes have the address 0"),
        (4096, 0, 512, "ops[1].ptr: address 0: no memory has it"),
    ] {
        assert_eq!(
            json_error(&program(first, second, bytes)).split("; ").next().unwrap().find(said),
            Some(0),
            "{said}"
        );
    }
    for (second, bytes) in [(0, 0), (5120, 512), (3584, 512)] {
        assert_eq!(difference("possible.json", &program(4096, second, bytes).to_string()), None);
    }
    let trace = "# final {}\na 1 512 0 4096\na 2 512 0 4096\n";
    let error = Recording::parse("trace.txt", trace.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("line 3: address 4096: block 1"), "{error}");
}

#[test]
fn segments_of_traces_are_compared_in_size_and_stream() {
    for (path, kind) in [("traces/gnn_sampled.default.txt.gz", "S "), ("traces/gnn_sampled.expand.txt.gz", "M ")] {
        let text = unpacked(path);
        let (index, line) = text.lines().enumerate().filter(|(_, line)| line.starts_with(kind)).last().unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        for spoilt in [format!("{kind}{} 512 {}", words[1], words[3]), format!("{kind}{} {} 9", words[1], words[2])] {
            let spoilt = spoilt_trace(path, |number, _| (number == index + 1).then(|| spoilt.clone()));
            let found = difference("trace.txt", &spoilt).unwrap();
            assert_eq!((found.step, found.key.as_str()), (Some(index + 1), "device call"), "{found:?}");
        }
        let more = format!("{text}\ns 512 512");
        assert_eq!(difference("trace.txt", &more).unwrap().got, Figure::Text("nothing".to_owned()));
    }
}

#[test]
fn a_line_of_a_table_is_compared() {
    let mut spoilt = parsed("programs/edge-sizes.json.gz");
    let table = spoilt["memory_summary_abbreviated"].as_str().unwrap().replace("Allocations  ", "Allocation   ");
    let line = 1 + table.lines().position(|line| line.starts_with("| Allocation   ")).unwrap();
    spoilt["memory_summary_abbreviated"] = json!(table);
    let difference = json_difference(&spoilt);
    assert_eq!(difference.key, format!("memory_summary_abbreviated, line {line}"));
    assert!(
        matches!(&difference.expected, Figure::Text(line) if line.starts_with("| Allocation   ")),
        "{difference:?}"
    );
    spoilt["memory_summary_abbreviated"] = json!("");
    assert_eq!(json_difference(&spoilt).key, "memory_summary_abbreviated, line 1");
}

#[test]
fn statistics_addresses_and_outcomes_of_golden_files_are_compared() {
    for file in ["toggle", "pools_exp", "events"] {
        let mut good = parsed(&format!("golden/{file}.json.gz"));
        // Enough to have them all, and quick.
        good["ops"].as_array_mut().unwrap().truncate(60);
        let keys = good["keys"].as_array().unwrap();
        for (number, step) in good["ops"].as_array().unwrap().iter().enumerate().step_by(7) {
            for (place, change) in step["d"].as_array().unwrap().iter().enumerate() {
                let (key, value) = (change[0].as_u64().unwrap() as usize, change[1].as_i64().unwrap());
                let mut spoilt = good.clone();
                spoilt["ops"][number]["d"][place][1] = json!(value + 3);
                assert_statistic(
                    &json_difference(&spoilt),
                    Some(number),
                    keys[key].as_str().unwrap(),
                    value + 3,
                    value,
                );
            }
            if step["op"] == "alloc" {
                let mut spoilt = good.clone();
                spoilt["ops"][number]["ptr"] = if step["ptr"].is_null() { json!(512) } else { Value::Null };
                let difference = json_difference(&spoilt);
                assert_eq!((difference.step, difference.key.as_str()), (Some(number), "address"));
            }
        }
    }
}

#[test]
fn events_settings_and_pools_of_golden_files_are_done() {
    let first = |file: &str, spoil: &dyn Fn(&mut Value) -> bool| {
        let mut spoilt = parsed(&format!("golden/{file}.json.gz"));
        let steps = spoilt["ops"].as_array_mut().unwrap();
        let number = steps.iter_mut().position(spoil).unwrap();
        (number, json_difference(&spoilt).step.unwrap())
    };
    let (number, step) = first("events", &|step| {
        step.as_object_mut().unwrap().remove("events_completed").is_some_and(|count| count != 0)
    });
    assert_eq!(step, number);
    let (number, step) = first("toggle", &|step| {
        let is_one = step["conf"] == "expandable_segments:True";
        if is_one {
            step["conf"] = json!("");
        }
        is_one
    });
    assert!(step > number, "settings show later");
    let (number, step) = first("pools", &|step| {
        let is_one = step.get("no_split").is_some();
        step["no_split"] = json!(false);
        is_one
    });
    assert!(step > number, "a pool's kind shows when it is used");
}

/// A trace with changed lines: `spoil` gets each line with its number.
fn spoilt_trace(path: &str, spoil: impl Fn(usize, &str) -> Option<String>) -> String {
    let text = unpacked(path);
    let lines = text.lines().enumerate().map(|(index, line)| spoil(index + 1, line).unwrap_or_else(|| line.to_owned()));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn addresses_and_marks_of_traces_are_compared_at_their_lines() {
    let path = "traces/gnn_sampled.default.txt.gz";
    let text = unpacked(path);
    let line_of = |start: &str, nth: usize| {
        let mut found = text.lines().enumerate().filter(|(_, line)| line.starts_with(start));
        found.nth(nth).map(|(index, _)| index + 1).unwrap()
    };
    for nth in [0, 100, 8_000] {
        let line = line_of("a ", nth);
        let spoilt = spoilt_trace(path, |number, text| (number == line).then(|| format!("{text}0")));
        let difference = difference("trace.txt", &spoilt).unwrap();
        assert_eq!((difference.step, difference.key.as_str()), (Some(line), "address"));
    }
    let segment = line_of("S ", 3);
    let spoilt = spoilt_trace(path, |number, _| (number == segment).then(|| "S 512 2097152 0".to_owned()));
    let after = difference("trace.txt", &spoilt).unwrap();
    assert_eq!((after.step, after.got), (Some(segment + 1), Figure::Address(512)), "the allocation behind it");

    // The first phases alone, to be quick.
    let marks = text.lines().find_map(|line| line.strip_prefix("# marks ")).unwrap();
    let mut marks: Value = serde_json::from_str(marks).unwrap();
    marks.as_array_mut().unwrap().truncate(8);
    let events: Vec<&str> = text.lines().take(line_of("p ", 7)).filter(|line| !line.starts_with("# marks")).collect();
    let events = events.join("\n");
    let whole = |marks: &Value| format!("{events}\n# marks {marks}").replace("# final", "# not the end:");
    assert_eq!(difference("trace.txt", &whole(&marks)), None);
    for mark in [1, 7] {
        for key in marks[mark][2].as_object().unwrap().keys() {
            let mut spoilt = marks.clone();
            let value = spoilt[mark][2][key].as_i64().unwrap();
            spoilt[mark][2][key] = json!(value + 1);
            // One line is gone, before all events.
            let line = line_of("p ", mark) - 1;
            assert_statistic(&difference("trace.txt", &whole(&spoilt)).unwrap(), Some(line), key, value + 1, value);
        }
    }
}

#[test]
fn final_statistics_of_traces_and_late_frees_are_compared() {
    let path = "traces/prefetch_streams.expand.txt.gz";
    let spoilt = spoilt_trace(path, |_, line| {
        line.starts_with("# final").then(|| line.replace("\"num_device_free\": 0", "\"num_device_free\": 4"))
    });
    let found = difference("trace.txt", &spoilt).unwrap();
    assert_statistic(&found, None, "num_device_free", 4, 0);
    // Without `c` lines every free is complete at once, which these were not.
    let text = unpacked(path);
    let at_once: Vec<&str> = text.lines().map(|line| if line.starts_with("c ") { "" } else { line }).collect();
    assert!(difference("trace.txt", &at_once.join("\n")).is_some());
    assert_eq!(difference("trace.txt", &text), None);
}

#[test]
fn a_difference_is_a_line_and_status_1_and_in_json_an_object() {
    let folder = Folder::new("spoilt");
    let mut spoilt = parsed("programs/oom-simple.json.gz");
    spoilt["ops"][1]["changed"]["num_ooms"] = json!(5);
    let file = folder.write("spoilt.json", spoilt.to_string());
    let (status, output, errors) = run(&["replay", &file]);
    let said = "differs: step 1, alloc 1, 629145600 bytes on stream 0: num_ooms: expected 5, got 1\n";
    assert_eq!((status, errors.as_str()), (1, ""));
    assert_eq!(output, format!("{file}: {said}"));

    let (status, output, _) = run(&["replay", "--json", &file]);
    let object: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((status, &object["agrees"]), (1, &json!(false)));
    let expected = json!({"step": 1, "operation": "alloc 1, 629145600 bytes on stream 0", "key": "num_ooms", "expected": 5, "got": 1});
    assert_eq!(object["first_difference"], expected);
}
