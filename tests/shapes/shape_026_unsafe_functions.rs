//! shape: 26
//! title: unsafe functions, whose body is no unsafe block
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async

#![deny(unsafe_op_in_unsafe_fn)]

/// Reads.
///
/// # Safety
///
/// `x` is valid.
#[track]
pub unsafe fn read(x: *const u8) -> u8 {
    // SAFETY: as the function's own condition.
    unsafe { *x }
}

/// # Safety
///
/// `x` is valid.
#[track(+err)]
pub unsafe fn checked(x: *const u8) -> Result<u8, String> {
    if x.is_null() {
        return Err("null".to_owned());
    }
    // SAFETY: as the function's own condition.
    Ok(unsafe { *x })
}

#[track]
pub async unsafe fn later(n: u8) -> u8 {
    shape_support::yield_now().await;
    n
}

#[track(+err)]
pub async unsafe fn later_checked(n: &u8) -> Result<u8, String> {
    let n: *const u8 = n;
    // SAFETY: it was a reference.
    Ok(unsafe { *n })
}

pub struct Cell(*const u8);

impl Cell {
    /// # Safety
    ///
    /// The pointer is valid.
    #[track(+err)]
    pub unsafe fn taken(self) -> Result<u8, ()> {
        // SAFETY: as the function's own condition.
        unsafe { Ok(*self.0) }
    }
}

// calls: checked 2
pub fn exercise() -> String {
    let f: unsafe fn(*const u8) -> u8 = read;
    // SAFETY: references are valid.
    unsafe {
        let later = shape_support::block_on(shape_support::send(later(4)));
        let checked = (checked(&3), checked(std::ptr::null()), shape_support::block_on(later_checked(&5)));
        format!("{} {} {:?} {:?}", f(&3), later, checked, Cell(&6).taken())
    }
}
