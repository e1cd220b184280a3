//! All devices of the machine, their MIG instances, and what time changes.

use memtrack::driver::{
    DeviceOrder, DriverUnavailable, Inventory, MaskEnd, NumberedBy, ProcessBytes, QueryStatus, VisibleDevices,
    cuda_numbers,
};
use memtrack::driver::{MemoryQuery, UnknownReason};
use memtrack::units::{GIB, MIB};
use memtrack_mock_nvml::{Change, Device, Instance, Memory, Process};

use crate::{
    FUNCTION_NOT_FOUND, GPU_IS_LOST, IDLE, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, card, configuration, nvml, used,
};

fn open(nvml: &Instance) -> Inventory {
    Inventory::open(Some(nvml.path().as_os_str())).unwrap_or_else(|error| panic!("{error}"))
}

fn instance(number: u8) -> Device {
    Device { uuid: card(number).uuid.replace("GPU-", "MIG-"), ..card(number) }
}

#[test]
fn every_device_is_listed_with_its_identity_and_figures() {
    let nvml = nvml([card(1).named("NVIDIA A"), card(2).named("NVIDIA B").compute_process(7, Some(5 * MIB))]);
    let inventory = open(&nvml);
    assert_eq!(inventory.driver_version(), Some("580.95.05"));
    let [first, second] = inventory.devices() else { panic!("{inventory:?}") };
    assert_eq!((first.index, second.index), (0, 1));
    assert_eq!(first.uuid.as_deref().unwrap(), card(1).uuid);
    assert_eq!(second.name.as_deref().unwrap(), "NVIDIA B");
    assert_eq!(second.pci_address.clone().unwrap().to_string(), "00000000:02:00.0");
    assert_eq!((second.mig_index, second.mig_mode), (None, Some(false)));
    let sample = second.sample();
    assert_eq!(sample.memory.unwrap().used_bytes, IDLE.used);
    assert_eq!(sample.processes.unwrap()[0].memory, ProcessBytes::Known(5 * MIB));
    assert!(sample.list_is_whole);
}

#[test]
fn what_a_device_does_not_say_stays_unknown_with_the_drivers_reason() {
    let nvml = nvml([card(1).error("nvmlDeviceGetPciInfo_v3", NO_PERMISSION).error("nvmlDeviceGetMigMode", UNKNOWN)]);
    let inventory = open(&nvml);
    let device = &inventory.devices()[0];
    assert_eq!(device.name.as_ref().unwrap_err().status, QueryStatus::NotSupported);
    assert_eq!(device.pci_address.as_ref().unwrap_err().status, QueryStatus::NoPermission);
    assert_eq!(device.mig_mode, None);
}

#[test]
fn a_device_that_cannot_be_reached_is_listed_and_says_why() {
    let nvml = nvml([card(1).error("nvmlDeviceGetHandleByIndex_v2", GPU_IS_LOST), card(2)]);
    let inventory = open(&nvml);
    assert_eq!(inventory.devices().len(), 2);
    let sample = inventory.devices()[0].sample();
    assert_eq!(sample.memory.unwrap_err().status, QueryStatus::DeviceLost);
    assert!(sample.processes.is_err());
    assert_eq!(inventory.devices()[1].sample().memory.unwrap().used_bytes, IDLE.used);
}

#[test]
fn mig_instances_follow_their_gpu_with_figures_of_their_own() {
    let small = Memory { total: 10 * GIB, reserved: 0, free: 7 * GIB, used: 3 * GIB };
    let process = Process { pid: 9, used: None, gpu_instance: Some(5), compute_instance: Some(0) };
    let with_process = Device { compute_processes: vec![process], ..instance(12).memory(small) };
    let split =
        card(1).error("nvmlDeviceGetMemoryInfo_v2", NO_PERMISSION).mig_device(instance(11)).mig_device(with_process);
    let nvml = nvml([split, card(2)]);
    let inventory = open(&nvml);
    let places: Vec<_> = inventory.devices().iter().map(|device| (device.index, device.mig_index)).collect();
    assert_eq!(places, [(0, None), (0, Some(0)), (0, Some(1)), (1, None)]);
    let [whole, _, second, _] = inventory.devices() else { panic!("{inventory:?}") };
    assert_eq!(whole.mig_mode, Some(true));
    assert_eq!(whole.sample().memory.unwrap_err().status, QueryStatus::NoPermission);
    assert!(second.uuid.as_ref().unwrap().starts_with("MIG-0c0c0c0c"));
    assert_eq!(second.pci_address.clone().unwrap(), whole.pci_address.clone().unwrap());
    let sample = second.sample();
    assert_eq!(sample.memory.unwrap().used_bytes, 3 * GIB);
    let process = &sample.processes.unwrap()[0];
    assert_eq!((process.gpu_instance, process.compute_instance), (Some(5), Some(0)));
    assert_eq!(process.memory, ProcessBytes::Unknown(UnknownReason::NotAvailable { pid: 9 }));
}

