//! shape: 111
//! title: unsafe operations in unsafe functions, without a block before 2024
//! lost: clippy::missing_const_for_fn
//! lost: clippy::unused_async
#![allow(unsafe_op_in_unsafe_fn)]
use shape_support::block_on;

/// # Safety
///
/// `x` is valid.
#[track]
pub unsafe fn read(x: *const u8) -> u8 {
    *x
}

/// # Safety
///
/// `x` is valid.
#[track(+err)]
pub unsafe fn checked(x: *const u8) -> Result<u8, String> {
    if x.is_null() {
        return Err("null".to_owned());
    }
    Ok(read(x))
}

/// # Safety
///
/// `x` is valid.
#[track(+err)]
pub async unsafe fn later(x: *const u8) -> Result<u8, String> {
    Ok(unsafe { read(x) })
}

pub struct Pointer(*mut u8);

impl Pointer {
    /// # Safety
    ///
    /// The pointer is valid.
    #[track]
    pub unsafe fn owned(self, n: u8) -> u8 {
        unsafe {
            *self.0 += n;
            *self.0
        }
    }
}

pub unsafe trait Zero {
    /// # Safety
    ///
    /// None.
    #[track]
    unsafe fn zero(&self) -> u8 {
        0
    }
}

unsafe impl Zero for u8 {}

// calls: read 3, checked 2
pub fn exercise() -> String {
    let mut n = 3;
    // SAFETY: references are valid.
    unsafe {
        let checked = (checked(&3), checked(std::ptr::null()));
        format!("{} {:?} {:?} {} {}", read(&3), checked, block_on(later(&4)), Pointer(&mut n).owned(1), 1_u8.zero())
    }
}
