//! `special/driver_oom*.json` and `special/graph.json`, as far as an allocator of device memory can follow them.

use std::collections::HashMap;

use serde_json::Value;

use super::files::fixture;
use super::programs;
use super::recording::{Names, Recording};
use super::step::Step;
use super::subject::Setup;

const MIB: u64 = 1 << 20;

/// A file's content.
pub fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("special").join(name)).unwrap()).unwrap()
}

/// Both runs into a full card. How much the rest of the card was holds the error's text, to a hundredth of a MiB.
pub fn driver_out_of_memory() -> impl Iterator<Item = Recording> {
    let names = Names::default();
    [("driver_oom", ""), ("driver_oom_expandable", "expandable_segments:True")].into_iter().map(
        move |(name, settings)| {
            let file = read(&format!("{name}.json"));
            let total_bytes = file["total_memory"].as_u64().unwrap();
            let ops = file["ops"].as_array().unwrap();
            let oom = ops.iter().find_map(|op| op.get("oom")).unwrap().as_str().unwrap();
            let free: f64 =
                oom.split(" of which ").nth(1).unwrap().split(" MiB is free").next().unwrap().parse().unwrap();
            let reserved = file["final_stats"]["reserved_bytes.all.current"].as_u64().unwrap();
            let bytes = total_bytes - reserved - (free * MIB as f64) as u64;
            Recording {
                name: name.to_owned(),
                setup: Setup {
                    settings: settings.to_owned(),
                    total_bytes,
                    addresses: (1..=ops.len() as u64).map(|n| n << 40).collect(),
                    torch_exact: true,
                },
                preparation: vec![Step::OtherUse { bytes }],
                initial: names.all(&file["initial_stats"]),
                steps: ops.iter().map(|op| programs::step(op, &HashMap::new(), &names)).collect(),
                last: Some(names.all(&file["final_stats"])),
                trace: None,
                segments: None,
            }
        },
    )
}
