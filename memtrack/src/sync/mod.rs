//! Locks that go on after a panic elsewhere, and one among them that is cheap for the thread which takes it most.
//!
//! Nothing that knows what is guarded may live here.

mod barrier;
mod biased;

pub(crate) use biased::{BiasedGuard, BiasedMutex};

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks, poisoned or not.
///
/// Of foreign code only devices are called under memtrack's locks, and a device reports failures as errors. A panic under a
/// lock is thus a failed assertion, which tests report; a program that goes on should keep its statistics and be able to
/// free its memory.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to read.
pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to write.
pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], by the only owner.
#[cfg(feature = "cuda")]
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}
