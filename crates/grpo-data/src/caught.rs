//! Panics of other people's readers as errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Calls of [`caught`] that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Keeps the panic hook from printing a panic, with its backtrace, that becomes an error.
fn silence_caught_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if DEPTH.get() == 0 {
                before(panic);
            }
        }));
    });
}

/// What `work` returns, or the message of its panic.
///
/// Damaged files make `parquet` and `tokenizers` panic: fuzzing found asserts on lists of a wrong
/// shape, negative column sizes and missing dictionaries in the one, an `expect` on malformed JSON
/// and indices out of bounds in the other. A user's file must not end a run that way. The panic's
/// message is in the error, and not on the standard error stream as well.
///
/// # Errors
/// It panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_caught_panics();
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // What was half changed is not used again: each caller gives up on its file or its text.
    let result = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(depth);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("its reader panicked ({})", text.unwrap_or("without a message"))
    })
}
