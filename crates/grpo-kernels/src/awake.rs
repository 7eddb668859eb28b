//! Threads that wait for work awake.

use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` while the other threads of the pool look for work all the time instead of going to sleep.
///
/// A forward pass is a chain of short parallel operations. Between two of them Rayon's threads fall asleep, and to wake
/// them costs as much as a small operation itself. For the time of `f` they stay awake (as OpenMP's do), and take up
/// whatever `f` puts before them. Results do not change.
pub fn awake<R>(f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    let others = rayon::current_num_threads() - 1;
    rayon::in_place_scope(|scope| {
        for _ in 0..others {
            scope.spawn(|_| look_for_work(&done));
        }
        let _done = Done(&done);
        f()
    })
}

/// Turns of looking for work after which a thread lets the system run another program.
const PATIENCE: u32 = 200;

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
}
