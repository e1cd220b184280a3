//! The arithmetic of the reconciliation, and the line a person reads.

use memtrack::driver::{
    ContextMemory, ContextMethod, DriverMemory, DriverReport, DriverSample, DriverUnavailable, PidNamespace,
    ProcessMemory, QueryFailure, QueryStatus, Reconciliation,
};
use memtrack::units::{GIB, MIB};
use proptest::prelude::*;

const OWN_PID: u32 = 415;

fn sample(memory: DriverMemory, processes: &[(u32, Option<u64>)], namespace: PidNamespace) -> DriverSample {
    let list = processes.iter().map(|(pid, bytes)| ProcessMemory::listed(*pid, *bytes)).collect();
    DriverSample::new(Ok(memory), Ok(list), true, OWN_PID, namespace)
}

fn context(bytes: u64) -> ContextMemory {
    ContextMemory::new(bytes, ContextMethod::OwnProcess)
}

#[test]
fn the_line_names_every_part_and_the_query() {
    let memory = DriverMemory::v2(80 * GIB, 0, 75 * GIB, 4 * GIB + 256 * MIB);
    let sample = sample(memory, &[(OWN_PID, Some(4 * GIB)), (9, Some(256 * MIB))], PidNamespace::Initial);
    let parts = Reconciliation::new(&sample, context(512 * MIB), 3 * GIB, 3 * GIB + 512 * MIB).unwrap();
    let line = "used 4.25 GiB = allocated 3.00 GiB + cached 512.00 MiB + context 512.00 MiB \
                + other processes 256.00 MiB + unexplained 0 B  (NVML v2)";
    assert_eq!(parts.to_string(), line);
    assert_eq!(DriverReport::Reconciled(parts).to_string(), format!("driver    {line}"));
}

/// An H200's own figures (driver 580): a first tensor, then a matrix product that loads cuBLAS.
#[test]
fn on_an_h200_a_library_loaded_later_shows_as_this_processs_unexplained_bytes() {
    let memory = |used: u64, free: u64| DriverMemory::v2(143_771 * MIB, 616 * MIB, free * MIB, used * MIB);
    let first = sample(memory(529, 142_628), &[(OWN_PID, Some(520 * MIB))], PidNamespace::Nested);
    let context = ContextMemory::measure(&first, 2_097_152, None).unwrap();
    assert_eq!(context, self::context(518 * MIB));
    let matmul = sample(memory(1781, 141_376), &[(OWN_PID, Some(1772 * MIB))], PidNamespace::Nested);
    let parts = Reconciliation::new(&matmul, context, 1_241_514_496, 1_243_611_136).unwrap();
    assert_eq!(parts.own_unexplained_bytes, Some(1772 * MIB as i64 - 1_243_611_136 - 518 * MIB as i64));
    assert_eq!(
        parts.to_string(),
        "used 1.74 GiB = allocated 1.16 GiB + cached 2.00 MiB + context 518.00 MiB \
         + other processes 0 B (those visible) + unexplained 77.00 MiB (this process 68.00 MiB)  \
         (NVML v2, 616.00 MiB reserved by the driver apart)"
    );
}

#[test]
fn in_a_container_that_hides_the_pid_the_others_are_unknown_and_not_zero() {
    let memory = DriverMemory::v1(80 * GIB, 78 * GIB, 2 * GIB);
    let sample = sample(memory, &[(91_234, Some(2 * GIB))], PidNamespace::Nested);
    let context = ContextMemory::measure(&sample, GIB, None).unwrap();
    let parts = Reconciliation::new(&sample, context, GIB, GIB).unwrap();
    assert_eq!(parts.other_processes_bytes, None);
    assert_eq!(
        parts.to_string(),
        "used 2.00 GiB = allocated 1.00 GiB + cached 0 B + context 1.00 GiB (whole device) + other processes unknown \
         (process 415 is not in the driver's list, which may name it by its pid outside this container) \
         + unexplained 0 B  (NVML v1, what the driver reserves is in used)"
    );
}

#[test]
fn more_allocated_than_reserved_is_no_negative_cache() {
    let sample = sample(DriverMemory::v2(GIB, 0, 0, GIB), &[], PidNamespace::Initial);
    let parts = Reconciliation::new(&sample, context(0), 700, 100).unwrap();
    assert_eq!((parts.allocated_bytes, parts.cached_bytes), (700, 0));
    assert_eq!(parts.unexplained_bytes, GIB as i64 - 700);
}

#[test]
fn a_summary_without_figures_says_why() {
    let report = DriverReport::Unavailable(DriverUnavailable::FeatureOff);
    let expected = "driver    no figures: built without the nvml feature; enable memtrack's `nvml` feature";
    assert_eq!(report.to_string(), expected);
}

/// Any figure, the extreme ones often.
fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(i64::MAX as u64),
        Just(1 << 63),
        0..(1_u64 << 40),
        any::<u64>(),
    ]
}

proptest! {
    #[test]
    fn the_parts_add_up_to_the_byte_whatever_the_figures(
        device_used in proptest::option::of(any_bytes()),
        processes in proptest::collection::vec((410_u32..420, proptest::option::of(any_bytes())), 0..6),
        nested in any::<bool>(),
        context_bytes in any_bytes(),
        allocated_bytes in any_bytes(),
        reserved_bytes in any_bytes(),
    ) {
        let namespace = if nested { PidNamespace::Nested } else { PidNamespace::Initial };
        let mut sample = sample(DriverMemory::v2(u64::MAX, 0, 0, device_used.unwrap_or(0)), &processes, namespace);
        if device_used.is_none() {
            sample.memory = Err(QueryFailure::new("nvmlDeviceGetMemoryInfo_v2", QueryStatus::NotSupported, "no"));
        }
        let measured = ContextMemory::measure(&sample, reserved_bytes, None);
        for context in [Ok(context(context_bytes)), measured].into_iter().flatten() {
            let Ok(parts) = Reconciliation::new(&sample, context, allocated_bytes, reserved_bytes) else {
                prop_assert!(device_used.is_none() && sample.own_process.known().is_none());
                continue;
            };
            let sum = i128::from(parts.allocated_bytes)
                + i128::from(parts.cached_bytes)
                + i128::from(parts.context_bytes)
                + i128::from(parts.other_processes_bytes.unwrap_or(0))
                + i128::from(parts.unexplained_bytes);
            prop_assert_eq!(i128::from(parts.used_bytes), sum);
            prop_assert_eq!(parts.to_string().matches(" + unexplained ").count(), 1);
            // Figures a device can have are taken as they are.
            if allocated_bytes < 1 << 60 {
                prop_assert_eq!(parts.allocated_bytes, allocated_bytes);
            }
            if let Some(bytes) = device_used.filter(|bytes| *bytes < 1 << 60) {
                prop_assert_eq!(parts.used_bytes, bytes);
            }
        }
    }
}
