//! Converts panics of the toolkit to errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::InvalidSmiles;

/// Calls a function of the toolkit and converts a panic to an error.
///
/// `chematic` contains hundreds of `unwrap` calls. No input is known to trigger a panic, but a
/// training run evaluates millions of unknown strings, and none of them must abort the run. The
/// panic hook is not modified, so panics are still printed. Stack overflows cannot be caught and
/// are prevented by `grammar::MAX_LENGTH`.
///
/// A panic leaves no inconsistent state behind: `call` only borrows molecules, and their caches are
/// either empty or complete.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, InvalidSmiles> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|payload| InvalidSmiles::ToolkitPanic { detail: first_line(payload.as_ref()) })
}

/// Returns the first line of a `panic!` message. For other panics, e.g. `assert_eq!`, the remaining
/// lines contain values that do not fit into a table cell.
fn first_line(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_first_line() {
        for (call, reason) in [
            (|| panic!("a word"), "the toolkit failed: a word"),
            (|| panic!("a {}\nand a value", "format"), "the toolkit failed: a format"),
            (|| std::panic::panic_any(7), "the toolkit failed: no message"),
        ] as [(fn(), &str); 3]
        {
            assert_eq!(guarded(call).unwrap_err().to_string(), reason);
        }
        assert_eq!(guarded(|| 7), Ok(7));
    }
}
