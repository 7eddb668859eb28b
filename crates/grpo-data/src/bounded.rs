//! Limits on nesting, memory and time for untrusted templates, whose library has none.

use crate::DataError;
use crate::caught::caught;
use std::path::Path;
use std::time::Duration;

/// Stack size in bytes. Templates can be nested as deeply as they are long and are processed
/// recursively; unused stack costs nothing.
const STACK: usize = 1 << 30;

/// Memory limit for parsing a template, in bytes.
pub(crate) const PARSING: usize = 512 << 20;

/// Memory limit for rendering a conversation, in bytes. A level of a nested value takes at least 40 bytes and is dropped by a
/// recursive call; the stack is large enough for 240,000 levels.
pub(crate) const RENDERING: usize = 6 << 20;

/// Time limit. A conversation takes microseconds; instructions are limited, but one can search a long text.
const TIME: Duration = Duration::from_secs(20);

/// Runs `work` on a thread with a large stack, limited memory and limited time. Exceeding one of these ends
/// the process; see [`grpo_process::limited`].
///
/// # Errors
/// Returns an error if no thread can be created or if the work panics.
pub(crate) fn bounded<R: Send>(
    path: &Path,
    memory: usize,
    work: impl FnOnce() -> R + Send,
) -> Result<R, DataError> {
    let what = format!("the chat template in `{}`", path.display().to_string().escape_debug());
    let failed = |reason: &str| DataError::Invalid(format!("{what} cannot be rendered: {reason}"));
    let remedy = "use a simpler template";
    let limited = || grpo_process::limited(&what, remedy, memory, work);
    let limited = || grpo_process::time_limited(&what, remedy, TIME, limited);
    std::thread::scope(|scope| {
        let silent = || caught(limited);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, silent);
        let thread = thread.map_err(|error| failed(&format!("cannot start a thread ({error})")))?;
        thread.join().ok().and_then(Result::ok).ok_or_else(|| failed("its engine panicked"))
    })
}
