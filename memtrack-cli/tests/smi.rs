//! `memtrack smi` over a library that stands in for NVML: what comes out, and what stays unknown.

#![cfg(all(target_os = "linux", feature = "nvml"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::nvml::{Fake, GIB, MIB, NEIGHBOUR, TRAINING, card, end, publication};
use memtrack_mock_nvml::{Change, Configuration, Device, Memory};
use serde_json::{Value, json};

const V2: &str = "nvmlDeviceGetMemoryInfo_v2";
const V1: &str = "nvmlDeviceGetMemoryInfo";
const COMPUTE: &str = "nvmlDeviceGetComputeRunningProcesses_v3";

/// A training that publishes, a neighbour that does not, and 9 MiB of nobody's.
fn shared_card(test: &str) -> Fake {
    let device = card(1, 6 * GIB + 109 * MIB)
        .compute_process(TRAINING, Some(6 * GIB))
        .compute_process(NEIGHBOUR, Some(100 * MIB));
    let fake = Fake::new(test, [device, card(2, 8 * MIB)]);
    fake.publish("training", &publication(TRAINING, 1, 4 * GIB, 5 * GIB, Some(500 * MIB)));
    fake
}

fn bytes(object: &Value) -> Option<i64> {
    object["bytes"].as_i64()
}

#[test]
fn the_parts_of_every_device_add_up_to_the_byte_with_source_and_exactness() {
    let look = shared_card("smi-parts").json(&["smi", "--json"]);
    assert_eq!(look["schema_version"], 1);
    assert_eq!(look["driver_version"], "580.95.05");
    let used = &look["devices"][0]["used"];
    let part = |name: &str| (bytes(&used[name]), used[name]["source"].as_str(), used[name]["exactness"].as_str());
    let mib = |count: i64| Some(count * MIB as i64);
    assert_eq!(part("allocated"), (mib(4096), Some("published"), Some("exact")));
    assert_eq!(part("cached"), (mib(1024), Some("published"), Some("exact")));
    assert_eq!(part("context"), (mib(500), Some("published"), Some("exact")));
    assert_eq!(part("other_processes"), (mib(100), Some("process list"), Some("exact")));
    // What the training took outside its allocator since it measured its context, and the 9 MiB.
    assert_eq!(part("unexplained"), (mib(1024 - 500 + 9), Some("remainder"), Some("exact")));
    let names = ["allocated", "cached", "context", "other_processes", "unexplained"];
    assert_eq!(names.iter().filter_map(|name| bytes(&used[*name])).sum::<i64>(), bytes(used).unwrap());
    assert_eq!(used["bytes"], look["devices"][0]["memory"]["used_bytes"]);

    let process = &look["devices"][0]["processes"][0];
    assert_eq!((&process["pid"], &process["program"]), (&json!(TRAINING), &json!("train")));
    assert_eq!(process["driver_bytes"], 6 * GIB);
    assert_eq!(process["unexplained_bytes"], 524 * MIB);
    assert_eq!(process["published"][0]["fragmentation"], 0.1);
    let neighbour = &look["devices"][0]["processes"][1];
    assert_eq!(neighbour["published"], Value::Null);
    assert_eq!(look["devices"][1]["processes"], json!([]));
}

#[test]
fn what_is_not_known_is_null_with_a_reason_and_never_0() {
    let split = card(1, 0).error(V2, 4).error(COMPUTE, 4);
    let unnamed = Device { name: None, ..card(2, 5 * MIB) }.compute_process(NEIGHBOUR, None).error(V2, 13);
    let look = Fake::new("smi-unknown", [split, unnamed]).json(&["smi", "--json"]);
    let [first, second] = [&look["devices"][0], &look["devices"][1]];
    assert_eq!((&first["memory"], &first["used"], &first["processes"]), (&Value::Null, &Value::Null, &Value::Null));
    let denied = "the current user does not have permission to perform this operation";
    assert_eq!(first["memory_unknown"], format!("{V2}: {denied}"));
    assert_eq!(first["processes_unknown"], format!("{COMPUTE}: {denied}"));
    assert_eq!(first["system_memory"], Value::Null, "only for devices without memory of their own");
    assert_eq!(second["name"], Value::Null);
    assert!(second["name_unknown"].as_str().unwrap().starts_with("nvmlDeviceGetName: "));
    assert_eq!(second["memory"]["query"], "NVML v1");
    assert_eq!(second["memory"]["used_bytes"], 909 * MIB);
    assert_eq!(second["memory"]["driver_reserved_bytes"], Value::Null);
    assert_eq!(second["processes"][0]["driver_bytes"], Value::Null);
    let others = &second["used"]["other_processes"];
    assert_eq!((&others["bytes"], &others["unknown"]), (&Value::Null, &json!("1 listed without a figure")));
    assert_eq!(second["used"]["unexplained"]["exactness"], "at most");
}

