//! Limits on memory and time for work on untrusted data by libraries that have none.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// What a thread may still take.
#[derive(Clone, Copy)]
struct Limit {
    /// Bytes that it may hold besides those that it holds.
    held: i64,
    /// Bytes that it may ask for, whether or not it gives them back: a limit on the time that copies take.
    asked: i64,
}

/// Bytes that are asked for to each byte that may be held.
const ASKED: i64 = 32;

thread_local! {
    static LIMIT: Cell<Option<Limit>> = const { Cell::new(None) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work`, which may take `bytes` of memory on this thread. If it takes more, or copies 32 times as much, the process
/// ends with the sentence `error: {what} takes more than … MiB of memory; {remedy}` and exit code 1: an allocator cannot
/// unwind, and without memory Rust aborts. Memory that other threads take for it is not counted.
///
/// This has an effect in programs whose global allocator is [`Allocator`](crate::Allocator).
pub fn limited<R>(what: &str, remedy: &str, bytes: usize, work: impl FnOnce() -> R) -> R {
    let held = i64::try_from(bytes).unwrap_or(i64::MAX / ASKED).min(i64::MAX / ASKED);
    MESSAGE.set(format!(
        "error: {what} takes more than {} MiB of memory; {remedy}\n",
        bytes.div_ceil(1 << 20)
    ));
    let _before = Restore(LIMIT.replace(Some(Limit { held, asked: held * ASKED })));
    work()
}

/// Runs `work`, which may take `limit` of time. If it takes longer, the process ends with the sentence
/// `error: {what} takes longer than … s; {remedy}` and exit code 1, because a thread cannot be stopped from outside.
pub fn time_limited<R>(what: &str, remedy: &str, limit: Duration, work: impl FnOnce() -> R) -> R {
    let message = format!("error: {what} takes longer than {} s; {remedy}\n", limit.as_secs_f64());
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

/// Puts back the limit that there was, after a panic too.
struct Restore(Option<Limit>);

impl Drop for Restore {
    fn drop(&mut self) {
        LIMIT.set(self.0);
    }
}

/// Counts memory that this thread asks for.
pub(crate) fn charge(bytes: usize) {
    // A thread that ends has no limit any more.
    let Ok(Some(limit)) = LIMIT.try_with(Cell::get) else { return };
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left =
        Limit { held: limit.held.saturating_sub(bytes), asked: limit.asked.saturating_sub(bytes) };
    LIMIT.set(Some(left));
    if left.held < 0 || left.asked < 0 {
        end();
    }
}

/// Counts memory that this thread gives back.
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
