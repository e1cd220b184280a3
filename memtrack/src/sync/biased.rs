//! A lock that costs the thread which uses it all the time no atomic read-modify-write.
//!
//! A program mostly allocates from one thread, or from one thread a stream, and takes four locks for each allocation with its
//! free. A mutex pays for each of them with two read-modify-writes, whoever else is there: on a Xeon 19 ns, so half of what a cached
//! allocation with its free took. This lock lets one thread, its *owner*, take it with plain loads and stores; any other thread first
//! takes the ownership away, which costs it a call of the kernel, and is then a user of an ordinary mutex, the *gate*.
//!
//! **How the owner and the others exclude each other.** To take the lock, the owner (1) sets its flag, then (2) looks whether it
//! is the owner still. To take the ownership away, another thread, which holds the gate, (3) takes the owner's name down, then
//! (4) waits until the flag is not set. If neither side's later step sees the other's earlier one, both are in. Between 1 and 2
//! stands a *light* barrier and between 3 and 4 a *heavy* one, of which one pair orders the two: the light one forbids the
//! compiler to exchange the steps, and the heavy one (`membarrier`, Linux) makes every processor that runs a thread of this process
//! pass a full barrier, at a moment which comes either after 1, so that 4 sees the flag, or before 2, so that 2 sees that the name
//! is gone.
//!
//! **Why no flag is shared.** A thread may set its flag, be stopped for long, lose the ownership, and go on by taking its flag back. So
//! each thread that ever was the owner has a flag of its own, for good, and none that was the owner before can take away
//! another's. There are [`OWNER_LIMIT`] flags a lock; a further thread never becomes the owner, and the lock is a mutex to it.
//!
//! **Who becomes the owner.** A thread that took the gate many times in a row and never found it taken. How many is doubled each
//! time that an ownership did not last, so that threads which take turns pay for few calls of the kernel. Where there is
//! no `membarrier` nobody ever becomes the owner.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::barrier;

/// So many threads can be the owner of one lock during its life.
pub(crate) const OWNER_LIMIT: usize = 16;
/// So many times in a row a thread takes the gate before it is the owner.
pub(crate) const FIRST_STREAK: u32 = 128;
const LONGEST_STREAK: u32 = 1 << 20;
/// An ownership that lasted so long was worth the call of the kernel that ended it, a thousand times over.
const WORTHWHILE: Duration = Duration::from_millis(10);

/// Nobody is the owner.
const NOBODY: u64 = 0;
/// The number of a thread stands above the number of its flag.
const FLAG_BITS: u32 = OWNER_LIMIT.trailing_zeros();
const _: () = assert!(OWNER_LIMIT.is_power_of_two());

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Unlike an address it is never used again. Zero: not given yet.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// This thread's number, never zero. There is no destructor, so it is there for as long as the thread runs.
#[inline]
fn current_thread() -> u64 {
    match THREAD.get() {
        0 => take_number(),
        number => number,
    }
}

#[cold]
fn take_number() -> u64 {
    let number = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
    THREAD.set(number);
    number
}

/// A mutex that is cheap for one thread. Like [`lock`](super::lock), it goes on after a panic.
pub(crate) struct BiasedMutex<T> {
    /// The owner and the number of its flag, or [`NOBODY`]. Written with the gate held.
    owner: AtomicU64,
    /// By number: whether the thread whose flag it is may be inside. Each is written by its thread alone.
    flags: [AtomicBool; OWNER_LIMIT],
    gate: Mutex<Gate>,
    value: UnsafeCell<T>,
}

/// What is known of those who come through the gate.
#[derive(Debug)]
struct Gate {
    last: u64,
    /// How often in a row it was `last`, without meeting anybody.
    streak: u32,
    /// What streak makes an owner.
    needed: u32,
    /// The threads that have flags, by number.
    known: [u64; OWNER_LIMIT],
    known_count: usize,
    owned_since: Option<Instant>,
    /// The flag of the last owner, until it was seen unset after the barrier.
    former: Option<usize>,
}

// SAFETY: `T` is reached through guards alone, and never two at a time: one of the owner, whose flag is set meanwhile, or one of
// a thread that holds the gate after the owner's name was taken down and its flag was seen unset (see the module). So a lock shared by
// threads moves `T` between them and shares it never.
#[expect(unsafe_code, reason = "a lock shares what it guards")]
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

