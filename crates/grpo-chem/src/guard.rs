//! One molecule's panic, kept to this molecule.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::InvalidSmiles;

/// Runs a call into the toolkit; a panic in it is an error of this call.
///
/// `chematic` holds hundreds of `unwrap`s. No input is known that trips one, but a training asks it about millions of
/// strings that nobody has seen, and none of them may end the run. The panic hook stays as it is, so the place of a
/// panic is still reported. An overflow of the stack cannot be caught: `grammar::MAX_LENGTH` rules it out.
///
/// Nothing half-changed is seen afterwards: `call` borrows molecules whose caches are filled once, each whole or not.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, InvalidSmiles> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|payload| InvalidSmiles::ToolkitPanic { detail: first_line(payload.as_ref()) })
}

/// Of what was given to `panic!`; the others (`assert_eq!`) show values, which fit no cell of a table.
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