#[test]
fn r12_on_unified_memory_the_process_has_its_figure_and_the_totals_are_labelled_as_the_machines() {
    let device = card(1, 0).error(V2, 3).error(V1, 3).compute_process(TRAINING, Some(19_135 * MIB));
    let fake = Fake::new("smi-unified", [device]);
    let look = fake.json(&["smi", "--json"]);
    let device = &look["devices"][0];
    assert_eq!(device["memory"], Value::Null);
    assert_eq!(device["processes"][0]["driver_bytes"], 19_135 * MIB);
    assert_eq!(device["system_memory"]["source"], "the machine's memory, which the device shares");
    assert!(device["system_memory"]["total_bytes"].as_u64() > Some(0));
    let (_, text, _) = fake.run(&["smi"]);
    assert!(text.contains("  used, total and free unknown: nvmlDeviceGetMemoryInfo: "), "{text}");
    assert!(text.contains("  the machine's memory, which it shares: "), "{text}");
    let (_, csv, _) = fake.run(&["smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader"]);
    assert_eq!(csv, "[N/A], [N/A]\n");
}

#[test]
fn r12_a_limit_of_all_that_a_number_can_say_is_no_limit() {
    let fake = Fake::new("smi-limit", [card(1, 6 * GIB).compute_process(TRAINING, Some(6 * GIB))]);
    for (limit, said, has_limit) in
        [(json!(u64::MAX), "no limit", false), (Value::Null, "no limit", false), (json!(16 * GIB), "16.00 GiB", true)]
    {
        let mut published = publication(TRAINING, 1, 4 * GIB, 5 * GIB, None);
        published["allocators"][0]["limit_bytes"] = limit;
        fake.publish("training", &published);
        let (_, text, _) = fake.run(&["smi"]);
        assert!(text.lines().any(|line| line.ends_with(said)), "{text}");
        assert!(!text.contains("17179869184"), "{text}");
        let look = fake.json(&["smi", "--json"]);
        assert_eq!(look["devices"][0]["processes"][0]["published"][0]["has_limit"], has_limit);
    }
}

#[test]
fn r11_the_number_of_cuda_is_shown_beside_nvmls_and_said_to_be_a_guess_when_it_is() {
    let fake = Fake::new("smi-mask", (1..=4).map(|number| card(number, u64::from(number) * 10 * GIB)));
    let numbers = |mask: &str, order: Option<&str>| {
        let mut command = fake.command(&["smi", "--json"]);
        command.env("CUDA_VISIBLE_DEVICES", mask);
        order.map(|order| command.env("CUDA_DEVICE_ORDER", order));
        let look: Value = serde_json::from_str(&end(&mut command).1).unwrap();
        let devices = look["devices"].as_array().unwrap().clone();
        let numbers: Vec<Value> = devices.iter().map(|device| device["cuda"].clone()).collect();
        (numbers, look["mask"].as_str().unwrap().to_owned())
    };
    let cuda = |ordinal: u32, by: &str| json!({ "ordinal": ordinal, "by": by });
    let none = Value::Null;
    let (by_number, end) = numbers("2,3", Some("PCI_BUS_ID"));
    assert_eq!(by_number, [none.clone(), none.clone(), cuda(0, "PCI order"), cuda(1, "PCI order")]);
    assert_eq!(end, "every entry names a device");
    assert_eq!(numbers("3", None).0[3], cuda(0, "guess"));
    assert_eq!(numbers("GPU-02", None).0[1], cuda(0, "uuid in the mask"));
    let (hidden, end) = numbers("0,-1,1", Some("PCI_BUS_ID"));
    assert_eq!(hidden, [cuda(0, "PCI order"), none.clone(), none.clone(), none]);
    assert_eq!(end, "`-1` names no device and ends the mask");
}

