//! shape: 27
//! title: functions with an ABI
//! lost: clippy::missing_const_for_fn

/// # Safety
///
/// None.
#[track]
pub unsafe extern "C" fn foreign(n: u8) -> u8 {
    n
}

#[track]
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_shape_027(n: u8) -> u8 {
    n
}

#[track]
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_shape_027_pattern(_: u8, mut n: u8) -> u8 {
    n += 1;
    n
}

#[track]
pub extern "system" fn system(n: u8) -> u8 {
    n
}

#[track(+err)]
pub extern "Rust" fn rust(n: u8) -> Result<u8, String> {
    if n == 0 {
        return Err("zero".to_owned());
    }
    Ok(n)
}

#[track]
pub extern "C-unwind" fn unwinds(n: u8) -> u8 {
    assert!(n > 0, "zero");
    n
}

#[track]
#[allow(missing_abi)]
pub extern fn without_a_name(n: u8) -> u8 {
    n
}

// calls: rust 2, unwinds 2
pub fn exercise() -> String {
    let pointer: unsafe extern "C" fn(u8) -> u8 = foreign;
    // SAFETY: there is no condition.
    let first = unsafe { pointer(4) };
    let pointers: (extern "C" fn(u8) -> u8, extern "system" fn(u8) -> u8, extern "C-unwind" fn(u8) -> u8) =
        (memtrack_shape_027, system, unwinds);
    let panics = shape_support::panic_of(|| unwinds(0));
    format!(
        "{} {} {} {} {} {:?} {:?} {} {}",
        first,
        (pointers.0)(5),
        memtrack_shape_027_pattern(1, 2),
        (pointers.1)(6),
        (pointers.2)(7),
        rust(0),
        rust(8),
        panics,
        without_a_name(9)
    )
}
