//! Memory and time limits for processing untrusted data with libraries that have no limits.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A thread's remaining memory budget.
#[derive(Clone, Copy)]
struct Limit {
    /// Number of bytes that may be allocated at the same time.
    held: i64,
    /// Total number of bytes that may be allocated, including memory that is freed again. Limits
    /// the time spent on copies.
    asked: i64,
}

/// Ratio of total allocations to simultaneous allocations.
const ASKED: i64 = 32;

thread_local! {
    static LIMIT: Cell<Option<Limit>> = const { Cell::new(None) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work` on this thread with a memory limit of `bytes`.
///
/// If `work` holds more memory than that, or allocates more than 32 times as much in total, the
/// process exits with code 1 and the message
/// `error: {what} exceeds the memory limit of … MiB; {remedy}`. It has to exit because allocators
/// must not unwind, and Rust aborts if an allocation fails. Memory allocated by other threads is
/// not counted.
///
/// Requires [`Allocator`](crate::Allocator) as the global allocator.
pub fn limited<R>(what: &str, remedy: &str, bytes: usize, work: impl FnOnce() -> R) -> R {
    let held = i64::try_from(bytes).unwrap_or(i64::MAX / ASKED).min(i64::MAX / ASKED);
    MESSAGE.set(format!(
        "error: {what} exceeds the memory limit of {} MiB; {remedy}\n",
        bytes.div_ceil(1 << 20)
    ));
    let _before = Restore(LIMIT.replace(Some(Limit { held, asked: held * ASKED })));
    work()
}

/// Runs `work` with a time limit. If it takes longer than `limit`, the process exits with code 1
/// and the message `error: {what} exceeded the time limit of … s; {remedy}`, because a thread cannot
/// be stopped from the outside.
///
/// # Errors
/// Returns an error if the thread that waits for the end of the time cannot be started. Then `work`
/// is not run.
pub fn time_limited<R>(
    what: &str,
    remedy: &str,
    limit: Duration,
    work: impl FnOnce() -> R,
) -> io::Result<R> {
    let message =
        format!("error: {what} exceeded the time limit of {} s; {remedy}\n", limit.as_secs_f64());
    let (done, waiting) = channel::<()>();
    thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, move || {
            if waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                exit_with(&message);
            }
        })?;
        let result = work();
        drop(done);
        Ok(result)
    })
}

/// Restores the previous limit on drop, including after a panic.
struct Restore(Option<Limit>);

impl Drop for Restore {
    fn drop(&mut self) {
        LIMIT.set(self.0);
    }
}

/// Subtracts allocated memory from the budget.
pub(crate) fn charge(bytes: usize) {
    // Thread-local data is gone when a thread is exiting.
    let Ok(Some(limit)) = LIMIT.try_with(Cell::get) else { return };
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left =
        Limit { held: limit.held.saturating_sub(bytes), asked: limit.asked.saturating_sub(bytes) };
    LIMIT.set(Some(left));
    if left.held < 0 || left.asked < 0 {
        end();
    }
}

/// Adds freed memory back to the budget.
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

/// Ends the process because `bytes` bytes cannot be allocated. Rust would abort it.
#[cold]
pub(crate) fn out_of_memory(bytes: usize) -> ! {
    let mut message = [0; 160];
    let mut rest = &mut message[..];
    let _fits = writeln!(
        rest,
        "error: out of memory: cannot allocate {} KiB; use a smaller model or batch, or raise the limit (ulimit -v, ulimit -d)",
        bytes.div_ceil(1024)
    );
    let left = rest.len();
    let _unread = io::stderr().write_all(&message[..message.len() - left]);
    exit_at_once()
}

/// Ends the process without the handlers that run at its exit, because they need memory.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the function of C has no counterpart in Rust")]
fn exit_at_once() -> ! {
    // SAFETY: it has no preconditions.
    unsafe { nix::libc::_exit(1) }
}

#[cfg(not(unix))]
fn exit_at_once() -> ! {
    std::process::exit(1)
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