#[test]
fn queries_print_as_nvidia_smis_do() {
    let fake = shared_card("smi-csv");
    let (uuid, fields) =
        (card(1, 0).uuid, "--query-gpu=index,uuid,memory.total,memory.used,memory.reserved,memory.free");
    let (status, csv, errors) = fake.run(&["smi", fields, "--format=csv"]);
    assert_eq!((status, errors.as_str()), (0, ""));
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "index, uuid, memory.total [MiB], memory.used [MiB], memory.reserved [MiB], memory.free [MiB]"
    );
    assert_eq!(lines[1], format!("0, {uuid}, 81920 MiB, 6253 MiB, 904 MiB, 74763 MiB"));
    assert_eq!(lines.len(), 3);
    let (_, csv, _) = fake.run(&["smi", "-i", "0", fields, "--format=csv,noheader,nounits"]);
    assert_eq!(csv, format!("0, {uuid}, 81920, 6253, 904, 74763\n"));
    let own = "--query-gpu=name,pci.bus_id,driver_version,count,mig.mode.current,memtrack.cached,memtrack.unexplained";
    let (_, csv, _) = fake.run(&["smi", "-i", "0", own, "--format=csv,noheader"]);
    assert_eq!(csv, "NVIDIA Test 1, 00000000:01:00.0, 580.95.05, 2, Disabled, 1024 MiB, 533 MiB\n");
    let (_, csv, _) =
        fake.run(&["smi", "--query-compute-apps=pid,process_name,used_memory,memtrack.allocated", "--format=csv"]);
    let expected = "pid, process_name, used_gpu_memory [MiB], memtrack.allocated [MiB]\n\
                    5000001, train, 6144 MiB, 4096 MiB\n5000002, [N/A], 100 MiB, [N/A]\n";
    assert_eq!(csv, expected);
}

/// What `nvidia-smi` showed of an idle H200 (driver 580.159.04): 143771, 616, 0 and 143156 MiB.
#[test]
fn mebibytes_of_queries_are_rounded_up_as_nvidia_smis_are() {
    let (total, reserved) = (143_771 * MIB, 644_939_776);
    let memory = Memory { total, reserved, free: total - reserved, used: 0 };
    let fake = Fake::new("smi-rounding", [card(1, 0).memory(memory)]);
    let fields = "--query-gpu=memory.total,memory.reserved,memory.used,memory.free";
    let (_, csv, _) = fake.run(&["smi", fields, "--format=csv,noheader,nounits"]);
    assert_eq!(csv, "143771, 616, 0, 143156\n");
}

