//! Converts panics of third-party readers to errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Number of nested calls of [`caught`] on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Keeps the panic hook from printing a panic that becomes an error.
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

/// Returns the result of `work`, or the message of its panic.
///
/// Damaged files make `parquet` and `tokenizers` panic. Fuzzing found assertions on malformed
/// lists, negative column sizes and missing dictionaries in the former, and an `expect` on
/// malformed JSON and indices out of bounds in the latter. A user's file must not end a run this
/// way. The message is part of the error and not printed.
///
/// # Errors
/// Returns an error if `work` panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_caught_panics();
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // Partly changed state is not used again: each caller abandons its file or text.
    let result = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(depth);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("the parser panicked ({})", text.unwrap_or("without a message"))
    })
}
