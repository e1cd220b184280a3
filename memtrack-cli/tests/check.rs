//! `memtrack check`: what each limit answers, and the exit status that a health check reads.

#![cfg(all(target_os = "linux", feature = "nvml"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::process::Command;

use common::nvml::{Fake, GIB, MIB, NEIGHBOUR, TRAINING, card, end, publication};
use memtrack_mock_nvml::{Change, Configuration, Memory};
use serde_json::Value;

const V2: &str = "nvmlDeviceGetMemoryInfo_v2";
const V1: &str = "nvmlDeviceGetMemoryInfo";
const COMPUTE: &str = "nvmlDeviceGetComputeRunningProcesses_v3";

/// 4 GiB allocated of 5 reserved, half of the cache in one block; 500 MiB context, a neighbour of 100 MiB, 533 MiB unexplained.
fn shared_card(test: &str) -> Fake {
    let device = card(1, 6 * GIB + 109 * MIB)
        .compute_process(TRAINING, Some(6 * GIB))
        .compute_process(NEIGHBOUR, Some(100 * MIB));
    let fake = Fake::new(test, [device]);
    fake.publish("training", &publication(TRAINING, 1, 4 * GIB, 5 * GIB, Some(500 * MIB)));
    fake
}

#[test]
fn figures_that_come_to_more_than_the_driver_shows_explain_nothing() {
    // 8 GiB published of 1 GiB in use, then a publication that is a little older than the driver's figure.
    for (used, status, said) in [
        (
            GIB,
            3,
            "unknown: GPU 0 max-unexplained: published figures and the list of processes come to 7.00 GiB more than the driver shows; one of them is stale or wrong\n",
        ),
        (8 * GIB - 60 * MIB, 0, "ok: 1 device within 1 limit\n"),
    ] {
        let fake = Fake::new("check-contradiction", [card(1, used).compute_process(TRAINING, Some(used))]);
        fake.publish("training", &publication(TRAINING, 1, 7 * GIB, 8 * GIB, Some(0)));
        let (answered, output, _) = fake.run(&["check", "--max-unexplained", "1MiB"]);
        assert_eq!((answered, output.as_str()), (status, said));
    }
}

#[test]
fn each_limit_holds_at_its_value_and_is_exceeded_one_below() {
    let fake = shared_card("check-each");
    for (arguments, status, said) in [
        (&["--max-used", "6253MiB"][..], 0, "ok: 1 device within 1 limit\n"),
        (&["--max-used", "6252MiB"], 1, "exceeded: GPU 0 used 6.11 GiB, more than 6.11 GiB\n"),
        (&["--max-used", "8%"], 0, "ok: 1 device within 1 limit\n"),
        (&["--max-used", "7%"], 1, "exceeded: GPU 0 used 6.11 GiB, more than 7%\n"),
        (&["--min-free", "74763MiB"], 0, "ok: 1 device within 1 limit\n"),
        (&["--min-free", "74764MiB"], 1, "exceeded: GPU 0 free 73.01 GiB, less than 73.01 GiB\n"),
        (&["--max-unexplained", "533MiB"], 0, "ok: 1 device within 1 limit\n"),
        (&["--max-unexplained", "532MiB"], 1, "exceeded: GPU 0 unexplained 533.00 MiB, more than 532.00 MiB\n"),
        (&["--max-fragmentation", "10%"], 0, "ok: 1 device within 1 limit\n"),
        (
            &["--max-fragmentation", "9.9"],
            1,
            "exceeded: GPU 0 process 5000001 has 10.0% of what it reserved scattered, more than 9.9%\n",
        ),
        (&["--max-foreign", "1"], 0, "ok: 1 device within 1 limit\n"),
        (&["--max-foreign", "0"], 1, "exceeded: GPU 0 has 1 foreign process, more than 0\n"),
        (&[], 0, "ok: 1 device with figures\n"),
        (
            &["--max-used", "7GiB", "--max-foreign", "0", "--max-unexplained", "1%"],
            1,
            "exceeded: GPU 0 has 1 foreign process, more than 0\n",
        ),
        (
            &["--max-used", "1GiB", "--max-foreign", "0"],
            1,
            "exceeded: GPU 0 used 6.11 GiB, more than 1.00 GiB (and 1 more)\n",
        ),
    ] {
        let arguments: Vec<&str> = ["check"].iter().chain(arguments).copied().collect();
        let (got, output, errors) = fake.run(&arguments);
        assert_eq!((got, output.as_str(), errors.as_str()), (status, said, ""), "{arguments:?}");
    }
}

