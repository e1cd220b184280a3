//! What the figures are, which query they are of, and what stays unknown.

use memtrack::driver::{
    Basis, ContextMemory, ContextMethod, DriverMemory, DriverView, MemoryQuery, OtherProcesses, ProcessBytes,
    QueryStatus, UnknownReason,
};
use memtrack::units::{GIB, KIB, MIB};
use memtrack_mock_nvml::{Device, Instance, Memory};

use crate::gpu::Gpu;
use crate::{
    FUNCTION_NOT_FOUND, IDLE, INSUFFICIENT_SIZE, NO_PERMISSION, NOT_SUPPORTED, OWN_PID, UNKNOWN, attach, card,
    configuration, nvml, used,
};

const V2: &str = "nvmlDeviceGetMemoryInfo_v2";
const V1: &str = "nvmlDeviceGetMemoryInfo";
const COMPUTE: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
const GRAPHICS: &str = "nvmlDeviceGetGraphicsRunningProcesses_v3";

fn listed(known_bytes: u64, known_count: u32, unknown_count: u32) -> OtherProcesses {
    OtherProcesses::Listed { known_bytes, known_count, unknown_count, complete: true }
}

#[test]
fn the_second_query_keeps_what_the_driver_reserves_apart() {
    let nvml = nvml([card(1)]);
    let memory = attach(&nvml, &Gpu::new(1), 0).unwrap().memory().unwrap();
    assert_eq!(memory, DriverMemory::v2(81_920 * MIB, 904 * MIB, 81_008 * MIB, 8 * MIB));
    assert_eq!(nvml.calls(V1).unwrap(), 0);
}

#[test]
fn without_the_second_query_the_first_is_used_and_named() {
    let missing = Instance::start_without(&configuration([card(1)]), &[V2]).unwrap();
    let not_found = nvml([card(1).error(V2, FUNCTION_NOT_FOUND)]);
    let unknown = nvml([card(1).error(V2, UNKNOWN)]);
    for nvml in [missing, not_found, unknown] {
        let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
        assert_eq!(view.memory().unwrap(), DriverMemory::v1(81_920 * MIB, 81_008 * MIB, 912 * MIB));
        let line = view.report(0, 0).to_string();
        assert!(line.ends_with("(NVML v1, what the driver reserves is in used)"), "{line}");
    }
}

#[test]
fn figures_of_the_two_queries_are_never_mixed_in_one_view() {
    let nvml = nvml([card(1).error(V2, UNKNOWN)]);
    let first = attach(&nvml, &Gpu::new(1), 0).unwrap();
    nvml.configure(&configuration([card(1)])).unwrap();
    assert_eq!(first.memory().unwrap().query, MemoryQuery::V1);
    assert_eq!(first.report(0, 0).reconciliation().unwrap().unexplained_bytes, 0, "not -904 MiB");

    let second = attach(&nvml, &Gpu::new(1), 0).unwrap();
    nvml.configure(&configuration([card(1).error(V2, UNKNOWN)])).unwrap();
    assert_eq!(second.memory().unwrap_err().call, V2);
    assert!(second.sample().is_err());

    let other_query = DriverMemory::v1(81_920 * MIB, 81_008 * MIB, 912 * MIB);
    nvml.configure(&configuration([card(1).memory(used(GIB))])).unwrap();
    let builder = DriverView::builder().lib_path(nvml.path()).baseline(other_query);
    assert_eq!(builder.attach(&Gpu::new(1), 0).unwrap().context(), ContextMemory::new(GIB, ContextMethod::WholeDevice));
}

#[test]
fn the_context_stays_while_reserved_grows_and_what_grows_else_is_unexplained() {
    let idle = 960 * KIB;
    let context = 1005 * MIB + 256 * KIB;
    let at = |reserved: u64, more: u64| {
        let process = context + reserved + more;
        configuration([card(1).memory(used(idle + process)).compute_process(OWN_PID, Some(process))])
    };
    let nvml = Instance::start(&at(2 * MIB, 0)).unwrap();
    let view = attach(&nvml, &Gpu::new(1), 2 * MIB).unwrap();
    assert_eq!(view.context(), ContextMemory::new(context, ContextMethod::OwnProcess));

    nvml.configure(&at(502 * MIB, 0)).unwrap();
    let report = view.report(512, 502 * MIB);
    let parts = report.reconciliation().unwrap();
    assert_eq!(parts.basis, Basis::Device(MemoryQuery::V2));
    assert_eq!(parts.used_bytes, 1508 * MIB + 192 * KIB);
    assert_eq!((parts.allocated_bytes, parts.cached_bytes), (512, 502 * MIB - 512));
    assert_eq!((parts.context_bytes, parts.other_processes_bytes), (context, Some(0)));
    assert_eq!((parts.unexplained_bytes, parts.own_unexplained_bytes), (idle as i64, Some(0)));

    nvml.configure(&at(502 * MIB, 70 * MIB)).unwrap();
    let report = view.report(512, 502 * MIB);
    assert_eq!(report.reconciliation().unwrap().own_unexplained_bytes, Some(70 * MIB as i64));
    let remeasured = view.remeasure_context(502 * MIB).unwrap();
    assert_eq!(remeasured, ContextMemory::new(context + 70 * MIB, ContextMethod::OwnProcess));
    let report = view.report(512, 502 * MIB);
    assert_eq!(report.reconciliation().unwrap().own_unexplained_bytes, Some(0));
}

