//! Threads that wait for work awake.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `f` while the other threads of the pool look for work all the time instead of going to sleep.
///
/// A forward pass is a chain of short parallel operations. Between two of them Rayon's threads fall asleep, and to wake
/// them costs as much as a small operation itself. For the time of `f` they stay awake (as OpenMP's do), and take up
/// whatever `f` puts before them. Results do not change.
///
/// For one `f` at a time: while another runs, `f` is just run. Of two, each could wait for a half that is under the other's
/// threads on a stack, and neither would end.
pub fn awake<R>(f: impl FnOnce() -> R) -> R {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    if RUNNING.swap(true, Ordering::Acquire) {
        return f();
    }
    let _running = Running(&RUNNING);
    awake_where(ARRIVAL, || (), f)
}

/// Lets the next one in, after a panic too.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// [`awake`], which calls `arrived` on each thread that begins to look, and lets it wait for the others for `arrival`.
fn awake_where<R>(arrival: Duration, arrived: impl Fn() + Sync, f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    let missing = AtomicUsize::new(rayon::current_num_threads() - 1);
    rayon::in_place_scope(|scope| {
        // Not `spawn_broadcast`: a thread that waits inside a half of `f` could begin to look there, and `f`, which
        // waits for that half, would never end. These jobs are older than all of `f`, so they are taken before it.
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

/// How long a thread waits for the others to arrive: longer than it takes to wake one, unless it has other work.
const ARRIVAL: Duration = Duration::from_micros(200);

/// Turns of waiting or looking after which a thread lets the system run another program.
const PATIENCE: u32 = 200;

/// Arrives, and takes no work until all have. A thread that looked at once would find the job that was meant for the
/// next one, and in it the one after: all nested on one stack, while the other threads find nothing and sleep.
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

/// Ends the looking when `f` has ended, by a panic too.
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
            // So long that a thread of a busy machine arrives too.
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