#[test]
fn a_mask_of_uuids_numbers_devices_surely_and_one_of_numbers_only_in_pci_order() {
    let nvml = nvml([card(1), card(2), card(3)]);
    let inventory = open(&nvml);
    let numbers = |mask: Option<&str>, order| {
        let (numbers, end) = cuda_numbers(inventory.devices(), &VisibleDevices::parse(mask), order);
        (numbers.iter().map(|number| (number.ordinal, number.place, number.by)).collect::<Vec<_>>(), end)
    };
    let fastest = DeviceOrder::FastestFirst;
    let by_uuid = numbers(Some("GPU-03,GPU-01"), fastest);
    assert_eq!(by_uuid, (vec![(0, 2, NumberedBy::Uuid), (1, 0, NumberedBy::Uuid)], MaskEnd::Complete));
    let guessed = vec![(0, 1, NumberedBy::Guess), (1, 2, NumberedBy::Guess)];
    assert_eq!(numbers(Some("1,2"), fastest), (guessed, MaskEnd::Complete));
    let sure = vec![(0, 1, NumberedBy::PciOrder), (1, 2, NumberedBy::PciOrder)];
    assert_eq!(numbers(Some("1,2"), DeviceOrder::PciBusId), (sure, MaskEnd::Complete));
    assert_eq!(numbers(None, DeviceOrder::PciBusId).0.len(), 3);
    assert_eq!(DeviceOrder::parse(Some("PCI_BUS_ID")), DeviceOrder::PciBusId);
    assert_eq!(DeviceOrder::parse(Some("by the moon")), fastest);
}

#[test]
fn the_only_device_is_number_0_without_a_guess_unless_it_is_split() {
    for (device, by) in [(card(1), NumberedBy::OnlyDevice), (card(1).mig_device(instance(2)), NumberedBy::Guess)] {
        let nvml = nvml([device]);
        let inventory = open(&nvml);
        let (numbers, _) = cuda_numbers(inventory.devices(), &VisibleDevices::parse(None), DeviceOrder::FastestFirst);
        assert_eq!(numbers.iter().map(|number| (number.place, number.by)).collect::<Vec<_>>(), [(0, by)]);
    }
}

#[test]
fn figures_follow_time_and_the_query_stays_the_one_that_answered_first() {
    let changing = card(1)
        .error("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND)
        .then(Change { after_queries: 2, errors: Some([].into()), ..Change::default() })
        .then(Change { after_queries: 3, memory: Some(used(5 * GIB)), ..Change::default() })
        .then(Change {
            after_queries: 4,
            errors: Some([("nvmlDeviceGetMemoryInfo".to_owned(), GPU_IS_LOST)].into()),
            ..Change::default()
        });
    let nvml = nvml([changing]);
    let inventory = open(&nvml);
    let device = &inventory.devices()[0];
    let first = device.sample().memory.unwrap();
    assert_eq!((first.query, first.used_bytes), (MemoryQuery::V1, 912 * MIB));
    // The second query would answer now, with 904 MiB less.
    assert_eq!(device.sample().memory.unwrap(), first);
    assert_eq!(device.sample().memory.unwrap().used_bytes, 5 * GIB + 904 * MIB);
    assert_eq!(device.sample().memory.unwrap_err().status, QueryStatus::DeviceLost);
}

#[test]
fn a_driver_that_does_not_count_its_devices_is_an_error_and_no_empty_list() {
    let nvml = Instance::start(&configuration([card(1)]).error("nvmlDeviceGetCount_v2", NOT_SUPPORTED)).unwrap();
    match Inventory::open(Some(nvml.path().as_os_str())).unwrap_err() {
        DriverUnavailable::Query(failure) => assert_eq!(failure.call, "nvmlDeviceGetCount_v2"),
        other => panic!("{other}"),
    }
}