#[test]
fn other_processes_are_summed_once_each_and_those_without_a_figure_counted() {
    let others = card(1)
        .memory(used(4 * GIB))
        .compute_process(OWN_PID, Some(GIB))
        .compute_process(11, Some(100 * MIB))
        .graphics_process(11, Some(100 * MIB))
        .graphics_process(12, Some(30 * MIB))
        .compute_process(13, None)
        .compute_process(14, Some(0));
    let nvml = nvml([others]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    let sample = view.sample().unwrap();
    assert_eq!(sample.own_process, ProcessBytes::Known(GIB));
    assert_eq!(sample.other_processes, listed(130 * MIB, 2, 2));
    assert_eq!(sample.processes.unwrap().len(), 5);
    let line = view.report(0, 0).to_string();
    assert!(line.contains(" + other processes 130.00 MiB (and 2 without a figure) + "), "{line}");
}

#[test]
fn processes_that_start_between_count_and_list_do_not_lose_the_list() {
    let crowd =
        (11..31).fold(card(1).compute_process(OWN_PID, Some(MIB)), |card, pid| card.compute_process(pid, Some(MIB)));
    let nvml = nvml([card(1).compute_process(OWN_PID, Some(MIB))]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    // nvml-wrapper counts and leaves room for five more: the list that follows does not fit.
    nvml.configure(&configuration([crowd]).first_answers(COMPUTE, &[None, Some(INSUFFICIENT_SIZE)])).unwrap();
    assert_eq!(view.sample().unwrap().other_processes, listed(20 * MIB, 20, 0));
}

/// Own figures that are none: what the list has, and the reason given for it.
fn no_own_figure() -> [(Device, UnknownReason); 3] {
    let pid = OWN_PID;
    [
        (card(1).compute_process(pid, None), UnknownReason::NotAvailable { pid }),
        (card(1).compute_process(pid, Some(0)), UnknownReason::ListedWithZero { pid }),
        (card(1), UnknownReason::NotListed { pid }),
    ]
}

#[test]
fn without_an_own_figure_the_rest_of_the_device_is_the_context_and_labelled_so() {
    for (device, reason) in no_own_figure() {
        let device = device.memory(Memory { total: 16_376 * MIB, reserved: 0, free: 2016 * MIB, used: 14_360 * MIB });
        let nvml = nvml([device]);
        let view = attach(&nvml, &Gpu::new(1), 12_000 * MIB).unwrap();
        assert_eq!(view.context(), ContextMemory::new(2360 * MIB, ContextMethod::WholeDevice));
        assert_eq!(view.sample().unwrap().own_process, ProcessBytes::Unknown(reason));
        let report = view.report(12_000 * MIB, 12_000 * MIB);
        let parts = report.reconciliation().unwrap();
        assert_eq!((parts.unexplained_bytes, parts.own_unexplained_bytes), (0, None));
        let line = report.to_string();
        assert!(line.contains(" + context 2.30 GiB (whole device) + "), "{line}");
    }
}

#[test]
fn a_list_without_this_process_and_without_others_leaves_the_others_unknown() {
    let nvml = nvml([card(1)]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    let reason = UnknownReason::NotListed { pid: OWN_PID };
    assert_eq!(view.sample().unwrap().other_processes, OtherProcesses::Unknown(reason));
    let line = view.report(0, 0).to_string();
    assert!(line.contains(" + other processes unknown (process 4000000 is not in the driver's list) + "), "{line}");
}

#[test]
fn known_others_are_not_taken_for_context() {
    let device = card(1).memory(used(700 * MIB)).compute_process(OWN_PID, None).compute_process(11, Some(200 * MIB));
    let nvml = nvml([device]);
    let view = attach(&nvml, &Gpu::new(1), 2 * MIB).unwrap();
    assert_eq!(view.context(), ContextMemory::new(498 * MIB, ContextMethod::WholeDevice));
    let baseline = DriverMemory::v2(IDLE.total, IDLE.reserved, IDLE.free, 208 * MIB);
    let builder = DriverView::builder().lib_path(nvml.path()).own_pid(OWN_PID).baseline(baseline);
    let above = builder.attach(&Gpu::new(1), 2 * MIB).unwrap().context();
    assert_eq!(above, ContextMemory::new(490 * MIB, ContextMethod::AboveBaseline));
}

#[test]
fn an_own_figure_below_what_is_reserved_is_not_believed() {
    let nvml = nvml([card(1).memory(used(5 * GIB)).compute_process(OWN_PID, Some(GIB))]);
    let view = attach(&nvml, &Gpu::new(1), 4 * GIB).unwrap();
    assert_eq!(view.context(), ContextMemory::new(GIB, ContextMethod::WholeDevice));
}

#[test]
fn a_refused_process_list_leaves_both_unknown_with_the_drivers_reason() {
    let nvml = nvml([card(1).error(COMPUTE, NO_PERMISSION)]);
    let sample = attach(&nvml, &Gpu::new(1), 0).unwrap().sample().unwrap();
    let failure = sample.processes.unwrap_err();
    assert_eq!((failure.call, failure.status), (COMPUTE, QueryStatus::NoPermission));
    let reason = UnknownReason::ListFailed(failure);
    assert_eq!(sample.own_process, ProcessBytes::Unknown(reason.clone()));
    assert_eq!(sample.other_processes, OtherProcesses::Unknown(reason));
}

#[test]
fn without_the_graphics_list_the_others_are_only_those_visible() {
    let device = card(1).compute_process(OWN_PID, Some(MIB)).compute_process(11, Some(MIB));
    let nvml = nvml([device.error(GRAPHICS, NOT_SUPPORTED)]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    let expected = OtherProcesses::Listed { known_bytes: MIB, known_count: 1, unknown_count: 0, complete: false };
    assert_eq!(view.sample().unwrap().other_processes, expected);
    let line = view.report(0, 0).to_string();
    assert!(line.contains(" + other processes 1.00 MiB (those visible) + "), "{line}");
}

#[test]
fn without_device_figures_this_process_is_reconciled_alone() {
    let own_bytes = 19_135 * MIB;
    let absent = [
        card(1).error(V2, NOT_SUPPORTED).error(V1, NOT_SUPPORTED),
        card(1).memory(Memory::default()),
        card(1).memory(Memory { total: u64::MAX, reserved: 0, free: u64::MAX, used: u64::MAX }),
    ];
    for device in absent {
        let nvml = nvml([device.compute_process(OWN_PID, Some(own_bytes)).compute_process(11, Some(MIB))]);
        let view = attach(&nvml, &Gpu::new(1), 18_000 * MIB).unwrap();
        assert!(view.memory().is_err());
        let report = view.report(17_000 * MIB, 18_000 * MIB);
        let parts = report.reconciliation().unwrap();
        assert!(matches!(parts.basis, Basis::OwnProcess { .. }));
        assert_eq!((parts.used_bytes, parts.context_bytes), (own_bytes, 1135 * MIB));
        assert_eq!((parts.other_processes_bytes, parts.unexplained_bytes), (None, 0));
        let line = report.to_string();
        assert!(line.starts_with("driver    this process 18.69 GiB = allocated 16.60 GiB + "), "{line}");
        assert!(line.contains("device used unknown: nvmlDeviceGetMemoryInfo: "), "{line}");
    }
}

#[test]
fn with_neither_figure_there_is_no_sample() {
    let nvml = nvml([card(1).error(V2, NOT_SUPPORTED).error(V1, NOT_SUPPORTED)]);
    let error = attach(&nvml, &Gpu::new(1), 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nvmlDeviceGetMemoryInfo: the requested operation is not available on the target device"
    );
}

#[test]
fn a_neighbour_that_leaves_shows_as_a_signed_remainder() {
    // 95,830 MiB; free 84,931, then 92,334 MiB while this process took 2048.
    let card_with = |free| Memory { total: 95_830 * MIB, reserved: 0, free: free * MIB, used: (95_830 - free) * MIB };
    let nvml = nvml([card(1).memory(card_with(84_931))]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    nvml.configure(&configuration([card(1).memory(card_with(92_334))])).unwrap();
    let report = view.report(2048 * MIB, 2048 * MIB);
    assert_eq!(report.reconciliation().unwrap().unexplained_bytes, -9451 * MIB as i64);
    assert!(report.to_string().contains(" + unexplained -9.23 GiB  ("), "{report}");
}
