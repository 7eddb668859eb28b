//! Panics of other people's readers as errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `work` returns, or the message of its panic.
///
/// Damaged files make `parquet` and `tokenizers` panic: fuzzing found asserts on lists of a wrong
/// shape, negative column sizes and missing dictionaries in the one, an `expect` on malformed JSON
/// and indices out of bounds in the other. A user's file must not end a run that way. The panic's
/// message still goes to the standard error stream, by the program's panic hook.
///
/// # Errors
/// It panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // What was half changed is not used again: each caller gives up on its file or its text.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        format!("its reader panicked ({})", text.unwrap_or("without a message"))
    })
}
