//! The program with a library in NVML's place, and figures that other processes published.

use std::process::Command;

use memtrack_mock_nvml::{Configuration, Device, Instance, Memory};
use serde_json::{Value, json};

use super::Folder;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Numbers that no process has: Linux has none above 4194304.
pub(crate) const TRAINING: u32 = 5_000_001;
pub(crate) const NEIGHBOUR: u32 = 5_000_002;

/// A card of 80 GiB with 904 MiB reserved by the driver.
pub(crate) fn card(number: u8, used: u64) -> Device {
    let byte = format!("{number:02x}");
    let uuid = format!("GPU-{0}{0}{0}{0}-{0}{0}-{0}{0}-{0}{0}-{0}{0}{0}{0}{0}{0}", byte);
    let (total, reserved) = (80 * GIB, 904 * MIB);
    let memory = Memory { total, reserved, free: total - reserved - used, used };
    Device::new(&uuid, &format!("00000000:{byte}:00.0")).named(&format!("NVIDIA Test {number}")).memory(memory)
}

/// A machine with these devices, and a folder for published figures.
pub(crate) struct Fake {
    pub(crate) folder: Folder,
    library: Instance,
    document: String,
}

impl Fake {
    pub(crate) fn new(test: &str, devices: impl IntoIterator<Item = Device>) -> Self {
        let empty = Configuration { driver_version: "580.95.05".to_owned(), ..Configuration::default() };
        Self::with(test, &devices.into_iter().fold(empty, Configuration::device), &[])
    }

    pub(crate) fn with(test: &str, configuration: &Configuration, missing: &[&str]) -> Self {
        let folder = Folder::new(test);
        let document = folder.write("nvml.json", serde_json::to_string(configuration).unwrap());
        std::fs::create_dir(folder.0.join("published")).unwrap();
        Self { folder, library: Instance::start_without(configuration, missing).unwrap(), document }
    }

    /// The program with these arguments: the library is named by option, its document by the environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memtrack"));
        command.args(arguments).arg("--nvml-lib").arg(self.library.path());
        command.arg("--published").arg(self.folder.0.join("published"));
        for variable in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MEMTRACK_PUBLISH", "MEMTRACK_NVML_LIB"] {
            command.env_remove(variable);
        }
        command.env("MEMTRACK_MOCK_NVML", &self.document);
        command
    }

    /// Runs it as in a container that sees every process: status, standard output, standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        end(self.command(arguments).arg("--all-processes"))
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let (_, output, errors) = self.run(arguments);
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}{errors}"))
    }

    /// Publishes figures of a process on a card.
    pub(crate) fn publish(&self, name: &str, publication: &Value) -> String {
        self.folder.write(&format!("published/{name}.json"), publication.to_string())
    }
}

pub(crate) fn end(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// What a process on a card publishes that says nothing of where it is from.
pub(crate) fn publication(pid: u32, card: u8, allocated: u64, reserved: u64, context: Option<u64>) -> Value {
    let byte = format!("{card:02x}");
    let uuid = format!("{0}{0}{0}{0}-{0}{0}-{0}{0}-{0}{0}-{0}{0}{0}{0}{0}{0}", byte);
    json!({
        "memtrack_publication": 1, "pid": pid, "start_ticks": null, "pid_namespace": null, "program": "train",
        "published_unix_ms": now_ms(),
        "allocators": [{
            "device": "cuda:0", "kind": "cuda", "model": "NVIDIA Test", "uuid": uuid,
            "pci_address": format!("00000000:{byte}:00.0"),
            "allocated_bytes": allocated, "requested_bytes": allocated, "reserved_bytes": reserved,
            "peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved, "inactive_split_bytes": 0,
            "largest_free_block_bytes": (reserved - allocated) / 2, "limit_bytes": null, "retry_count": 0, "oom_count": 0,
            "context_bytes": context, "context_method": context.map(|_| "own process"),
        }],
    })
}

pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
