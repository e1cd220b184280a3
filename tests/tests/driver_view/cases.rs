//! Reports from the field, with their figures.

use std::ffi::{c_uint, c_void};

use libloading::Library;
use memtrack::driver::{
    Basis, ChangeUnknown, ContextMemory, ContextMethod, DeviceOrder, DriverChange, DriverMemory, DriverView, Exactness,
    IdleContexts, Inventory, MemoryQuery, OwnSource, PartKind, PartSource, ProcessBytes, SystemMemory, UnknownReason,
    VisibleDevices, cuda_numbers,
};
use memtrack::units::{GIB, KIB, MIB};
use memtrack_mock_nvml::{Change, Device, Memory};

use crate::gpu::Gpu;
use crate::{FUNCTION_NOT_FOUND, IDLE, NOT_SUPPORTED, OWN_PID, attach, card, nvml, used};

const V2: &str = "nvmlDeviceGetMemoryInfo_v2";
const V1: &str = "nvmlDeviceGetMemoryInfo";

/// Before: 0.9375 MiB; with the process 1008.1875 MiB, of which 2 MiB are reserved; later 500 MiB more of both.
const BEFORE: u64 = 960 * KIB;
const WITH_PROCESS: u64 = 1008 * MIB + 192 * KIB;
const CONTEXT: u64 = 1005 * MIB + 256 * KIB;

#[test]
fn r09_context_is_a_line_of_its_own() {
    let own = |used_bytes| Some(used_bytes - BEFORE);
    let device = card(1).memory(used(WITH_PROCESS)).compute_process(OWN_PID, own(WITH_PROCESS)).then(Change {
        after_queries: 1,
        memory: Some(used(WITH_PROCESS + 500 * MIB)),
        compute_processes: Some(card(1).compute_process(OWN_PID, own(WITH_PROCESS + 500 * MIB)).compute_processes),
        ..Change::default()
    });
    let nvml = nvml([device]);
    let view = attach(&nvml, &Gpu::new(1), 2 * MIB).unwrap();
    assert_eq!(view.context(), ContextMemory::new(CONTEXT, ContextMethod::OwnProcess));

    let report = view.report(512, 502 * MIB);
    let parts = report.reconciliation().unwrap();
    assert_eq!(parts.used_bytes, WITH_PROCESS + 500 * MIB);
    let lines = parts.parts();
    let figures: Vec<_> = lines.iter().map(|part| (part.kind, part.bytes, part.source, part.exactness)).collect();
    let expected = [
        (PartKind::Allocated, Some(512), PartSource::Allocator, Exactness::Exact),
        (PartKind::Cached, Some(502 * MIB as i64 - 512), PartSource::Allocator, Exactness::Exact),
        (PartKind::Context, Some(CONTEXT as i64), PartSource::ProcessList, Exactness::Exact),
        (PartKind::OtherProcesses, Some(0), PartSource::ProcessList, Exactness::Exact),
        (PartKind::Unexplained, Some(BEFORE as i64), PartSource::Remainder, Exactness::Exact),
    ];
    assert_eq!(figures, expected);
    assert_eq!(lines.iter().filter_map(|part| part.bytes).sum::<i64>(), parts.used_bytes as i64);
    // What moves is no context: nothing did.
    assert_eq!(parts.own_unexplained_bytes, Some(0));
}

#[test]
fn r09_without_a_process_list_the_context_is_what_is_above_the_baseline() {
    let nvml = nvml([card(1).memory(used(WITH_PROCESS)).then(Change {
        after_queries: 1,
        memory: Some(used(WITH_PROCESS + 570 * MIB)),
        ..Change::default()
    })]);
    let before = used(BEFORE);
    let baseline = DriverMemory::v2(before.total, before.reserved, before.free, before.used);
    let builder = DriverView::builder().lib_path(nvml.path()).own_pid(OWN_PID).baseline(baseline);
    let view = builder.attach(&Gpu::new(1), 2 * MIB).unwrap();
    assert_eq!(view.context(), ContextMemory::new(CONTEXT, ContextMethod::AboveBaseline));
    // 500 MiB more are the allocator's, 70 MiB nobody's: those are shown, and the context stays.
    let report = view.report(512, 502 * MIB);
    let parts = report.reconciliation().unwrap();
    assert_eq!(parts.context_bytes, CONTEXT);
    assert_eq!(parts.unexplained_bytes, (BEFORE + 70 * MIB) as i64);
    assert_eq!(parts.parts()[2].exactness, Exactness::Estimate);
}

