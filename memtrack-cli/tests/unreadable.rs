//! Files that are no recordings: status 2, and a line that says why and where.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::{Folder, fixtures, run, unpacked};
use memtrack_cli::recording::Recording;
use memtrack_cli::replay::{Choices, replay};
use serde_json::Value;

/// A file's name and content, and what the error says of it.
type Case = (&'static str, Vec<u8>, &'static str);

fn text(name: &'static str, content: &str, said: &'static str) -> Case {
    (name, content.as_bytes().to_vec(), said)
}

fn step(step: &str, said: &'static str) -> Case {
    text("program.json", &format!(r#"{{"ops": [{{"op": ["alloc", 7, 512, 0]}}, {{"op": {step}}}]}}"#), said)
}

fn golden(step: &str, said: &'static str) -> Case {
    let file = format!(r#"{{"keys": ["num_ooms"], "streams": [0], "ops": [{{"op": "init"}}, {step}]}}"#);
    text("golden.json", &file, said)
}

fn line(line: &str, said: &'static str) -> Case {
    text("trace.txt", &format!("# by hand\na 7 512 0 1024\n\n{line}\n"), said)
}

/// A history of entries of 512 bytes: the action and the address of each.
fn history(entries: &[(&str, u64)], said: &'static str) -> Case {
    let entry = |(action, address): &(&str, u64)| {
        format!(r#"{{"action": "{action}", "addr": {address}, "size": 512, "stream": 0}}"#)
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    text("history.json", &format!(r#"{{"segments": [], "device_traces": [[{}]]}}"#, entries.join(", ")), said)
}

fn histories() -> Vec<Case> {
    const ALLOC: &str = "alloc";
    const FREE: &str = "free_requested";
    const DONE: &str = "free_completed";
    vec![
        history(
            &[(ALLOC, 512), (FREE, 512), (FREE, 512)],
            "device_traces[0][2]: the block at 512 is freed and is freed already",
        ),
        history(
            &[(ALLOC, 512), (FREE, 512), (DONE, 512), (FREE, 512)],
            "device_traces[0][3]: the block at 512 is freed and",
        ),
        history(
            &[(ALLOC, 512), (ALLOC, 512)],
            "[1]: the block at 512 is allocated and was not freed; a history that was recorded",
        ),
        history(
            &[(ALLOC, 512), (FREE, 512), (ALLOC, 512), (DONE, 512)],
            "[2]: the block at 512 is allocated and its free is not",
        ),
        history(&[(FREE, 9), (ALLOC, 512), (DONE, 512)], "[2]: the block at 512 has its free completed, which was not"),
        history(&[(DONE, 512), (DONE, 512)], "[1]: the block at 512 has its free completed, which is complete already"),
        history(
            &[(ALLOC, 512), (DONE, 512), (ALLOC, 512)],
            "device_traces[0]: no `free_requested` entries; a history that was",
        ),
        history(&[(ALLOC, 0)], "[0]: `addr` of this `alloc` is missing or 0"),
        text(
            "size.json",
            r#"{"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "stream": 0}]]}"#,
            "device_traces[0][0]",
        ),
    ]
}

fn cases() -> Vec<Case> {
    let packed = std::fs::read(fixtures().join("programs/best-fit.json.gz")).unwrap();
    let pickle = std::fs::read(fixtures().join("snapshots/default.pickle")).unwrap();
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    vec![
        // Not even bytes of the right kind.
        text("empty.json", "", "is empty"),
        text("plain.json.gz", "{}", "is not gzip, though its name ends in .gz"),
        text("plain.txt.gz", "a 1 2", "is not gzip"),
        ("cut.json.gz", packed[..packed.len() / 2].to_vec(), "damaged or cut off"),
        ("cut-short.json.gz", packed[..7].to_vec(), "damaged or cut off"),
        ("damaged.json.gz", damaged, "damaged or cut off"),
        ("junk-behind.json.gz", [packed.as_slice(), b"junk"].concat(), "damaged or cut off"),
        ("bytes.txt", b"a 1 2\n\xff\xfe".to_vec(), "byte 6 is not text"),
        ("bytes", vec![0, 1, 2, 0xff], "is no recording"),
        // Not JSON.
        text("cut.json", r#"{"ops": [{"op": ["al"#, "is not JSON: EOF while parsing a string at line 1 column 20"),
        text("text.json", "hello", "is not JSON: expected value at line 1 column 1"),
        text("deep.json", &"[".repeat(100_000), "is not JSON: recursion limit exceeded"),
        text("number.json", r#"{"ops": [], "total_memory": 1e999}"#, "is not JSON: number out of range"),
        // Not snapshots.
        ("cut.pickle", pickle[..pickle.len() / 2].to_vec(), "the pickle is refused at byte "),
        ("cut", pickle[..2].to_vec(), "the pickle is refused at byte 2"),
        ("call.pickle", b"\x80\x04cos\nsystem\n.".to_vec(), "this operation is not allowed"),
        text("text.pickle", "hello", "the pickle is refused at byte 0"),
        text("traces.json", r#"{"device_traces": 3}"#, "device_traces should be"),
        text(
            "history.json",
            r#"{"segments": [], "device_traces": [[]]}"#,
            "device_traces: no device has a history to replay",
        ),
        text(
            "size.json",
            r#"{"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": 1152921504606846976, "stream": 0}]]}"#,
            "device_traces[0][0]: the size, 1152921504606846976: at most 2^60 - 1",
        ),
        // JSON of another shape.
        text("list.json", "[]", "the file: expected an object, found a list of 0"),
        text("nothing.json", "{}", "the file: `ops` is missing"),
        text("ops.json", r#"{"ops": 3}"#, "ops: expected a list, found 3"),
        text("step.json", r#"{"ops": [7]}"#, "ops[0]: expected an object, found 7"),
        text("no-op.json", r#"{"ops": [{"changed": {}}]}"#, "ops[0]: `op` is missing"),
        text(
            "total.json",
            r#"{"ops": [], "total_memory": -1}"#,
            "total_memory: expected a whole number from 0 to 2^44",
        ),
        text("total.json", r#"{"ops": [], "total_memory": 17592186044417}"#, "(16 TiB), found 17592186044417"),
        text("limit.json", r#"{"ops": [], "limit_bytes": 1}"#, "limit_bytes: a limit is a share"),
        text("limit.json", r#"{"ops": [], "total_memory": 0, "limit_bytes": 1}"#, "limit_bytes: a limit is a share"),
        text("config.json", r#"{"ops": [], "config": 1}"#, "config: expected a text, found 1"),
        text("config.json", r#"{"ops": [], "config": "a:b"}"#, "configuration is refused: Unrecognized key 'a'"),
        text("config.json", r#"{"ops": [], "config": "backend:cudaMallocAsync"}"#, "the backend cudaMallocAsync"),
        text(
            "stats.json",
            r#"{"ops": [], "initial_stats": [1]}"#,
            "initial_stats: expected an object, found a list of 1",
        ),
        text("stats.json", r#"{"ops": [], "initial_stats": {"x": 1}}"#, "initial_stats.x: `x` is no statistic"),
        text(
            "stats.json",
            r#"{"ops": [], "final_stats": {"num_ooms": 1.5}}"#,
            "final_stats.num_ooms: expected a whole",
        ),
        text("table.json", r#"{"ops": [], "memory_summary": {}}"#, "memory_summary: expected a text, found an object"),
        text("trace.json", r#"{"ops": [], "trace": [["grow"]]}"#, "trace[0][0]: `grow` is no action"),
        text("trace.json", r#"{"ops": [], "trace": [["segment_alloc", 5, 1, 0]]}"#, "trace[0][1]: address 5 cannot be"),
        text(
            "trace.json",
            r#"{"ops": [], "trace": [["segment_map", 512]]}"#,
            "trace[0]: item 2, the bytes, is missing",
        ),
        // Steps.
        step("[]", "ops[1].op: item 0, the name of the operation, is missing"),
        step("true", "ops[1].op: expected a list, found true"),
        step(r#"["malloc", 1]"#, "ops[1].op[0]: unknown operation `malloc`; known are alloc, free"),
        step(r#"[1]"#, "ops[1].op[0]: expected a text, found 1"),
        step(r#"["alloc", 8, 512]"#, "ops[1].op: item 3, the stream, is missing"),
        step(r#"["alloc", 8, -512, 0]"#, "ops[1].op[2]: expected a whole number from 0 to 2^60 - 1"),
        step(r#"["alloc", 8, 1152921504606846976, 0]"#, "more than any device has, found 1152921504606846976"),
        step(r#"["alloc", 8, 99999999999999999999999, 0]"#, "ops[1].op[2]: expected a whole number"),
        step(
            r#"["alloc", 8, 1.5, 0]"#,
            "ops[1].op[2]: expected a whole number from 0 to 2^60 - 1, more than any device has, found 1.5",
        ),
        step(r#"["alloc", 8, "512", 0]"#, r#"found the text "512""#),
        step(r#"["alloc", 8, 512, 4611686018427387904]"#, "ops[1].op[3]: expected a whole number from 0 to 2^62 - 1"),
        step(r#"["alloc", -8, 512, 0]"#, "ops[1].op[1]: expected a whole number from 0 to 2^64 - 1, found -8"),
        step(r#"["alloc", 7, 512, 0]"#, "ops[1].op: block 7 is allocated already"),
        step(r#"["free", 8]"#, "ops[1].op: block 8 is not allocated here"),
        step(r#"["record_stream", 8, 1]"#, "ops[1].op: block 8 is not allocated here"),
        step(r#"["sleep"]"#, "ops[1].op: item 1, the stream, is missing"),
        step(r#"["set_fraction", 1.5]"#, "ops[1].op[1]: expected a number from 0 to 1, found 1.5"),
        text(
            "both.json",
            r#"{"ops": [{"op": ["alloc", 1, 2, 0], "ptr": 512, "oom": "no"}]}"#,
            "ops[0].oom: an allocation has",
        ),
        text(
            "ptr.json",
            r#"{"ops": [{"op": ["alloc", 1, 2, 0], "ptr": "0x10"}]}"#,
            "ops[0].ptr: expected a whole number",
        ),
        text(
            "changed.json",
            r#"{"ops": [{"op": ["sync"], "changed": {"ooms": 1}}]}"#,
            "ops[0].changed.ooms: `ooms` is no",
        ),
        text(
            "changed.json",
            r#"{"ops": [{"op": ["sync"], "changed": {"num_ooms": null}}]}"#,
            "ops[0].changed.num_ooms: expected",
        ),
        // Twice is no answer.
        text(
            "twice.json",
            "{\"ops\": [],\n \"final_stats\": {\"num_ooms\": 0, \"num_ooms\": 1}}",
            r#"line 2 column 46: the object that ends here has the key "num_ooms" twice"#,
        ),
        text(
            "twice.json",
            r#"{"ops": [], "ops": []}"#,
            r#"line 1 column 22: the object that ends here has the key "ops""#,
        ),
        text(
            "twice.json",
            r#"{"device_traces": [[{"action": "alloc", "addr": 1, "addr": 2, "size": 1, "stream": 0}]]}"#,
            r#"has the key "addr" twice"#,
        ),
        text(
            "keys.json",
            r#"{"keys": ["num_ooms", "num_ooms"], "ops": []}"#,
            "keys[1]: `num_ooms` is in the list already",
        ),
        golden(
            r#"{"op": "init", "d": [[0, 1], [0, 2]]}"#,
            "ops[1].d[1][0]: `num_ooms` has a value in this step already",
        ),
        line("# meta {}\n# meta {}", "line 5: # meta: there is such a line already"),
        line("# final {}\n# final {}", "line 5: # final: there is such a line already"),
        line("# marks []\n# marks []", "line 5: # marks: there is such a line already"),
        line(
            r#"# final {"num_ooms": 0, "num_ooms": 0}"#,
            r#"line 4: line 1 column 30: the object that ends here has the key"#,
        ),
        // More than is asked for.
        step(r#"["alloc", 8, 10, 0, 5]"#, "ops[1].op: item 4 is one too many; the list has at most 4"),
        step(r#"["sync", 1]"#, "ops[1].op: item 1 is one too many; the list has at most 1"),
        step(r#"["free", 7, 1]"#, "ops[1].op: item 2 is one too many; the list has at most 2"),
        golden(
            r#"{"op": "pool_new", "pool": [0, 1, 2]}"#,
            "ops[1].pool: item 2 is one too many; the list has at most 2",
        ),
        golden(r#"{"op": "init", "d": [[0, 1, 2]]}"#, "ops[1].d[0]: item 2 is one too many"),
        text("trace.json", r#"{"ops": [], "trace": [["oom", 0, 1, 0, 9]]}"#, "trace[0]: item 4 is one too many"),
        line("p 1", "line 4: the phase is missing"),
        line("p 1 a b c", "line 4: `b` is one word too many"),
        line("# marks [[1, \"a\", {}, 3]]\np 1 a", "line 4: item 0: item 3 is one too many"),
        text(
            "meant.json",
            r#"{"ops": [{"op": "alloc", "bytes": 512}]}"#,
            r#"ops[0]: `size` is missing (the file is read as a golden one, since the first `op` is a text; a program's step is {"op": ["alloc", 0, 1024, 0]})"#,
        ),
        // Golden files.
        golden(r#"{"op": ["free", 1]}"#, "ops[1].op: expected a text, found a list of 2"),
        golden(r#"{"op": "grow"}"#, "ops[1].op: unknown operation `grow`; known are init, alloc"),
        golden(r#"{"op": "alloc", "size": 1}"#, "ops[1]: `id` is missing"),
        golden(r#"{"op": "alloc", "id": 1}"#, "ops[1]: `size` is missing"),
        golden(r#"{"op": "alloc", "id": 1, "size": -1}"#, "ops[1].size: expected a whole number from 0 to 2^60 - 1"),
        golden(r#"{"op": "alloc", "id": 1, "size": 1, "stream": 1}"#, "ops[1].stream: `streams` has 1 handle"),
        golden(r#"{"op": "alloc", "id": 1, "size": 1, "events_completed": -1}"#, "ops[1].events_completed: expected"),
        golden(r#"{"op": "free", "id": 3}"#, "ops[1]: block 3 is not allocated here"),
        golden(r#"{"op": "init", "d": [[1, 0]]}"#, "ops[1].d[0][0]: `keys` has 1 name, counted from 0"),
        golden(r#"{"op": "init", "d": [[0]]}"#, "ops[1].d[0]: item 1, the value, is missing"),
        golden(r#"{"op": "init", "d": {}}"#, "ops[1].d: expected a list, found an object"),
        golden(r#"{"op": "settings"}"#, "ops[1]: `conf` is missing"),
        golden(r#"{"op": "pool_new"}"#, "ops[1]: `pool` is missing"),
        golden(r#"{"op": "pool_new", "pool": [1]}"#, "ops[1].pool: item 1, the pool's second number, is missing"),
        golden(
            r#"{"op": "pool_new", "pool": [0, 1], "no_split": 1}"#,
            "ops[1].no_split: expected true or false, found 1",
        ),
        golden(r#"{"op": "pool_begin", "pool": [0, 1]}"#, "ops[1]: pool (0, 1) does not exist here"),
        golden(r#"{"op": "pool_end", "pool": [0, 1]}"#, "ops[1]: pool (0, 1) is not in use here"),
        golden(r#"{"op": "pool_delete", "pool": [0, 1]}"#, "ops[1]: pool (0, 1) does not exist here"),
        golden(r#"{"op": "settings", "conf": "x:1"}"#, "settings: Unrecognized key 'x'"),
        text("keys.json", r#"{"keys": ["foo"], "ops": []}"#, "keys[0]: `foo` is no statistic"),
        text(
            "fraction.json",
            r#"{"keys": [], "memory_fraction": -0.1, "ops": []}"#,
            "memory_fraction: expected a number",
        ),
        // Traces.
        line("x 1", "line 4: `x` is no event; a line is `a ID"),
        line("A 1 2", "line 4: `A` is no event"),
        line("a", "line 4: the block's number is missing"),
        line("a 8", "line 4: the bytes is missing"),
        line("a 8 -1", "line 4: the bytes, `-1`, is no whole number from 0 to 2^64 - 1"),
        line("a 8 +1", "line 4: the bytes, `+1`, is no whole number"),
        line("a 8 99999999999999999999", "line 4: the bytes, `99999999999999999999`, is no whole number"),
        line("a 8 1152921504606846976", "line 4: the bytes, 1152921504606846976: at most 2^60 - 1"),
        line("a 8 512 4611686018427387904", "line 4: the stream, 4611686018427387904: at most 2^62 - 1"),
        line("a 8 512 0 0x400", "line 4: the address, `0x400`, is no whole number"),
        line("a 8 512 0 1024 9", "line 4: `9` is one word too many"),
        line("a 7 512", "line 4: block 7 is allocated already"),
        line("f 8", "line 4: block 8 is not allocated here"),
        line("f", "line 4: the block's number is missing"),
        line("c 7", "line 4: no free of block 7 is waiting"),
        line("p x forward", "line 4: the epoch, `x`, is no whole number"),
        line("S 1000 2097152 0", "line 4: address 1000 cannot be a segment's"),
        line("M 0 2097152 0", "line 4: address 0 cannot be a segment's"),
        line("s 1024", "line 4: the bytes is missing"),
        line("o", "line 4: the bytes is missing"),
        line("# meta {", "line 4: is not JSON: EOF"),
        line("# meta []", "line 4: the file: expected an object"),
        line(r#"# meta {"conf": "x:1"}"#, "the recorded configuration is refused: Unrecognized key 'x'"),
        line(r#"# final {"num_ooms": "1"}"#, "line 4: num_ooms: expected a whole number of 64 bits"),
        line(r#"# marks [[1, "forward"]]"#, "line 4: item 0: item 2, the statistics, is missing"),
        line("# marks [[1, \"forward\", {}]]", "# marks: 1 mark for 0 `p` lines"),
        line(
            "# marks [[1, \"forward\", {}]]\np 1 backward",
            "line 5: mark 0 of the file is of phase forward of epoch 1",
        ),
    ]
}

#[test]
fn every_unreadable_file_gives_status_2_its_reason_and_its_place() {
    let folder = Folder::new("unreadable");
    for (name, content, said) in cases().into_iter().chain(histories()) {
        let file = folder.write(name, &content);
        let (status, output, errors) = run(&["replay", &file]);
        let shown = String::from_utf8_lossy(&content[..content.len().min(200)]).into_owned();
        assert_eq!((status, output.as_str()), (2, ""), "{shown}: {errors}");
        assert!(errors.starts_with(&format!("memtrack: {file}: ")), "{errors}");
        assert!(errors.contains(said), "{shown}\n`{said}` is not in `{errors}`");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn a_file_that_is_not_there_a_folder_and_one_that_may_not_be_read_say_so() {
    let folder = Folder::new("not-there");
    let missing = folder.0.join("missing.json");
    let (status, _, errors) = run(&["replay", missing.to_str().unwrap()]);
    assert!(status == 2 && errors.contains("cannot be read: No such file"), "{errors}");
    let (status, _, errors) = run(&["replay", folder.0.to_str().unwrap()]);
    assert!(status == 2 && errors.contains("cannot be read: Is a directory"), "{errors}");
}

#[test]
fn an_unreadable_file_has_a_json_object_too_and_does_not_keep_others_from_theirs() {
    let folder = Folder::new("unreadable-json");
    let bad = folder.write("bad.txt", "what is this");
    let good = folder.write("good.txt", "a 1 512\nf 1\n");
    let (status, output, errors) = run(&["replay", "--json", &good, &bad, &good]);
    let objects: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((status, objects.len(), errors.lines().count()), (2, 3, 1));
    assert_eq!(objects[1]["file"], bad.as_str());
    assert!(objects[1]["error"].as_str().unwrap().starts_with("line 1: `what` is no event"));
    let rest = objects[1].as_object().unwrap().iter().filter(|(key, _)| !matches!(key.as_str(), "file" | "error"));
    assert!(rest.map(|(_, value)| value).all(Value::is_null));
    assert!(objects[0]["error"].is_null() && objects[2]["error"].is_null());
}

/// Any file, cut or with a byte changed, has a result or an error, and no panic.
#[test]
fn no_content_makes_it_panic() {
    let small = ["programs/oom-simple.json.gz", "programs/expandable-grow.json.gz"].map(unpacked);
    let trace = "# meta {\"total_memory\": 99}\np 1 x\nM 4194304 2097152 0\na 1 5 0 4194304\nf 1\nc 1\no 7 1\nm 4194304 2097152\n";
    for (name, content) in [("a.json", &small[0]), ("b.json", &small[1]), ("c.txt", &trace.to_owned())] {
        let bytes = content.as_bytes();
        let mut places: Vec<usize> = (0..bytes.len()).step_by(bytes.len() / 150 + 1).collect();
        places.push(bytes.len() - 1);
        for place in places {
            let mut changed = bytes.to_vec();
            changed[place] = match changed[place] {
                digit @ b'0'..=b'9' => b'9' - (digit - b'0'),
                other => other ^ 0x15,
            };
            for content in [&bytes[..place], changed.as_slice()] {
                for recording in Recording::parse(name, content).unwrap_or_default() {
                    let _ = replay(&recording, &Choices::default());
                }
            }
        }
    }
}
