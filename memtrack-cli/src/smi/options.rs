//! The options of `memtrack smi`, and those it shares with `memtrack check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::csv::{AppField, GpuField};

/// The environment's library in place of NVML.
const LIBRARY_VARIABLE: &str = "MEMTRACK_NVML_LIB";

/// Where to look.
#[derive(Debug, Clone, Args)]
pub struct LookOptions {
    /// The NVML library in place of libnvidia-ml.so.1; also MEMTRACK_NVML_LIB
    #[arg(long, value_name = "PATH")]
    pub nvml_lib: Option<PathBuf>,

    /// The folder in which processes publish their figures; also MEMTRACK_PUBLISH
    #[arg(long, value_name = "FOLDER")]
    pub published: Option<PathBuf>,

    /// Only these devices, by NVML's index, the beginning of a UUID or the PCI address, as 0,GPU-5f2f,18:00.0
    #[arg(long, short = 'i', value_name = "DEVICE")]
    pub device: Option<String>,

    /// Take the driver's list of processes as complete, and its numbers as those seen here: in a container that sees all
    #[arg(long)]
    pub all_processes: bool,
}

impl LookOptions {
    pub(super) fn library(&self) -> Option<OsString> {
        let named = self.nvml_lib.clone().map(PathBuf::into_os_string);
        named.or_else(|| std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()))
    }

    pub(super) fn folder(&self) -> PathBuf {
        let folder = self.published.clone().or_else(memtrack::publish::folder);
        folder.unwrap_or_else(memtrack::publish::default_folder)
    }
}

/// Shows the memory of every GPU.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
docs/driver.md says what each line means, where it is from and how exact it is. Processes that publish their figures \
(MEMTRACK_PUBLISH) are shown with them.

The queries are nvidia-smi's, with their fields of memory: --query-gpu takes index, uuid, name, pci.bus_id, driver_version, \
count, mig.mode.current, memory.total, memory.reserved, memory.used, memory.free, and memtrack's memtrack.allocated, \
memtrack.cached, memtrack.context, memtrack.other_processes, memtrack.unexplained; --query-compute-apps takes pid, \
process_name, gpu_uuid, gpu_bus_id, gpu_name, used_memory, memtrack.allocated, memtrack.reserved.

Exit status: 0 when there are figures, 2 for wrong usage or figures that cannot be written, 3 without a driver or device.")]
pub struct SmiOptions {
    /// Where to look.
    #[command(flatten)]
    pub look: LookOptions,

    /// Look again after so many seconds, until nobody reads any more
    #[arg(long, short = 'l', value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<Duration>,

    /// End after so many looks
    #[arg(long, value_name = "NUMBER", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Write one JSON object a look
    #[arg(long, conflicts_with_all = ["query_gpu", "query_compute_apps"])]
    pub json: bool,

    /// Print these fields of every device, as index,uuid,memory.used
    #[arg(
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        requires = "format",
        conflicts_with = "query_compute_apps"
    )]
    pub query_gpu: Vec<GpuField>,

    /// Print these fields of every process that computes, as pid,used_memory
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', requires = "format")]
    pub query_compute_apps: Vec<AppField>,

    /// How to print a query: csv, with noheader and nounits as wanted
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub format: Option<Format>,
}

impl SmiOptions {
    /// Whether what is printed is read by programs, and so is never redrawn.
    pub(super) fn is_for_programs(&self) -> bool {
        self.json || self.format.is_some()
    }
}

/// How a query is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Format {
    /// Without the line of names.
    pub noheader: bool,
    /// Numbers without ` MiB`.
    pub nounits: bool,
}

fn format(text: &str) -> Result<Format, String> {
    let mut format = Format::default();
    let mut csv = false;
    for word in text.split(',').map(str::trim) {
        match word {
            "csv" => csv = true,
            "noheader" => format.noheader = true,
            "nounits" => format.nounits = true,
            other => return Err(format!("`{other}` is none of csv, noheader and nounits")),
        }
    }
    if csv { Ok(format) } else { Err("csv is the only format there is, as csv,noheader,nounits".to_owned()) }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds, as 2 or 0.5".to_owned())?;
    let duration =
        Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds above 0".to_owned())?;
    if duration < Duration::from_millis(10) || duration > Duration::from_secs(86_400) {
        return Err("expected from 0.01 seconds to a day".to_owned());
    }
    Ok(duration)
}