#[test]
fn without_the_second_memory_query_what_is_unexplained_may_be_the_drivers() {
    let mut device = card(1, 6 * GIB + 109 * MIB)
        .compute_process(TRAINING, Some(6 * GIB))
        .compute_process(NEIGHBOUR, Some(100 * MIB));
    device.errors.insert(V2.to_owned(), 13);
    let reserved_mib = device.memory.reserved / MIB;
    let fake = Fake::new("check-first-query", [device]);
    fake.publish("training", &publication(TRAINING, 1, 4 * GIB, 5 * GIB, Some(500 * MIB)));
    let whole = format!("{}MiB", 533 + reserved_mib);
    assert_eq!(fake.run(&["check", "--max-unexplained", &whole]).0, 0, "never more than that");
    let (status, output, _) = fake.run(&["check", "--max-unexplained", "532MiB"]);
    assert_eq!(status, 3, "{output}");
    assert!(output.contains("what the driver reserves is in it"), "{output}");
    let unexplained = &fake.json(&["smi", "--json"])["devices"][0]["used"]["unexplained"];
    assert_eq!(unexplained["exactness"], "at most");
}

#[test]
fn growth_is_measured_over_time_and_shrinking_is_none() {
    let grows = |by: i64| {
        let start = 1000 * MIB;
        let later = Change {
            after_queries: 1,
            memory: Some(card(1, start.checked_add_signed(by * MIB as i64).unwrap()).memory),
            ..Change::default()
        };
        Fake::new(&format!("check-growth-{by}"), [card(1, start).then(later)])
    };
    for (by, status, said) in [
        (100, 0, "ok: 1 device within 1 limit\n"),
        (101, 1, "exceeded: GPU 0 grew by 101.00 MiB, more than 100.00 MiB\n"),
        (-900, 0, "ok: 1 device within 1 limit\n"),
    ] {
        let (got, output, _) = grows(by).run(&["check", "--max-growth", "100MiB", "--over", "0.01"]);
        assert_eq!((got, output.as_str()), (status, said), "{by}");
    }
}

#[test]
fn what_cannot_be_told_is_status_3_and_never_ok() {
    let no_list = card(1, 2 * GIB).error(COMPUTE, 4);
    let lost = card(1, 2 * GIB).error(V2, 15);
    let unified = card(1, 0).error(V2, 3).error(V1, 3);
    let no_figure = card(1, 2 * GIB).compute_process(NEIGHBOUR, None);
    let denied = "the current user does not have permission to perform this operation";
    for (test, device, arguments, said) in [
        ("list", no_list.clone(), &["--max-foreign", "0"][..], format!("unknown: GPU 0 max-foreign: {COMPUTE}: {denied}\n")),
        (
            "unexplained",
            no_list,
            &["--max-unexplained", "1GiB"],
            format!("unknown: GPU 0 unexplained 2.00 GiB, more than 1.00 GiB, but other processes may be behind it: {COMPUTE}: {denied}\n"),
        ),
        (
            "figure",
            no_figure.clone(),
            &["--max-unexplained", "1GiB"],
            "unknown: GPU 0 unexplained 2.00 GiB, more than 1.00 GiB, but other processes may be behind it: 1 listed without a figure\n"
                .to_owned(),
        ),
        (
            "fragmentation",
            no_figure,
            &["--max-fragmentation", "10%"],
            "unknown: GPU 0 max-fragmentation: no process publishes its figures (MEMTRACK_PUBLISH)\n".to_owned(),
        ),
        ("lost", lost, &[], String::new()),
        ("unified", unified, &["--max-used", "90%"], String::new()),
    ] {
        let fake = Fake::new(&format!("check-unknown-{test}"), [device]);
        let arguments: Vec<&str> = ["check"].iter().chain(arguments).copied().collect();
        let (status, output, errors) = fake.run(&arguments);
        assert_eq!((status, errors.as_str()), (3, ""), "{test}: {output}");
        assert!(output.starts_with("unknown: GPU 0 ") && output.lines().count() == 1, "{output}");
        assert!(said.is_empty() || output == said, "{output}");
    }
}

