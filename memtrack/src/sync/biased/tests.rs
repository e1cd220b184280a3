use super::*;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

fn owner_of<T>(lock: &BiasedMutex<T>) -> u64 {
    lock.owner.load(Ordering::Relaxed) >> FLAG_BITS
}

/// Takes the lock often enough to own it.
fn own<T>(lock: &BiasedMutex<T>) {
    for _ in 0..LONGEST_STREAK {
        if owner_of(lock) == current_thread() {
            return;
        }
        drop(lock.lock());
    }
}

/// Where the kernel has no barrier the lock is a mutex, and there is no owner to test.
fn has_owners() -> bool {
    let available = barrier::is_available();
    println!("membarrier is available: {available}");
    available
}

#[test]
fn a_thread_that_comes_again_and_again_becomes_the_owner() {
    if !has_owners() {
        return;
    }
    let lock = BiasedMutex::new(0);
    for _ in 1..FIRST_STREAK {
        *lock.lock() += 1;
        assert_eq!(owner_of(&lock), NOBODY);
    }
    *lock.lock() += 1;
    assert_eq!(owner_of(&lock), current_thread());
    assert_eq!(*lock.lock(), FIRST_STREAK);
}

#[test]
fn another_thread_takes_the_ownership_away_and_sees_what_was_done() {
    let lock = BiasedMutex::new(0);
    for _ in 0..1000 {
        *lock.lock() += 1;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(*lock.lock(), 1000);
            assert_eq!(owner_of(&lock), NOBODY);
            *lock.lock() += 1;
        });
    });
    assert_eq!(*lock.lock(), 1001);
}

#[test]
fn what_the_owner_holds_nobody_else_gets() {
    let lock = BiasedMutex::new(0);
    own(&lock);
    let guard = lock.lock();
    let (inside, arrived) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            arrived.store(true, Ordering::SeqCst);
            let _guard = lock.lock();
            inside.store(true, Ordering::SeqCst);
        });
        while !arrived.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!inside.load(Ordering::SeqCst));
        drop(guard);
    });
    assert!(inside.load(Ordering::SeqCst));
}

#[test]
fn what_another_thread_holds_the_former_owner_does_not_get() {
    let lock = BiasedMutex::new(0);
    own(&lock);
    let (taken, is_taken) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let lock = &lock;
        scope.spawn(move || {
            let mut guard = lock.lock();
            taken.send(()).unwrap();
            is_released.recv().unwrap();
            *guard += 1;
        });
        is_taken.recv().unwrap();
        assert!(lock.try_lock().is_none());
        release.send(()).unwrap();
        // Whichever comes first, the other waits.
        drop(lock.lock());
    });
    assert_eq!(*lock.lock(), 1);
    assert!(lock.try_lock().is_some());
}

#[test]
fn who_only_tries_does_not_wait_for_an_owner_that_is_inside() {
    let lock = BiasedMutex::new(0);
    own(&lock);
    let mut guard = lock.lock();
    std::thread::scope(|scope| {
        // Each would wait for ever, as the guard is let go after them.
        for _ in 0..3 {
            scope.spawn(|| assert!(lock.try_lock().is_none())).join().unwrap();
        }
    });
    *guard += 1;
    drop(guard);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*lock.try_lock().unwrap(), 1)).join().unwrap();
    });
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn a_thread_that_takes_the_lock_twice_is_told() {
    if !has_owners() {
        return;
    }
    let lock = BiasedMutex::new(0);
    own(&lock);
    let guard = lock.lock();
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
    assert!(twice.is_err());
    drop(guard);
    drop(lock.lock());
}

#[test]
fn a_panic_inside_lets_the_lock_go() {
    let lock = BiasedMutex::new(0);
    for _ in 0..2 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("inside");
        }));
        assert!(outcome.is_err());
        assert!(lock.try_lock().is_some());
        own(&lock);
    }
}

#[test]
fn threads_beyond_the_limit_never_own_it_and_are_served_all_the_same() {
    let lock = BiasedMutex::new(0_u64);
    for _ in 0..OWNER_LIMIT + 4 {
        std::thread::scope(|scope| {
            // As long as an ownership must last not to make the next one dearer.
            let work = || {
                own(&lock);
                std::thread::sleep(WORTHWHILE);
                *lock.lock() += 1;
            };
            scope.spawn(work);
        });
    }
    assert_eq!(*lock.lock(), OWNER_LIMIT as u64 + 4);
}

#[test]
fn threads_that_take_turns_lose_no_update() {
    // Stretches as long as make an owner, and short ones; what is guarded is more than a word, so that two inside would show.
    const ROUNDS: usize = 60;
    for threads in [2, 3, 8] {
        let lock = BiasedMutex::new([0_u64; 16]);
        let (total, turn) = (AtomicU64::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..threads {
                let (lock, total, turn) = (&lock, &total, &turn);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if round % 3 == 0 {
                            // Alone for a while, so that it becomes the owner.
                            let mut waits = 0;
                            while turn.load(Ordering::Acquire) % threads != number && waits < 200 {
                                waits += 1;
                                std::thread::yield_now();
                            }
                        }
                        let count = if (round + number) % 2 == 0 { 3 * FIRST_STREAK as usize } else { 7 };
                        for _ in 0..count {
                            let mut guard = if round % 5 == 4 {
                                match lock.try_lock() {
                                    Some(guard) => guard,
                                    None => continue,
                                }
                            } else {
                                lock.lock()
                            };
                            let first = guard[0];
                            assert!(guard.iter().all(|word| *word == first));
                            guard.iter_mut().for_each(|word| *word = std::hint::black_box(*word + 1));
                            total.fetch_add(1, Ordering::Relaxed);
                        }
                        turn.fetch_add(1, Ordering::Release);
                    }
                });
            }
        });
        assert_eq!(lock.lock()[0], total.load(Ordering::Relaxed));
    }
}
