//! `CUDA_VISIBLE_DEVICES` as CUDA reads it: where the list ends, and why.

use memtrack::driver::{MaskEnd, MaskEntry, VisibleDevices};

const DEVICES: [&str; 4] = [
    "GPU-0a0a0a0a-0000-0000-0000-000000000000",
    "GPU-0a0b0b0b-0000-0000-0000-000000000001",
    "GPU-c0c0c0c0-0000-0000-0000-000000000002",
    "GPU-d0d0d0d0-0000-0000-0000-000000000003",
];

fn resolved(mask: Option<&str>) -> (Vec<usize>, MaskEnd) {
    let visible = VisibleDevices::parse(mask).resolve(&DEVICES);
    (visible.devices, visible.end)
}

fn not_a_device(entry: &str) -> MaskEnd {
    MaskEnd::NotADevice { entry: entry.to_owned() }
}

#[test]
fn r11_every_form_of_the_mask_shows_the_devices_that_cuda_shows() {
    for (mask, devices, end) in [
        (None, vec![0, 1, 2, 3], MaskEnd::Complete),
        (Some(""), vec![], MaskEnd::Empty),
        (Some("1,0"), vec![1, 0], MaskEnd::Complete),
        (Some("0,-1,1"), vec![0], not_a_device("-1")),
        (Some(DEVICES[2]), vec![2], MaskEnd::Complete),
        (Some("GPU-c0"), vec![2], MaskEnd::Complete),
        (Some("1,4,0"), vec![1], MaskEnd::OutOfRange { ordinal: 4, count: 4 }),
        (Some("2,3"), vec![2, 3], MaskEnd::Complete),
    ] {
        assert_eq!(resolved(mask), (devices, end), "{mask:?}");
    }
}

#[test]
fn an_entry_that_names_no_device_ends_the_list_without_an_error() {
    for (mask, devices, end) in [
        ("-1", vec![], not_a_device("-1")),
        ("NoDevFiles", vec![], not_a_device("NoDevFiles")),
        ("0,,1", vec![0], not_a_device("")),
        ("GPU-ff", vec![], MaskEnd::NoSuchUuid { entry: "GPU-ff".to_owned() }),
        ("GPU-c0,GPU-ff,GPU-d0", vec![2], MaskEnd::NoSuchUuid { entry: "GPU-ff".to_owned() }),
        ("GPU-0a", vec![], MaskEnd::AmbiguousUuid { entry: "GPU-0a".to_owned(), count: 2 }),
        ("GPU-", vec![], MaskEnd::AmbiguousUuid { entry: "GPU-".to_owned(), count: 4 }),
        ("99999999999", vec![], not_a_device("99999999999")),
    ] {
        assert_eq!(resolved(Some(mask)), (devices, end), "{mask}");
    }
}

#[test]
fn numbers_are_read_as_c_reads_them() {
    assert_eq!(resolved(Some(" 2 , 1")), (vec![2, 1], MaskEnd::Complete));
    assert_eq!(resolved(Some("1gpu2,2ampere")), (vec![1, 2], MaskEnd::Complete));
    assert_eq!(resolved(Some("+1")), (vec![1], MaskEnd::Complete));
}

#[test]
fn a_device_named_twice_hides_them_all() {
    for (mask, entry) in [("0,1,0", "0"), ("GPU-c0,GPU-c0c0", "GPU-c0c0")] {
        assert_eq!(resolved(Some(mask)), (vec![], MaskEnd::Duplicate { entry: entry.to_owned() }), "{mask}");
    }
    // What follows the end is not read.
    assert_eq!(resolved(Some("0,-1,0")), (vec![0], not_a_device("-1")));
}

#[test]
fn numbers_and_uuids_do_not_mix() {
    assert_eq!(resolved(Some("0,GPU-c0")), (vec![0], not_a_device("GPU-c0")));
    assert_eq!(resolved(Some("GPU-c0,0")), (vec![2], not_a_device("0")));
}

#[test]
fn of_mig_instances_the_first_alone_is_used_and_numbers_do_not_count_them() {
    let devices = ["GPU-aa", "MIG-11", "MIG-22", "GPU-bb"];
    let of = |mask| VisibleDevices::parse(Some(mask)).resolve(&devices);
    let visible = of("MIG-22,MIG-11");
    assert_eq!((visible.devices, visible.end), (vec![2], MaskEnd::OneMigInstance));
    assert_eq!(of("MIG-11").end, MaskEnd::Complete);
    assert_eq!(of("1").devices, [3]);
    assert_eq!(VisibleDevices::parse(None).resolve(&devices).devices, [0, 3]);
}

#[test]
fn entries_are_kept_as_they_stand() {
    let mask = VisibleDevices::parse(Some("3,GPU-a,MIG-b,x"));
    let expected = [
        MaskEntry::Ordinal(3),
        MaskEntry::Gpu("GPU-a".to_owned()),
        MaskEntry::Mig("MIG-b".to_owned()),
        MaskEntry::Invalid("x".to_owned()),
    ];
    assert_eq!(mask.entries(), Some(&expected[..]));
    assert_eq!(VisibleDevices::parse(None).entries(), None);
}

#[test]
fn an_old_name_of_an_instance_is_whole_and_one_device_is_singular() {
    let devices = ["MIG-GPU-aa/1/10", "MIG-GPU-aa/1/1"];
    let visible = VisibleDevices::parse(Some("MIG-GPU-aa/1/1")).resolve(&devices);
    assert_eq!((visible.devices, visible.end), (vec![1], MaskEnd::Complete));
    let end = |devices: &[&str]| VisibleDevices::parse(Some("7")).resolve(devices).end.to_string();
    assert_eq!(end(&DEVICES[..1]), "device 7 is beyond the 1 device there is and ends the mask");
    assert_eq!(end(&DEVICES), "device 7 is beyond the 4 devices there are and ends the mask");
}