#[test]
fn r10_an_idle_card_shows_8_mib_by_the_second_query_and_912_by_the_first() {
    let nvml_v2 = nvml([card(1)]);
    let memory = attach(&nvml_v2, &Gpu::new(1), 0).unwrap().memory().unwrap();
    assert_eq!(memory.total_bytes, memory.driver_reserved_bytes.unwrap() + memory.used_bytes + memory.free_bytes);
    assert_eq!((memory.used_bytes, memory.driver_reserved_bytes), (8 * MIB, Some(904 * MIB)));

    let nvml_v1 = nvml([card(1).error(V2, FUNCTION_NOT_FOUND)]);
    let view = attach(&nvml_v1, &Gpu::new(1), 0).unwrap();
    let old = view.memory().unwrap();
    assert_eq!(old.total_bytes, old.used_bytes + old.free_bytes);
    assert_eq!((old.used_bytes, old.driver_reserved_bytes, old.query), (912 * MIB, None, MemoryQuery::V1));

    // No difference of the two is ever taken.
    let (first, second) = (view.sample().unwrap(), attach(&nvml_v2, &Gpu::new(1), 0).unwrap().sample().unwrap());
    let mixed = DriverChange::between((&first, 0), (&second, 0));
    assert_eq!(mixed, Err(ChangeUnknown::DifferentQueries { earlier: MemoryQuery::V1, later: MemoryQuery::V2 }));
}

#[test]
fn r10_the_version_field_is_size_and_number_and_a_plain_2_is_refused() {
    #[repr(C)]
    struct MemoryV2 {
        version: c_uint,
        figures: [u64; 4],
    }
    type Query = unsafe extern "C" fn(*mut c_void, *mut MemoryV2) -> c_uint;
    let nvml = nvml([card(1)]);
    // SAFETY: the library is the tests' own, and the function has this type in `nvml.h`.
    let answers = unsafe {
        let library = Library::new(nvml.path()).unwrap();
        let query = library.get::<Query>(b"nvmlDeviceGetMemoryInfo_v2\0").unwrap();
        [2, 0x0200_0028]
            .map(|version| query(std::ptr::without_provenance_mut(1), &mut MemoryV2 { version, figures: [0; 4] }))
    };
    assert_eq!(answers, [FUNCTION_NOT_FOUND, 0]);
    // What nvml-wrapper sends is taken: the first query is not asked.
    attach(&nvml, &Gpu::new(1), 0).unwrap();
    assert_eq!(nvml.calls(V1).unwrap(), 0);
}

#[test]
fn r11_runtime_device_0_under_mask_1_is_the_second_card() {
    let total = |total| Memory { total, reserved: 0, free: total, used: 0 };
    let nvml = nvml([card(1).memory(total(25_447_170_048)), card(2).memory(total(8_513_978_368))]);
    let inventory = Inventory::open(Some(nvml.path().as_os_str())).unwrap();
    let (numbers, _) = cuda_numbers(inventory.devices(), &VisibleDevices::parse(Some("1")), DeviceOrder::PciBusId);
    assert_eq!(numbers.len(), 1);
    assert_eq!(inventory.devices()[numbers[0].place].sample().memory.unwrap().total_bytes, 8_513_978_368);
    // And so by what CUDA's device 0 says of itself there.
    assert_eq!(attach(&nvml, &Gpu::new(2), 0).unwrap().memory().unwrap().total_bytes, 8_513_978_368);
}

#[test]
fn r11_a_charge_to_runtime_device_0_under_mask_2_3_shows_at_driver_index_2_and_nowhere_else() {
    let with = |charge: u64| {
        (1..=4).map(move |number| {
            let charged = if number == 3 { charge } else { 0 };
            card(number).memory(used(u64::from(number) * 10 * GIB + charged))
        })
    };
    let nvml = nvml(with(0));
    let inventory = Inventory::open(Some(nvml.path().as_os_str())).unwrap();
    let mask = VisibleDevices::parse(Some("2,3"));
    let (numbers, _) = cuda_numbers(inventory.devices(), &mask, DeviceOrder::PciBusId);
    let used_gib = |place: usize| inventory.devices()[place].sample().memory.unwrap().used_bytes / GIB;
    let runtime = || [used_gib(numbers[0].place), used_gib(numbers[1].place)];
    assert_eq!(runtime(), [30, 40]);
    nvml.configure(&crate::configuration(with(5 * GIB))).unwrap();
    assert_eq!(runtime(), [35, 40]);
    assert_eq!([0, 1, 2, 3].map(used_gib), [10, 20, 35, 40]);
    assert_eq!(inventory.devices()[numbers[0].place].index, 2);
}

#[test]
fn r12_a_process_without_a_figure_leaves_context_and_others_together_and_says_so() {
    let memory = Memory { total: 16_376 * MIB, reserved: 0, free: 2016 * MIB, used: 14_360 * MIB };
    let nvml = nvml([card(1).memory(memory).compute_process(79, None)]);
    let view = DriverView::builder().lib_path(nvml.path()).own_pid(79).attach(&Gpu::new(1), 12_000 * MIB).unwrap();
    assert_eq!(view.sample().unwrap().own_process, ProcessBytes::Unknown(UnknownReason::NotAvailable { pid: 79 }));
    let report = view.report(12_000 * MIB, 12_000 * MIB);
    let parts = report.reconciliation().unwrap();
    assert_eq!(parts.used_bytes, 14_360 * MIB);
    let rest = &parts.parts()[2];
    assert_eq!((rest.bytes, rest.source), (Some(2360 * MIB as i64), PartSource::WholeDevice));
    assert_eq!(rest.exactness, Exactness::AtMost);
    let line = report.to_string();
    assert!(!line.contains('%') && !line.contains("17179869184"), "{line}");
}