/// A process 1 of a pid namespace of its own, as in a container; `None` where none may be made.
fn process_in_a_container() -> Option<(std::process::Child, u32)> {
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "sleep", "60"]).stderr(Stdio::null());
    let mut outer = unshare.spawn().ok()?;
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    for _ in 0..200 {
        let inner = std::fs::read_to_string(&children).unwrap_or_default();
        if let Some(pid) = inner.split_whitespace().next().and_then(|pid| pid.parse().ok()) {
            return Some((outer, pid));
        }
        if outer.try_wait().ok()?.is_some() {
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let _ = outer.kill();
    None
}

#[test]
fn a_process_in_a_container_is_found_by_its_namespace_and_its_number_inside() {
    let Some((mut outer, pid)) = process_in_a_container() else {
        eprintln!("not tested: this user may not make a pid namespace");
        return;
    };
    let fake = Fake::new("smi-container", [card(1, 3 * GIB).compute_process(pid, Some(2 * GIB + 300 * MIB))]);
    let mut inside = publication(1, 1, GIB, 2 * GIB, None);
    let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    inside["pid_namespace"] = namespace.to_str().unwrap().into();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    inside["start_ticks"] = (start + 1).into();
    fake.publish("1.4026531999", &inside);
    let another = fake.json(&["smi", "--json"]);
    inside["start_ticks"] = start.into();
    fake.publish("1.4026531999", &inside);
    let look = fake.json(&["smi", "--json"]);
    outer.kill().unwrap();
    outer.wait().unwrap();
    assert_eq!(look["devices"][0]["processes"][0]["pid"], pid, "{look}");
    assert_eq!(look["devices"][0]["used"]["allocated"]["bytes"], GIB);
    assert_eq!(look["devices"][0]["used"]["other_processes"]["bytes"], 0);
    assert_eq!(look["published"]["unmatched"], json!([]));
    assert_eq!(another["devices"][0]["used"]["allocated"]["bytes"], 0, "the number went to another process");
    assert_eq!(another["published"]["unmatched"][0]["pid"], 1);
}

#[test]
fn wrong_usage_is_status_2_and_names_what_is_right() {
    let fake = Fake::new("smi-usage", [card(1, 0)]);
    for (arguments, said) in [
        (&["smi", "--query-gpu=memory.usd", "--format=csv"][..], "the fields are index, uuid"),
        (&["smi", "--query-gpu=index"], "--format"),
        (&["smi", "--query-gpu=index", "--format=json"], "`json` is none of csv, noheader and nounits"),
        (&["smi", "--query-gpu=index", "--format=noheader"], "csv is the only format"),
        (&["smi", "--watch", "0"], "expected from 0.01 seconds to a day"),
        (&["smi", "--watch", "soon"], "expected a number of seconds"),
        (&["smi", "--count", "2"], "--watch"),
        (&["smi", "--json", "--query-gpu=index", "--format=csv"], "cannot be used with"),
    ] {
        let (status, output, errors) = fake.run(arguments);
        assert_eq!((status, output.as_str()), (2, ""), "{arguments:?}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_device_is_chosen_by_index_or_uuid_and_an_unknown_one_is_an_error() {
    let fake = Fake::new("smi-choose", [card(1, MIB), card(2, 2 * MIB)]);
    for name in ["1", "GPU-0202"] {
        let look = fake.json(&["smi", "--json", "-i", name]);
        assert_eq!(look["devices"].as_array().unwrap().len(), 1);
        assert_eq!(look["devices"][0]["memory"]["used_bytes"], 2 * MIB);
    }
    let (status, output, errors) = fake.run(&["smi", "--json", "-i", "7"]);
    assert_eq!(status, 3);
    assert!(errors.starts_with("memtrack: no device `7` among GPU 0 (GPU-01"), "{errors}");
    let look: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(look["devices"], Value::Null);
}

#[test]
fn without_a_driver_the_status_is_3_and_the_reason_is_told() {
    let missing = Configuration::default().device(card(1, 0)).error("nvmlInit_v2", 9);
    let no_driver = Fake::with("smi-no-driver", &missing, &[]);
    let (status, output, errors) = no_driver.run(&["smi"]);
    assert_eq!((status, output.as_str()), (3, ""));
    assert!(errors.starts_with("memtrack: the NVIDIA kernel driver is not loaded"), "{errors}");
    let (status, _, errors) = Fake::new("smi-no-devices", []).run(&["smi"]);
    assert_eq!(status, 3);
    assert!(errors.starts_with("memtrack: the driver knows no device"), "{errors}");
    let (status, output, _) = no_driver.run(&["smi", "--json"]);
    let look: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((status, &look["schema_version"], &look["devices"]), (3, &json!(1), &Value::Null));
    assert!(look["devices_unknown"].as_str().unwrap().starts_with("the NVIDIA kernel driver is not loaded"));
}

#[test]
fn a_library_that_lacks_functions_gives_what_it_can() {
    let configuration = Configuration::default().device(card(1, MIB).compute_process(TRAINING, Some(MIB)));
    let missing = [V2, "nvmlDeviceGetName", "nvmlDeviceGetMigMode", "nvmlDeviceGetPciInfo_v3", COMPUTE];
    let look = Fake::with("smi-lacks", &configuration, &missing).json(&["smi", "--json"]);
    let device = &look["devices"][0];
    assert_eq!(device["memory"]["query"], "NVML v1");
    assert_eq!((&device["mig_mode"], &device["processes"]), (&Value::Null, &Value::Null));
    assert!(device["processes_unknown"].as_str().unwrap().starts_with(COMPUTE));
    assert!(device["pci_bus_id_unknown"].is_string());
}

#[test]
fn mig_instances_have_figures_of_their_own_where_the_gpu_gives_none() {
    let instance = |number| Device { uuid: card(number, 0).uuid.replace("GPU-", "MIG-"), ..card(number, GIB) };
    let fake = Fake::new("smi-mig", [card(1, 0).error(V2, 4).mig_device(instance(8)).mig_device(instance(9))]);
    fake.publish("mig", &publication(TRAINING, 9, MIB, 2 * MIB, None));
    let look = fake.json(&["smi", "--json"]);
    let devices = look["devices"].as_array().unwrap();
    assert_eq!(
        devices.iter().map(|device| &device["mig_index"]).collect::<Vec<_>>(),
        [&Value::Null, &json!(0), &json!(1)]
    );
    assert_eq!((&devices[0]["mig_mode"], &devices[0]["memory"]), (&json!(true), &Value::Null));
    assert_eq!(devices[2]["memory"]["used_bytes"], GIB);
    let (status, output, _) = fake.run(&["check", "--max-used", "2GiB"]);
    assert_eq!((status, output.as_str()), (0, "ok: 2 devices within 1 limit\n"));
}

#[test]
fn published_files_of_no_use_are_told_and_those_of_ended_processes_not_counted() {
    let fake = shared_card("smi-files");
    fake.publish("spoilt", &json!({ "memtrack_publication": 7 }));
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap().into_os_string().into_string().unwrap();
    let mut ended = publication(TRAINING, 1, GIB, GIB, None);
    ended["start_ticks"] = 1.into();
    ended["pid_namespace"] = namespace.into();
    fake.publish("ended", &ended);
    let mut elsewhere = publication(1, 1, GIB, GIB, None);
    elsewhere["start_ticks"] = 1.into();
    elsewhere["pid_namespace"] = "pid:[1]".into();
    fake.publish("elsewhere", &elsewhere);
    let look = fake.json(&["smi", "--json"]);
    assert_eq!(look["devices"][0]["used"]["allocated"]["bytes"], 4 * GIB);
    let published = &look["published"];
    assert_eq!(published["ended_count"], 1);
    let reason = "form 7, of which this memtrack reads 1; use the memtrack that wrote it";
    assert_eq!(published["unreadable"][0]["reason"], reason);
    assert_eq!(
        published["unmatched"][0]["reason"],
        "its process is in another container and cannot be found from here"
    );
    let (_, text, _) = fake.run(&["smi"]);
    assert!(text.contains("1 file of a process that ended in "), "{text}");
}

#[test]
fn a_process_that_lives_is_matched_by_its_number_and_its_context_is_what_it_has_beyond_its_pools() {
    let pid = std::process::id();
    let fake = Fake::new("smi-alive", [card(1, 3 * GIB).compute_process(pid, Some(2 * GIB + 300 * MIB))]);
    memtrack::publish::to(fake.folder.0.join("published"));
    let own = memtrack::publish::now().unwrap();
    let mut text: Value = serde_json::from_str(&std::fs::read_to_string(&own).unwrap()).unwrap();
    text["allocators"] = publication(pid, 1, GIB, 2 * GIB, None)["allocators"].clone();
    std::fs::write(own, text.to_string()).unwrap();
    let look = fake.json(&["smi", "--json"]);
    let context = &look["devices"][0]["used"]["context"];
    assert_eq!(context["bytes"], 300 * MIB);
    assert_eq!(context["source"], "process list less reserved");
    assert_eq!(context["exactness"], "at most", "libraries that came later are in it");
}

#[test]
fn a_context_measured_over_the_whole_device_gives_way_to_the_drivers_list_and_else_is_at_most() {
    let whole_device = |context: u64| {
        let mut published = publication(TRAINING, 1, GIB, 2 * GIB, Some(context));
        published["allocators"][0]["context_method"] = "whole device".into();
        published
    };
    let context = |listed: Option<u64>| {
        let test = format!("smi-whole-{}", listed.is_some());
        let fake = Fake::new(&test, [card(1, 9 * GIB).compute_process(TRAINING, listed)]);
        fake.publish("training", &whole_device(7 * GIB));
        fake.json(&["smi", "--json"])["devices"][0]["used"]["context"].clone()
    };
    let listed = context(Some(2 * GIB + 300 * MIB));
    assert_eq!((&listed["bytes"], &listed["source"]), (&json!(300 * MIB), &json!("process list less reserved")));
    let unlisted = context(None);
    assert_eq!((&unlisted["bytes"], &unlisted["exactness"]), (&json!(7 * GIB), &json!("at most")));
}

#[test]
fn in_a_container_that_hides_numbers_nothing_is_counted_twice() {
    // The driver lists the host's number of a process that published under its own.
    let fake = Fake::new(
        "smi-foreign",
        [card(1, 3 * GIB)
            .compute_process(NEIGHBOUR, Some(2 * GIB))
            .error("nvmlDeviceGetGraphicsRunningProcesses_v3", 3)],
    );
    let pid = std::process::id();
    memtrack::publish::to(fake.folder.0.join("published"));
    let own = memtrack::publish::now().unwrap();
    let mut text: Value = serde_json::from_str(&std::fs::read_to_string(&own).unwrap()).unwrap();
    text["allocators"] = publication(pid, 1, GIB, GIB, Some(100 * MIB))["allocators"].clone();
    std::fs::write(own, text.to_string()).unwrap();
    let look = fake.json(&["smi", "--json"]);
    let others = &look["devices"][0]["used"]["other_processes"];
    assert_eq!(others["bytes"], Value::Null);
    assert!(others["unknown"].as_str().unwrap().contains("under a number that is not known here"));
}

#[test]
fn watching_shows_signed_changes_over_time_and_ends_after_the_count() {
    let card_with =
        |free: u64| Memory { total: 95_830 * MIB, reserved: 0, free: free * MIB, used: (95_830 - free) * MIB };
    let later = Change { after_queries: 1, memory: Some(card_with(92_334)), ..Change::default() };
    let fake = Fake::new("smi-watch", [card(1, 0).memory(card_with(84_931)).then(later)]);
    let (status, text, errors) = fake.run(&["smi", "--watch", "0.01", "--count", "2"]);
    assert_eq!((status, errors.as_str()), (0, ""));
    assert_eq!(text.matches("driver 580.95.05\n").count(), 2, "{text}");
    assert!(text.contains("  since the last look: used -7.23 GiB, free +7.23 GiB\n"), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no cursor: {text:?}");
    let (_, lines, _) = fake.run(&["smi", "--json", "--watch", "0.01", "--count", "3"]);
    let used: Vec<u64> = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["devices"][0]["memory"]["used_bytes"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(used, [10_899 * MIB, 3496 * MIB, 3496 * MIB]);
    let (_, csv, _) =
        fake.run(&["smi", "--query-gpu=memory.used", "--format=csv,nounits", "--watch", "0.01", "--count", "2"]);
    assert_eq!(csv, "memory.used [MiB]\n10899\n3496\n", "one line of names");
}

#[test]
fn r13_idle_contexts_of_workers_are_told_while_watching() {
    let device = (0..24)
        .fold(card(1, 72_480 * MIB), |device, worker| device.compute_process(5_000_100 + worker, Some(520 * MIB)));
    let fake = Fake::new("smi-idle", [device.compute_process(TRAINING, Some(60_000 * MIB))]);
    fake.publish("training", &publication(TRAINING, 1, 59_000 * MIB, 59_500 * MIB, Some(500 * MIB)));
    let (_, text, _) = fake.run(&["smi", "--watch", "0.01", "--count", "2"]);
    let told =
        "  idle contexts of worker processes: 24 processes of 520.00 MiB each, 12.19 GiB together, did not grow; ";
    assert_eq!(text.matches(told).count(), 1, "{text}");
}

#[test]
fn a_reader_that_leaves_ends_the_watch_without_an_error() {
    let fake = Fake::new("smi-pipe", [card(1, MIB)]);
    let mut command = fake.command(&["smi", "--json", "--watch", "0.01"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn names_of_others_cannot_move_the_cursor_or_make_rows_and_fields() {
    let device = card(1, GIB).named("N\x1b[2J,\"VIDIA\u{202e}").compute_process(TRAINING, Some(GIB));
    let configuration =
        Configuration { driver_version: "580\nGPU 9\x1b[2J,95".to_owned(), ..Configuration::default() }.device(device);
    let fake = Fake::with("smi-hostile", &configuration, &[]);
    let mut hostile = publication(TRAINING, 1, MIB, MIB, None);
    hostile["program"] = format!("evil\n\x1b]0;owned\x07,\"x\u{200f}{}", "long ".repeat(50)).into();
    fake.publish("hostile", &hostile);
    hostile["memtrack_publication"] = "\x1b[2J".into();
    fake.publish("spoilt\x1b[2J\nGPU 9", &hostile);
    let steers = ['\x1b', '\x07', '\u{202e}', '\u{200f}'];
    let (_, text, _) = fake.run(&["smi"]);
    assert!(!text.contains(steers), "{text:?}");
    assert!(text.starts_with("driver 580\\nGPU 9\\u{1b}[2J,95\n\nGPU 0  N\\u{1b}[2J,\"VIDIA\\u{202e}  "), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("GPU ")).count(), 1, "{text}");
    let process: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("  process ")).take(2).collect();
    assert!(process[1].contains("evil\\n") && process[1].contains('…'), "{text}");
    assert_eq!(process[0].chars().count(), process[1].chars().count(), "{process:#?}");

    let apps = "--query-compute-apps=pid,process_name,gpu_name";
    for (query, fields) in [(apps, 3), ("--query-gpu=driver_version,name", 2)] {
        let (_, csv, _) = fake.run(&["smi", query, "--format=csv,noheader"]);
        assert_eq!(csv.lines().count(), 1);
        assert_eq!(csv.matches(',').count(), fields - 1, "{csv:?}");
        assert!(!csv.contains(steers) && !csv.contains('"'), "{csv:?}");
    }
}

#[test]
fn devices_are_chosen_in_every_form_that_nvidia_smi_takes() {
    let cards = [card(1, MIB), card(2, 2 * MIB), card(0x18, 3 * MIB)];
    let (first, second) = (cards[0].uuid.clone(), cards[1].uuid.clone());
    let fake = Fake::new("smi-forms", cards);
    let places = |list: &str| -> Vec<u64> {
        let look = fake.json(&["smi", "--json", "-i", list]);
        let devices = look["devices"].as_array().unwrap_or_else(|| panic!("{list}: {look}"));
        devices.iter().map(|device| device["index"].as_u64().unwrap()).collect()
    };
    for (list, expected) in [
        ("0", vec![0]),
        ("2,0", vec![0, 2]),
        (" 1 , 1 ", vec![1]),
        (second.as_str(), vec![1]),
        (second.to_lowercase().as_str(), vec![1]),
        (format!("{first},2").as_str(), vec![0, 2]),
        ("00000000:18:00.0", vec![2]),
        ("0000:18:00.0", vec![2]),
        ("0:18:0", vec![2]),
        ("18:00.0", vec![2]),
        ("00000000:02:00.0,18:00", vec![1, 2]),
    ] {
        assert_eq!(places(list), expected, "{list}");
    }
    for (list, named) in
        [("0,7", "7"), ("0,", ""), ("", ""), ("1:18:00.0", "1:18:00.0"), ("18:00.1", "18:00.1"), ("-1", "-1")]
    {
        let (status, _, errors) = fake.run(&["smi", &format!("--device={list}")]);
        assert_eq!(status, 3, "{list}");
        assert!(errors.starts_with(&format!("memtrack: no device `{named}` among GPU 0 (GPU-01")), "{errors}");
        assert_eq!(errors.lines().count(), 1);
    }
    assert_eq!(fake.run(&["check", "-i", "18:00.0,0", "--max-used", "4MiB"]).1, "ok: 2 devices within 1 limit\n");
}

#[test]
fn a_gpu_in_mig_instances_is_a_guess_and_an_old_name_that_cannot_be_looked_up_is_told() {
    let instance = Device { uuid: card(8, 0).uuid.replace("GPU-", "MIG-"), ..card(8, GIB) };
    let gpu = card(1, GIB);
    let (gpu_uuid, instance_uuid) = (gpu.uuid.clone(), instance.uuid.clone());
    let fake = Fake::new("smi-mig-mask", [gpu.mig_device(instance)]);
    let titles = |mask: &str| -> (String, Vec<String>) {
        let (_, text, _) = end(fake.command(&["smi"]).env("CUDA_VISIBLE_DEVICES", mask));
        let titles = text.lines().filter(|line| line.starts_with("GPU ")).map(str::to_owned).collect();
        (text, titles)
    };
    for mask in ["0", &gpu_uuid] {
        let (text, titles) = titles(mask);
        assert!(titles[0].ends_with("  cuda:0 (a guess: CUDA takes one of its MIG instances)"), "{mask}: {text}");
    }
    assert!(titles(&instance_uuid).1[1].ends_with("  cuda:0"));
    // The library here does not tell the numbers of instances.
    let old = format!("MIG-{gpu_uuid}/1/0");
    let (text, titles) = titles(&old);
    let told = format!(
        "CUDA_VISIBLE_DEVICES: `{old}` names a MIG instance by numbers that the driver does not tell; name it by its UUID"
    );
    assert!(text.contains(&told), "{text}");
    assert!(titles.iter().all(|title| !title.contains("cuda:")), "{text}");
    let (_, text, _) = end(fake.command(&["smi"]).env("CUDA_VISIBLE_DEVICES", "x\x1b[2J\ny"));
    assert!(text.contains("CUDA_VISIBLE_DEVICES: `x\\u{1b}[2J\\ny` names no device and ends the mask\n"), "{text:?}");
}