#[test]
fn too_little_unexplained_holds_even_where_a_part_is_unknown() {
    let fake = Fake::new("check-bound", [card(1, GIB).error(COMPUTE, 4)]);
    let (status, output, _) = fake.run(&["check", "--max-unexplained", "1GiB"]);
    assert_eq!((status, output.as_str()), (0, "ok: 1 device within 1 limit\n"), "it can only be less");
}

#[test]
fn what_is_exceeded_counts_before_what_cannot_be_told() {
    let fake = Fake::new("check-both", [card(1, 2 * GIB).error(COMPUTE, 4), card(2, 9 * GIB)]);
    let (status, output, _) = fake.run(&["check", "--max-used", "8GiB", "--max-foreign", "0"]);
    assert_eq!((status, output.as_str()), (1, "exceeded: GPU 1 used 9.00 GiB, more than 8.00 GiB\n"));
}

#[test]
fn without_a_driver_or_device_the_status_is_3_with_one_line() {
    let driverless = Fake::with("check-driver", &Configuration::default().error("nvmlInit_v2", 9), &[]);
    let (status, output, _) = driverless.run(&["check"]);
    assert_eq!(status, 3);
    assert!(output.starts_with("unknown: the NVIDIA kernel driver is not loaded"), "{output}");
    let (status, output, _) = Fake::new("check-device", [card(1, 0)]).run(&["check", "-i", "3"]);
    assert_eq!(status, 3);
    assert!(output.starts_with("unknown: no device `3` among GPU 0 ("), "{output}");
}

#[test]
fn wrong_usage_is_status_2() {
    let fake = Fake::new("check-usage", [card(1, 0)]);
    for (arguments, said) in [
        (&["check", "--max-used", "lots"][..], "a whole number of bytes"),
        (&["check", "--max-used", "101%"], "expected a percentage from 0% to 100%"),
        (&["check", "--max-fragmentation", "NaN"], "expected a percentage"),
        (&["check", "--over", "3"], "--max-growth"),
        (&["check", "--max-foreign", "-1"], "unexpected argument"),
    ] {
        let (status, output, errors) = fake.run(arguments);
        assert_eq!((status, output.as_str()), (2, ""), "{arguments:?}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
}

#[test]
fn json_has_every_limit_of_every_device_with_its_figures() {
    let busy = card(1, 2 * GIB).compute_process(NEIGHBOUR, Some(GIB));
    let fake = Fake::new("check-json", [busy, card(2, 9 * GIB)]);
    let verdict = fake.json(&["check", "--json", "--max-used", "8GiB", "--max-fragmentation", "5%"]);
    assert_eq!(verdict["schema_version"], 1);
    assert_eq!((&verdict["status"], &verdict["exit_status"]), (&"exceeded".into(), &1.into()));
    assert_eq!(verdict["reason"], "exceeded: GPU 1 used 9.00 GiB, more than 8.00 GiB");
    let findings = verdict["findings"].as_array().unwrap();
    let outcomes: Vec<_> =
        findings.iter().map(|finding| (finding["limit"].as_str(), finding["outcome"].as_str())).collect();
    let (used, scattered) = (Some("max-used"), Some("max-fragmentation"));
    assert_eq!(
        outcomes,
        [(used, Some("ok")), (scattered, Some("unknown")), (used, Some("exceeded")), (scattered, Some("ok"))]
    );
    assert_eq!(findings[2]["value"], 9.0 * GIB as f64);
    assert_eq!(findings[1]["value"], Value::Null);
}

#[test]
fn a_list_that_may_be_incomplete_proves_foreign_processes_but_not_their_absence() {
    let graphics = "nvmlDeviceGetGraphicsRunningProcesses_v3";
    let fake = Fake::new("check-visible", [card(1, GIB).compute_process(NEIGHBOUR, Some(MIB)).error(graphics, 3)]);
    assert_eq!(fake.run(&["check", "--max-foreign", "0"]).0, 1);
    let (status, output, _) = fake.run(&["check", "--max-foreign", "1"]);
    assert_eq!(status, 3, "{output}");
}

#[test]
fn in_a_container_of_its_own_the_absence_of_foreign_processes_cannot_be_told() {
    let fake = Fake::new("check-container", [card(1, GIB).compute_process(NEIGHBOUR, Some(MIB))]);
    let plain = fake.command(&["check", "--max-foreign", "1"]);
    let inside = |extra: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]).arg(plain.get_program()).args(plain.get_args()).args(extra);
        for (variable, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        end(&mut command)
    };
    let may_make_one = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    if !may_make_one.is_ok_and(|status| status.success()) {
        eprintln!("not tested: this user may not make a pid namespace");
        return;
    }
    let (status, output, _) = inside(&[]);
    let said = "unknown: GPU 0 max-foreign: the driver may list only some of the processes in this container\n";
    assert_eq!((status, output.as_str()), (3, said));
    let (status, output, _) = inside(&["--all-processes"]);
    assert_eq!((status, output.as_str()), (0, "ok: 1 device within 1 limit\n"));
}