#[test]
fn r12_on_unified_memory_the_own_process_is_known_and_the_totals_are_the_systems() {
    let device = card(1).error(V2, NOT_SUPPORTED).error(V1, NOT_SUPPORTED);
    let nvml = nvml([device.compute_process(OWN_PID, Some(19_135 * MIB))]);
    let view = attach(&nvml, &Gpu::new(1), 18_000 * MIB).unwrap();
    assert!(view.memory().is_err());
    let report = view.report(18_000 * MIB, 18_000 * MIB);
    let parts = report.reconciliation().unwrap();
    assert!(matches!(parts.basis, Basis::OwnProcess { .. }));
    assert_eq!(parts.used_bytes, 19_135 * MIB);
    let others = &parts.parts()[3];
    assert_eq!((others.bytes, others.exactness), (None, Exactness::Unknown));
    assert!(SystemMemory::read().unwrap().total_bytes > SystemMemory::read().unwrap().available_bytes);
}

#[test]
fn r12_a_card_of_16_gib_has_17179869184_bytes_and_is_not_taken_for_unknown() {
    let memory = Memory { total: 17_179_869_184, reserved: 0, free: 17_179_869_184, used: 0 };
    let nvml = nvml([card(1).memory(memory)]);
    assert_eq!(attach(&nvml, &Gpu::new(1), 0).unwrap().memory().unwrap().total_bytes, 16 * GIB);
}

#[test]
fn r13_a_neighbour_that_leaves_is_a_signed_change_of_the_others() {
    let card_with =
        |free: u64| Memory { total: 95_830 * MIB, reserved: 0, free: free * MIB, used: (95_830 - free) * MIB };
    let later = Change { after_queries: 2, memory: Some(card_with(92_334)), ..Change::default() };
    let nvml = nvml([card(1).memory(card_with(84_931)).then(later)]);
    let view = attach(&nvml, &Gpu::new(1), 0).unwrap();
    let (earlier, later) = (view.sample().unwrap(), view.sample().unwrap());
    let change = DriverChange::between((&earlier, 0), (&later, 2048 * MIB)).unwrap();
    let mib = |bytes: i64| bytes / MIB as i64;
    assert_eq!((mib(change.others_before_bytes), mib(change.others_after_bytes)), (10_899, 1448));
    assert_eq!((mib(change.others_bytes), mib(change.own_bytes), mib(change.free_bytes)), (-9451, 2048, 7403));
    assert_eq!(change.own_source, OwnSource::Allocator);
    assert!(change.free_is_unstable());
    assert_eq!(change.to_string(), "own +2.00 GiB, others -9.23 GiB, free +7.23 GiB (unstable)");
}

#[test]
fn r13_twenty_four_workers_that_do_nothing_are_told_as_idle_contexts() {
    let workers = |own: u64| -> Device {
        let device = card(1).compute_process(OWN_PID, Some(own));
        (1000..1024).fold(device, |device, pid| device.compute_process(pid, Some(520 * MIB)))
    };
    let (own, used) = (60_000 * MIB, 72_480 * MIB);
    let memory = Memory { total: 81_920 * MIB, reserved: 0, free: 81_920 * MIB - used, used };
    let nvml = nvml([workers(own).memory(memory)]);
    let view = attach(&nvml, &Gpu::new(1), own).unwrap();
    let sample = view.sample().unwrap();
    assert_eq!(sample.other_processes.known_bytes(), Some(12_480 * MIB));
    assert_eq!(sample.memory.as_ref().unwrap().free_bytes, 9440 * MIB);
    let list = sample.processes.unwrap();
    let idle = IdleContexts::between(&list, &view.sample().unwrap().processes.unwrap()).unwrap();
    assert_eq!((idle.count, idle.bytes_each, idle.bytes()), (24, 520 * MIB, 12_480 * MIB));
    assert!(idle.to_string().starts_with("idle contexts of worker processes: 24 processes of 520.00 MiB each"));

    // Workers that grew are none, and neither are two trainings of equal size.
    let grown = workers(own).compute_processes.into_iter().map(|mut process| {
        process.used = process.used.map(|bytes| bytes + MIB);
        process
    });
    let grown = Device { compute_processes: grown.collect(), ..card(1) };
    nvml.configure(&crate::configuration([grown.memory(IDLE)])).unwrap();
    assert_eq!(IdleContexts::between(&list, &view.sample().unwrap().processes.unwrap()), None);
    let trainings = card(1).compute_process(1, Some(30 * GIB)).compute_process(2, Some(30 * GIB));
    nvml.configure(&crate::configuration([trainings.memory(IDLE)])).unwrap();
    let list = view.sample().unwrap().processes.unwrap();
    assert_eq!(IdleContexts::between(&list, &list), None);
}
