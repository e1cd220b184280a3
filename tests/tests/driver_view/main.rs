//! The driver's view through the real nvml-wrapper and a library that stands in for NVML.
//!
//! What goes wrong here in practice: the wrong card's figures, two memory queries mixed, and "not available" or 0 taken
//! for a figure.

#![cfg(target_os = "linux")]

mod cases;
mod finding;
mod gpu;
mod inventory;
mod measuring;

use memtrack::driver::{DriverUnavailable, DriverView};
use memtrack::units::MIB;
use memtrack_mock_nvml::{Configuration, Device, Instance, Memory};

use gpu::Gpu;

/// What the tests say this process's number is to the driver; the true one may clash with a number in a list.
const OWN_PID: u32 = 4_000_000;

const NOT_SUPPORTED: u32 = 3;
const NO_PERMISSION: u32 = 4;
const NOT_FOUND: u32 = 6;
const INSUFFICIENT_SIZE: u32 = 7;
const DRIVER_NOT_LOADED: u32 = 9;
const FUNCTION_NOT_FOUND: u32 = 13;
const GPU_IS_LOST: u32 = 15;
const UNKNOWN: u32 = 999;

/// The card of case "two versions of the query disagree": 904 MiB reserved, 8 MiB used.
const IDLE: Memory = Memory { total: 81_920 * MIB, reserved: 904 * MIB, free: 81_008 * MIB, used: 8 * MIB };

/// A card of 80 GiB with so much used and 904 MiB reserved.
fn used(bytes: u64) -> Memory {
    Memory { used: bytes, free: IDLE.total - IDLE.reserved - bytes, ..IDLE }
}

/// NVML's side of [`Gpu::new`] with the same number.
fn card(number: u8) -> Device {
    let byte = format!("{number:02x}");
    let (two, four) = (byte.repeat(2), byte.repeat(4));
    let uuid = format!("GPU-{four}-{two}-{two}-{two}-{}", byte.repeat(6));
    Device::new(&uuid, &format!("00000000:{byte}:00.0")).memory(IDLE)
}

fn nvml(devices: impl IntoIterator<Item = Device>) -> Instance {
    Instance::start(&configuration(devices)).unwrap_or_else(|error| panic!("{error}"))
}

fn configuration(devices: impl IntoIterator<Item = Device>) -> Configuration {
    let empty = Configuration { driver_version: "580.95.05".to_owned(), ..Configuration::default() };
    devices.into_iter().fold(empty, Configuration::device)
}

fn attach(nvml: &Instance, gpu: &Gpu, reserved_bytes: u64) -> Result<DriverView, DriverUnavailable> {
    DriverView::builder().lib_path(nvml.path()).own_pid(OWN_PID).attach(gpu, reserved_bytes)
}
