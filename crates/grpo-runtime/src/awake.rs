//! Keeps the thread pool awake between short operations.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `f` while the other threads in the pool poll for work instead of going to sleep.
///
/// A forward pass is a sequence of short parallel operations. Between two of them, Rayon's threads
/// would fall asleep, and waking them up again costs as much as a small operation. While `f` runs,
/// they stay awake, similar to OpenMP threads. The result of `f` is unaffected.
///
/// Only one call is accelerated at a time. If another one is active, `f` runs as usual. Two
/// accelerated calls could deadlock, because each might wait for a job that is blocked further down
/// the stack of one of the other's threads.
pub fn awake<R>(f: impl FnOnce() -> R) -> R {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    if ASLEEP.load(Ordering::Relaxed) || RUNNING.swap(true, Ordering::Acquire) {
        return f();
    }
    let _running = Running(&RUNNING);
    awake_where(ARRIVAL, || (), f)
}

/// Makes [`awake`] run `f` as usual from now on. For processes that compute on a GPU: their threads
/// would only wait for it.
pub fn let_threads_sleep() {
    ASLEEP.store(true, Ordering::Relaxed);
}

static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Runs `f` while `others` similar calls run on other threads of the pool. Large operations are then
/// divided into fewer tasks, for this call's share of the threads. The result of `f` is unaffected.
pub fn beside<R>(others: usize, f: impl FnOnce() -> R) -> R {
    let _previous = Previous(CALLS.replace(1 + others));
    f()
}

thread_local! {
    /// Number of similar calls, including the one on this thread.
    static CALLS: Cell<usize> = const { Cell::new(1) };
}

/// Returns the current thread's share of the threads in the pool. At least 1.
#[inline]
pub fn available_threads() -> usize {
    rayon::current_num_threads().div_ceil(CALLS.get())
}

/// Restores the previous number on drop, including after a panic.
struct Previous(usize);

impl Drop for Previous {
    fn drop(&mut self) {
        CALLS.set(self.0);
    }
}

/// Releases the slot on drop, including after a panic.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Implementation of [`awake`]. Each polling thread calls `arrived`, then waits up to `arrival` for
/// the other threads.
fn awake_where<R>(arrival: Duration, arrived: impl Fn() + Sync, f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    let missing = AtomicUsize::new(rayon::current_num_threads() - 1);
    rayon::in_place_scope(|scope| {
        // `spawn_broadcast` doesn't work here: a thread waiting inside `f` could start polling, and
        // then `f` would never finish. The jobs spawned below are older than anything in `f`, so
        // they are picked up first.
        for _ in 0..missing.load(Ordering::Relaxed) {
            scope.spawn(|_| {
                arrived();
                wait_for_others(&missing, &done, arrival);
                look_for_work(&done);
            });
        }
        let _done = Done(&done);
        f()
    })
}

/// Maximum time that a thread waits for the others. It is longer than the time needed to wake a
/// thread that is not busy.
const ARRIVAL: Duration = Duration::from_micros(200);

/// Number of polling iterations before a thread yields to other programs.
const PATIENCE: u32 = 200;

/// Waits until all threads have arrived.
///
/// If a thread started polling immediately, it would pick up the job meant for the next thread, and
/// while running that, the job after it. All jobs would end up nested on a single stack while the
/// other threads sleep.
fn wait_for_others(missing: &AtomicUsize, done: &AtomicBool, arrival: Duration) {
    missing.fetch_sub(1, Ordering::Relaxed);
    let begin = Instant::now();
    let mut turns = 0;
    while missing.load(Ordering::Relaxed) > 0
        && !done.load(Ordering::Relaxed)
        && begin.elapsed() < arrival
    {
        if turns < PATIENCE {
            turns += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

fn look_for_work(done: &AtomicBool) {
    let mut idle = 0;
    while !done.load(Ordering::Relaxed) {
        match rayon::yield_now() {
            Some(rayon::Yield::Executed) => idle = 0,
            _ if idle < PATIENCE => {
                idle += 1;
                std::hint::spin_loop();
            }
            _ => std::thread::yield_now(),
        }
    }
}

/// Stops the polling when `f` returns or panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;
    use rayon::prelude::*;

    #[test]
    fn work_is_done_and_a_panic_gets_through() {
        let sum: usize = awake(|| (0..1000_usize).into_par_iter().sum());
        assert_eq!(sum, 499_500);
        let nested: usize = awake(|| awake(|| (0..10_usize).into_par_iter().sum()));
        assert_eq!(nested, 45);
        let panicked = std::panic::catch_unwind(|| awake(|| panic!("inside")));
        assert!(panicked.is_err());
        assert_eq!(awake(|| 7), 7);
    }

    #[test]
    fn each_thread_looks_for_itself() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        let threads = || {
            let seen = Mutex::new(BTreeSet::new());
            let note = || {
                seen.lock().unwrap().insert(rayon::current_thread_index());
            };
            // Long enough even on a busy machine.
            let most = Duration::from_millis(20);
            awake_where(most, note, || {
                let begin = Instant::now();
                while begin.elapsed() < most && seen.lock().unwrap().len() < 3 {
                    std::thread::yield_now();
                }
                seen.lock().unwrap().len()
            })
        };
        let all = pool.install(|| (0..50).filter(|_| threads() == 3).count());
        assert!(all >= 10, "{all} of 50");
    }
}
