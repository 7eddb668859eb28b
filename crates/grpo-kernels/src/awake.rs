//! Keeps threads awake between short operations.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `f` while the other threads of the pool poll for work instead of sleeping.
///
/// A forward pass is a chain of short parallel operations. Rayon's threads fall asleep between two
/// of them, and waking them costs as much as a small operation. During `f` they stay awake, as
/// OpenMP's threads do. Results do not change.
///
/// Only one `f` at a time is accelerated; another one just runs. With two, each could wait for a
/// job below the other's threads on a stack, which would be a deadlock.
pub fn awake<R>(f: impl FnOnce() -> R) -> R {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    if RUNNING.swap(true, Ordering::Acquire) {
        return f();
    }
    let _running = Running(&RUNNING);
    awake_where(ARRIVAL, || (), f)
}

/// Releases the slot, also after a panic.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Implements [`awake`]; calls `arrived` on each polling thread, which waits up to `arrival` for
/// the others.
fn awake_where<R>(arrival: Duration, arrived: impl Fn() + Sync, f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    let missing = AtomicUsize::new(rayon::current_num_threads() - 1);
    rayon::in_place_scope(|scope| {
        // `spawn_broadcast` would allow a thread that waits inside of `f` to start polling there,
        // so that `f` would never end. These jobs are older than all of `f`, so they are taken
        // first.
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

/// How long a thread waits for the others: longer than waking one takes, unless it has other work.
const ARRIVAL: Duration = Duration::from_micros(200);

/// Iterations of polling after which a thread yields to other programs.
const PATIENCE: u32 = 200;

/// Waits until all threads have arrived. A thread that polled immediately would find the job meant
/// for the next thread, and in it the one after, all nested on one stack, while the other threads
/// sleep.
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

/// Ends the polling when `f` ends, also by a panic.
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
            // Long enough for the threads of a busy machine.
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
