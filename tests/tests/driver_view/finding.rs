//! Which device is meant, and why none is found.

use memtrack::device::{DeviceKind, DeviceUuid};
use memtrack::driver::{DriverUnavailable, DriverView, MatchedBy, QueryStatus};
use memtrack::units::GIB;
use memtrack_mock_nvml::{Device, Instance};

use crate::gpu::Gpu;
use crate::{DRIVER_NOT_LOADED, GPU_IS_LOST, IDLE, NO_PERMISSION, NOT_FOUND, attach, card, configuration, nvml, used};

#[test]
fn a_device_is_found_by_uuid_whatever_its_place_in_either_numbering() {
    let nvml = nvml((1..=4).map(|number| card(number).memory(used(u64::from(number) * 10 * GIB))));
    // CUDA under the mask "2,3" calls the third and fourth card 0 and 1.
    for (number, used_bytes) in [(3, 30 * GIB), (4, 40 * GIB), (1, 10 * GIB)] {
        let view = attach(&nvml, &Gpu::new(number), 0).unwrap();
        assert_eq!(view.matched_by(), MatchedBy::GpuUuid);
        assert_eq!(view.memory().unwrap().used_bytes, used_bytes);
    }
    assert_eq!(nvml.calls("nvmlInit_v2").unwrap(), 1, "one NVML for one path");
}

#[test]
fn the_uuid_wins_over_the_pci_address() {
    let nvml = nvml([card(1).memory(used(GIB)), card(2).memory(used(2 * GIB))]);
    let gpu = Gpu { pci_address: Gpu::new(1).pci_address, ..Gpu::new(2) };
    assert_eq!(attach(&nvml, &gpu, 0).unwrap().memory().unwrap().used_bytes, 2 * GIB);
}

#[test]
fn a_mig_instance_is_found_by_its_own_uuid_before_its_parent_by_address() {
    let instance = Device { uuid: card(2).uuid.replace("GPU-", "MIG-"), ..card(1) };
    let nvml = nvml([card(1).memory(used(30 * GIB)).mig_device(instance.memory(used(5 * GIB)))]);
    let gpu = Gpu { pci_address: Gpu::new(1).pci_address, ..Gpu::new(2) };
    let view = attach(&nvml, &gpu, 0).unwrap();
    assert_eq!(view.matched_by(), MatchedBy::MigUuid);
    assert_eq!(view.memory().unwrap().used_bytes, 5 * GIB);
}

#[test]
fn a_device_whose_uuid_is_unknown_is_found_by_pci_address() {
    let nvml = nvml([card(1), card(2).memory(used(2 * GIB))]);
    for uuid in [Some(DeviceUuid([0xee; 16])), None] {
        let view = attach(&nvml, &Gpu { uuid, ..Gpu::new(2) }, 0).unwrap();
        assert_eq!(view.matched_by(), MatchedBy::PciAddress);
        assert_eq!(view.memory().unwrap().used_bytes, 2 * GIB);
    }
}

#[test]
fn an_unknown_device_is_named_by_uuid_and_address_and_never_replaced_by_another() {
    let nvml = nvml([card(1)]);
    let error = attach(&nvml, &Gpu::new(9), 0).unwrap_err();
    assert_eq!(
        error,
        DriverUnavailable::DeviceNotFound {
            device: "cuda:0".to_owned(),
            uuid: Gpu::new(9).uuid,
            pci_address: Gpu::new(9).pci_address,
        }
    );
    let text = error.to_string();
    assert!(text.contains("09090909-0909-0909-0909-090909090909"), "{text}");
    assert!(text.contains("00000000:09:00.0"), "{text}");
}

#[test]
fn a_device_without_uuid_and_address_is_not_guessed() {
    let nvml = nvml([card(1)]);
    let gpu = Gpu { uuid: None, pci_address: None, ..Gpu::new(1) };
    let error = attach(&nvml, &gpu, 0).unwrap_err();
    assert_eq!(error, DriverUnavailable::NoIdentity { device: "cuda:0".to_owned() });
}

#[test]
fn a_refusal_to_look_is_not_called_an_unknown_device() {
    let by_uuid = "nvmlDeviceGetHandleByUUID";
    let refusing =
        configuration([card(1)]).error(by_uuid, NO_PERMISSION).error("nvmlDeviceGetHandleByPciBusId_v2", NOT_FOUND);
    let nvml = Instance::start(&refusing).unwrap();
    match attach(&nvml, &Gpu::new(1), 0).unwrap_err() {
        DriverUnavailable::Query(failure) => {
            assert_eq!((failure.call, failure.status), (by_uuid, QueryStatus::NoPermission));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn host_and_simulated_devices_have_no_driver_and_load_none() {
    for kind in [DeviceKind::Host, DeviceKind::Simulated] {
        let error = DriverView::builder()
            .lib_path("/does/not/exist/libnvidia-ml.so.1")
            .attach(&Gpu { kind, ..Gpu::new(1) }, 0)
            .unwrap_err();
        assert_eq!(error, DriverUnavailable::NoDriver { device: "cuda:0".to_owned(), kind });
    }
}

#[test]
fn an_absent_library_is_reported_with_the_loaders_words() {
    let path = "/does/not/exist/libnvidia-ml.so.1";
    match DriverView::builder().lib_path(path).attach(&Gpu::new(1), 0).unwrap_err() {
        DriverUnavailable::LibraryNotLoaded { library, message } => {
            assert_eq!(library, path);
            assert!(message.contains("No such file"), "{message}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_library_without_nvmls_functions_is_reported_with_the_missing_one() {
    let nvml = Instance::start_without(&configuration([card(1)]), &["nvmlInit_v2"]).unwrap();
    match attach(&nvml, &Gpu::new(1), 0).unwrap_err() {
        DriverUnavailable::NotNvml { library, message } => {
            assert_eq!(library, nvml.path().to_string_lossy());
            assert!(message.contains("nvmlInit_v2"), "{message}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_driver_that_is_not_loaded_is_asked_again_at_the_next_attach() {
    let nvml = Instance::start(&configuration([card(1)]).error("nvmlInit_v2", DRIVER_NOT_LOADED)).unwrap();
    assert_eq!(attach(&nvml, &Gpu::new(1), 0).unwrap_err(), DriverUnavailable::DriverNotLoaded);
    nvml.configure(&configuration([card(1)])).unwrap();
    assert_eq!(attach(&nvml, &Gpu::new(1), 0).unwrap().driver_version(), Some("580.95.05"));
}

#[test]
fn a_lost_device_ends_the_figures_and_says_so() {
    let nvml = nvml([card(1).compute_process(crate::OWN_PID, Some(5))]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    assert_eq!(view.memory().unwrap().total_bytes, IDLE.total);
    let lost = card(1).compute_process(crate::OWN_PID, Some(5)).error("nvmlDeviceGetMemoryInfo_v2", GPU_IS_LOST);
    nvml.configure(&configuration([lost])).unwrap();
    match view.sample().unwrap_err() {
        DriverUnavailable::Query(failure) => assert_eq!(failure.status, QueryStatus::DeviceLost),
        other => panic!("{other}"),
    }
    assert!(view.report(0, 0).to_string().starts_with("driver    no figures: nvmlDeviceGetMemoryInfo_v2: "));
}
