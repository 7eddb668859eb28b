//! Memory limits for untrusted data and libraries without limits.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Remaining memory of a thread.
#[derive(Clone, Copy)]
struct Limit {
    /// Bytes that it may hold in addition.
    held: i64,
    /// Bytes that it may request, freed or not, which limits the time of copies.
    asked: i64,
}

/// Requested bytes per held byte.
const ASKED: i64 = 32;

thread_local! {
    static LIMIT: Cell<Option<Limit>> = const { Cell::new(None) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work` with a memory limit of `bytes` on this thread. If it holds more, or requests 32
/// times as much, the process ends with the message
/// `error: {what} exceeds the memory limit of … MiB; {remedy}` and exit code 1, because an allocator
/// cannot unwind and Rust aborts without memory. Memory of other threads does not count.
///
/// This requires [`Allocator`](crate::Allocator) as the global allocator.
pub fn limited<R>(what: &str, remedy: &str, bytes: usize, work: impl FnOnce() -> R) -> R {
    let held = i64::try_from(bytes).unwrap_or(i64::MAX / ASKED).min(i64::MAX / ASKED);
    MESSAGE.set(format!(
        "error: {what} exceeds the memory limit of {} MiB; {remedy}\n",
        bytes.div_ceil(1 << 20)
    ));
    let _before = Restore(LIMIT.replace(Some(Limit { held, asked: held * ASKED })));
    work()
}

/// Runs `work`, which may take `limit` of time. If it takes longer, the process ends with the sentence
/// `error: {what} exceeds the time limit of … s; {remedy}` and exit code 1, because a thread cannot be stopped from outside.
pub fn time_limited<R>(what: &str, remedy: &str, limit: Duration, work: impl FnOnce() -> R) -> R {
    let message =
        format!("error: {what} exceeds the time limit of {} s; {remedy}\n", limit.as_secs_f64());
    let (done, waiting) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                exit_with(&message);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Restores the previous limit, also after a panic.
struct Restore(Option<Limit>);

impl Drop for Restore {
    fn drop(&mut self) {
        LIMIT.set(self.0);
    }
}

/// Counts requested memory.
pub(crate) fn charge(bytes: usize) {
    // An ending thread has no limit.
    let Ok(Some(limit)) = LIMIT.try_with(Cell::get) else { return };
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left =
        Limit { held: limit.held.saturating_sub(bytes), asked: limit.asked.saturating_sub(bytes) };
    LIMIT.set(Some(left));
    if left.held < 0 || left.asked < 0 {
        end();
    }
}

/// Counts freed memory.
pub(crate) fn refund(bytes: usize) {
    let Ok(Some(limit)) = LIMIT.try_with(Cell::get) else { return };
    let held = limit.held.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
    LIMIT.set(Some(Limit { held, ..limit }));
}

#[cold]
fn end() -> ! {
    LIMIT.set(None);
    exit_with(&MESSAGE.take())
}

fn exit_with(message: &str) -> ! {
    let _unread = io::stderr().write_all(message.as_bytes());
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let held = || LIMIT.get().map(|limit| limit.held);
        limited("work", "do less", 100, || {
            charge(60);
            refund(60);
            charge(90);
            assert_eq!(held(), Some(10));
            limited("inner work", "do less", 5, || charge(5));
            assert_eq!(held(), Some(10));
        });
        assert_eq!(held(), None);
        charge(usize::MAX);
    }
}
