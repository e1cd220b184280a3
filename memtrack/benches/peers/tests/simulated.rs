//! The harness itself, on memtrack's simulated device: `scripts/peers --simulated`, or the program with `Buffer`s alone where g++ or
//! python3 is not there. No GPU and no figures: that the programs build, take the same steps, and count them in open scopes.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use serde_json::Value;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const BUFFERS: &str = env!("CARGO_BIN_EXE_peer_buffers");

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A folder as `scripts/gpu-check build` makes it, with what cargo has built for this test.
fn built_folder(name: &str) -> Outcome<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder)?;
    let libraries = env::current_exe()?;
    let libraries = libraries.parent().ok_or("the test lies in no folder")?;
    fs::copy(libraries.join("libmemtrack_peers.so"), folder.join("libmemtrack_peers.so"))?;
    fs::copy(BUFFERS, folder.join("peer_buffers"))?;
    Ok(folder)
}

fn objects(text: &str) -> Outcome<Vec<Value>> {
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What of a result does not depend on time, by what was measured.
fn steps_taken(results: &[Value], peer: &str) -> BTreeMap<String, Value> {
    const TIMES: [&str; 5] = ["ns", "cold_ms", "seconds", "round", "peer"];
    let of_peer = results.iter().filter(|result| result["peer"] == peer && result["bench"] != "part");
    of_peer
        .map(|result| {
            let mut result = result.clone();
            if let Some(object) = result.as_object_mut() {
                object.retain(|key, _| !TIMES.contains(&key.as_str()));
            }
            let what = ["bench", "bytes", "threads", "trace"].map(|key| result[key].to_string());
            (what.join(" "), result)
        })
        .collect()
}

#[test]
fn both_programs_take_the_same_steps_in_open_scopes() -> Outcome {
    if !cfg!(target_os = "linux") || !is_there("g++") || !is_there("python3") {
        println!("not run: this takes Linux, g++ and python3");
        return Ok(());
    }
    let folder = built_folder("peers")?;
    let json = folder.join("results.json");
    let output = Command::new("python3")
        .arg(project().join("scripts/peers"))
        .args(["--simulated", "--rounds", "1", "--rows", "pair,churn,threads,gnn_sampled", "--peers"])
        .arg(
            "memtrack,memtrack_expandable,memtrack_compact,buffers,buffers_expandable,buffers_compact,buffers_no_scope",
        )
        .arg("--built")
        .arg(&folder)
        .arg("--json")
        .arg(&json)
        .env_remove("MEMTRACK_PEERS")
        .env_remove("MEMTRACK_PEER_ROWS")
        .output()?;
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("an open scope that counted its allocations"), "{told}");

    let results = objects(&fs::read_to_string(json)?)?;
    for end in ["", "_expandable", "_compact"] {
        let by_address = steps_taken(&results, &format!("memtrack{end}"));
        assert_eq!(by_address, steps_taken(&results, &format!("buffers{end}")), "{end}");
        let counted: Vec<_> = by_address.values().map(|result| result["owned"].as_i64()).collect();
        // churn, four sizes of pairs (in alphabetical order), five passes of the trace, five numbers of threads.
        let mut wanted = vec![304_096];
        wanted.extend([140_000; 4]);
        wanted.push(5 * 8860);
        wanted.extend([64_000; 5]);
        assert_eq!(counted, wanted.into_iter().map(Some).collect::<Vec<_>>(), "{end}");
    }
    let outside = steps_taken(&results, "buffers_no_scope");
    assert!(outside.values().all(|result| result["owned"] == 0), "{outside:?}");

    let trace = |peer| steps_taken(&results, peer).into_values().find(|result| result["bench"] == "replay");
    let compact = trace("memtrack_compact").ok_or("no replay")?;
    assert!(compact["moved_cold"].as_i64() > Some(0), "{compact}");
    assert!(compact["reserved_peak"].as_i64() < trace("memtrack").ok_or("no replay")?["reserved_peak"].as_i64());
    Ok(())
}

#[test]
fn only_the_steps_that_are_named_are_taken() -> Outcome {
    let output = Command::new(BUFFERS).args(["buffers", "churn"]).env("MEMTRACK_PEERS_DEVICE", "simulated").output()?;
    assert!(output.status.success(), "{}", text(&output));
    let taken: Vec<_> = objects(&text(&output))?.iter().map(|result| result["bench"].to_string()).collect();
    assert_eq!(taken, [r#""churn""#, r#""part""#]);
    Ok(())
}

#[test]
fn an_unknown_peer_or_device_is_refused_by_name() -> Outcome {
    let refused = |peer: &str, device: &str| -> Outcome<String> {
        let output = Command::new(BUFFERS).args([peer, "pair"]).env("MEMTRACK_PEERS_DEVICE", device).output()?;
        assert!(!output.status.success());
        Ok(text(&output))
    };
    assert!(refused("buffers_compacted", "simulated")?.contains("no peer buffers_compacted"));
    assert!(refused("buffers", "rocm")?.contains("MEMTRACK_PEERS_DEVICE is `rocm`"));
    Ok(())
}
