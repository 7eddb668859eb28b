//! Limits on nesting, memory and time when rendering untrusted templates.

use crate::DataError;
use crate::caught::caught;
use std::path::Path;
use std::time::Duration;

/// Stack size in bytes. The parser is recursive, and a template can be nested as deeply as it is
/// long. Unused stack is never committed.
const STACK: usize = 1 << 30;

/// Memory limit for parsing a template, in bytes.
pub(crate) const PARSING: usize = 512 << 20;

/// Memory limit for rendering a conversation, in bytes. Each level of a nested value takes at least
/// 72 bytes and is dropped recursively, so this also limits the recursion to 233,000 levels. The
/// stack has 4,600 bytes for each.
pub(crate) const RENDERING: usize = 16 << 20;

/// Time limit. Rendering a conversation takes microseconds. The instruction limit isn't sufficient
/// because a single instruction can search a long text.
const TIME: Duration = Duration::from_secs(20);

/// The error of a thread that cannot be started. The template has no part in it.
fn no_thread(what: &str) -> DataError {
    DataError::Invalid(format!(
        "cannot start a thread for {what}: memory or the number of processes is limited; raise the limit (ulimit -v or -u) so that {} MiB of address space are free",
        (2 * STACK) >> 20
    ))
}

/// Names the chat template in a file.
pub(crate) fn chat_template_in(path: &Path) -> String {
    format!("the chat template in `{}`", path.display().to_string().escape_debug())
}

/// Runs `work` on `what`, a template, on a thread with a large stack and with limited memory and time. The process exits
/// if a limit is exceeded. See [`grpo_runtime::limited`].
///
/// # Errors
/// Returns an error if the thread cannot be spawned or if `work` panics.
pub(crate) fn bounded<R: Send>(
    what: &str,
    memory: usize,
    work: impl FnOnce() -> R + Send,
) -> Result<R, DataError> {
    let failed = |reason: &str| DataError::Invalid(format!("{what} cannot be rendered: {reason}"));
    let remedy = "use a simpler template";
    let limited = || grpo_runtime::limited(what, remedy, memory, work);
    let limited = || grpo_runtime::time_limited(what, remedy, TIME, limited);
    std::thread::scope(|scope| {
        let silent = || caught(limited);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, silent);
        let thread = thread.map_err(|_| no_thread(what))?;
        let ended = thread.join().ok().and_then(Result::ok);
        ended.ok_or_else(|| failed("its engine panicked"))?.map_err(|_| no_thread(what))
    })
}