impl<T> BiasedMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        let gate = Gate {
            last: NOBODY,
            streak: 0,
            needed: FIRST_STREAK,
            known: [NOBODY; OWNER_LIMIT],
            known_count: 0,
            owned_since: None,
            former: None,
        };
        Self {
            owner: AtomicU64::new(NOBODY),
            flags: [const { AtomicBool::new(false) }; OWNER_LIMIT],
            gate: Mutex::new(gate),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock. A thread that has it would wait for itself.
    ///
    /// # Panics
    ///
    /// If this thread has it as its owner.
    #[inline]
    pub(crate) fn lock(&self) -> BiasedGuard<'_, T> {
        let thread = current_thread();
        match self.enter_as_owner(thread) {
            Some(guard) => guard,
            None => self.lock_gate(thread),
        }
    }

    /// The lock, unless another thread has it; waits for nobody. From an owner that does not have it, it is taken away.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        let thread = current_thread();
        match self.enter_as_owner(thread) {
            Some(guard) => Some(guard),
            None => self.try_lock_gate(thread),
        }
    }

    /// The lock, if this thread owns it.
    #[inline(always)]
    pub(crate) fn try_lock_as_owner(&self) -> Option<BiasedGuard<'_, T>> {
        self.enter_as_owner(current_thread())
    }

    /// What is guarded, by the only one who knows of the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline(always)]
    fn enter_as_owner(&self, thread: u64) -> Option<BiasedGuard<'_, T>> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner >> FLAG_BITS != thread {
            return None;
        }
        let flag = &self.flags[owner as usize % OWNER_LIMIT];
        if flag.load(Ordering::Relaxed) {
            taken_twice();
        }
        flag.store(true, Ordering::Relaxed);
        barrier::light();
        if self.owner.load(Ordering::Relaxed) != owner {
            flag.store(false, Ordering::Release);
            return None;
        }
        // What others did inside is visible: this thread held the gate after them when it became the owner.
        Some(BiasedGuard { lock: self, flag: Some(flag), not_send: PhantomData })
    }

    #[cold]
    #[inline(never)]
    fn lock_gate(&self, thread: u64) -> BiasedGuard<'_, T> {
        let mut gate = self.gate.try_lock().unwrap_or_else(|| {
            let mut gate = self.gate.lock();
            gate.streak = 0;
            gate
        });
        self.dispossess(&mut gate);
        let mut looks = 0_u32;
        while self.is_owner_inside(&mut gate) {
            looks = looks.saturating_add(1);
            match looks {
                0..64 => std::hint::spin_loop(),
                64..1024 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        self.enter_through(gate, thread)
    }

    #[cold]
    #[inline(never)]
    fn try_lock_gate(&self, thread: u64) -> Option<BiasedGuard<'_, T>> {
        let mut gate = self.gate.try_lock()?;
        self.dispossess(&mut gate);
        if self.is_owner_inside(&mut gate) {
            return None;
        }
        Some(self.enter_through(gate, thread))
    }

    /// Nobody owns the lock, and who owned it is out.
    fn enter_through<'a>(&'a self, mut gate: MutexGuard<'a, Gate>, thread: u64) -> BiasedGuard<'a, T> {
        if gate.last == thread {
            gate.streak = gate.streak.saturating_add(1);
        } else {
            (gate.last, gate.streak) = (thread, 1);
        }
        if gate.streak >= gate.needed
            && let Some(number) = gate.flag_of(thread)
        {
            gate.streak = 0;
            gate.owned_since = Some(Instant::now());
            let flag = &self.flags[number];
            // Before the name, so that whoever reads the name waits for this guard.
            flag.store(true, Ordering::Relaxed);
            self.owner.store((thread << FLAG_BITS) | number as u64, Ordering::Relaxed);
            // The gate goes here; the next to hold it sees both.
            return BiasedGuard { lock: self, flag: Some(flag), not_send: PhantomData };
        }
        // Left by the new guard's drop.
        std::mem::forget(gate);
        BiasedGuard { lock: self, flag: None, not_send: PhantomData }
    }

    /// Takes the ownership away, if somebody has it. That thread may still be inside.
    fn dispossess(&self, gate: &mut Gate) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == NOBODY {
            return;
        }
        self.owner.store(NOBODY, Ordering::Relaxed);
        if let Err(refused) = barrier::heavy() {
            // Without the barrier nobody may enter but the owner, which stays it.
            self.owner.store(owner, Ordering::Relaxed);
            panic!(
                "the kernel refuses `membarrier`, which it granted before: {refused}; allow it in the sandbox's filter"
            );
        }
        gate.former = Some(owner as usize % OWNER_LIMIT);
        let lasted = gate.owned_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        gate.needed = if lasted >= WORTHWHILE { FIRST_STREAK } else { (gate.needed * 2).min(LONGEST_STREAK) };
    }

    /// Whether the thread that the ownership was taken from has not left yet.
    fn is_owner_inside(&self, gate: &mut Gate) -> bool {
        let is_inside = gate.former.is_some_and(|number| self.flags[number].load(Ordering::Acquire));
        if !is_inside {
            gate.former = None;
        }
        is_inside
    }
}

#[cold]
#[inline(never)]
fn taken_twice() -> ! {
    panic!("a thread takes a lock that it has")
}

impl Gate {
    /// The number of a thread's flag, none if there is none left or no barrier to rely on.
    fn flag_of(&mut self, thread: u64) -> Option<usize> {
        if !barrier::is_available() {
            self.needed = u32::MAX;
            return None;
        }
        if let Some(number) = self.known.iter().position(|known| *known == thread) {
            return Some(number);
        }
        let number = self.known_count;
        let place = self.known.get_mut(number)?;
        *place = thread;
        self.known_count += 1;
        Some(number)
    }
}

impl<T: Default> Default for BiasedMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedMutex").finish_non_exhaustive()
    }
}

/// The lock, held.
pub(crate) struct BiasedGuard<'a, T> {
    // Two plain references, which stay in registers: a guard of the gate would be moved through memory.
    lock: &'a BiasedMutex<T>,
    /// The owner's, to be taken back. None for a guard that holds the gate.
    flag: Option<&'a AtomicBool>,
    /// Either is its thread's to leave.
    not_send: PhantomData<*const ()>,
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.flag {
            Some(flag) => flag.store(false, Ordering::Release),
            None => leave_gate(&self.lock.gate),
        }
    }
}

/// For a guard that came through the gate.
#[inline(never)]
#[expect(unsafe_code, reason = "a lock is left")]
fn leave_gate(gate: &Mutex<Gate>) {
    // SAFETY: called once, by the drop of a guard that took the gate and forgot the gate's own guard.
    unsafe { gate.force_unlock() };
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    #[expect(unsafe_code, reason = "a lock gives what it guards")]
    fn deref(&self) -> &T {
        // SAFETY: while a guard is there no other is, by the module's argument, and what it gives lives no longer than it.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    #[expect(unsafe_code, reason = "a lock gives what it guards")]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` is the only way to this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: fmt::Debug> fmt::Debug for BiasedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests;
