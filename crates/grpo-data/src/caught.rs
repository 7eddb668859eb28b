//! Converts panics in third-party parsers to errors.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Nesting depth of [`caught`] on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Installs a panic hook that prints nothing for panics that become errors.
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

/// The error of [`caught`]. The panic messages of the crates describe their code, not the file.
const DAMAGED: &str = "its content is inconsistent or damaged";

/// Calls `work` and converts a panic to an error.
///
/// The `parquet` and `tokenizers` crates panic on damaged files. Fuzzing found failed assertions on
/// malformed lists, negative column sizes and missing dictionaries in `parquet`, and out-of-bounds
/// indices and an `expect` on malformed JSON in `tokenizers`. A damaged input file must not crash a
/// training run. The panic is not printed.
///
/// # Errors
/// Returns an error if `work` panics.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    caught_message(work).map_err(|_| DAMAGED.to_owned())
}

/// Like [`caught`], for other code that panics. The error is the panic message.
///
/// # Errors
/// Returns an error if `work` panics.
pub fn caught_message<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    silence_caught_panics();
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // Inconsistent state is never observed, because every caller discards the file or text on
    // error.
    let result = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(depth);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("without a message").to_owned()
    })
}