#[test]
fn the_old_and_the_new_query_are_not_subtracted() {
    // The old query answers the first look; that the new one works later changes nothing.
    let card_with = |used: u64| Memory { used, ..card(1, used).memory };
    let later = Change { after_queries: 2, memory: Some(card_with(GIB)), errors: Some([].into()), ..Change::default() };
    let fake = Fake::new("check-queries", [card(1, GIB).error(V2, 13).then(later)]);
    let verdict = fake.json(&["check", "--json", "--max-growth", "0", "--over", "0.01"]);
    assert_eq!(verdict["findings"][0]["value"], 0.0, "{verdict}");
}

#[test]
fn the_library_may_be_named_by_the_environment() {
    let fake = Fake::new("check-environment", [card(1, GIB)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
    command.arg("check").env("MEMTRACK_NVML_LIB", "/does/not/exist/libnvidia-ml.so.1");
    let (status, output, _) = end(&mut command);
    assert_eq!(status, 3);
    assert!(
        output.starts_with("unknown: cannot load the NVML library `/does/not/exist/libnvidia-ml.so.1`: "),
        "{output}"
    );
    assert_eq!(fake.run(&["check"]).0, 0);
}

/// A line for Slurm's reason and for logs: what a name adds must not look like another verdict.
#[test]
fn the_reason_is_one_line_whatever_names_are_in_it() {
    let fake = Fake::new("check-line", [card(1, GIB)]);
    let one_line = |arguments: &[&str], said: &str| {
        let (status, output, _) = fake.run(arguments);
        assert_eq!((status, output.lines().count()), (3, 1), "{output:?}");
        assert!(output.starts_with(said) && !output.contains('\x1b'), "{output:?}");
    };
    one_line(&["check", "-i", "x\nok: 1 device\x1b[2J"], r"unknown: no device `x\nok: 1 device\u{1b}[2J` among GPU 0");
    let file = fake.folder.write("published\nok", "");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_memtrack"));
    command.args(["check", "--nvml-lib", "no\nlibrary\x1b[2J", "--published", &file]);
    let (status, output, _) = end(&mut command);
    assert_eq!((status, output.lines().count()), (3, 1), "{output:?}");
    assert!(output.starts_with(r"unknown: cannot load the NVML library `no\nlibrary\u{1b}[2J`: "), "{output:?}");
    let (_, json, _) = fake.run(&["check", "--json", "-i", "x\ny"]);
    let verdict: Value = serde_json::from_str(&json).unwrap();
    assert!(verdict["reason"].as_str().unwrap().starts_with(r"unknown: no device `x\ny` among"), "{json}");
}
