//! Limits for rendering untrusted templates: their library has none on memory, nesting and the time of one call.

use crate::DataError;
use std::path::Path;
use std::time::Duration;

/// Bytes of a template's stack. Values and expressions can be nested as deep as a template is long, and are walked over by
/// functions that call themselves; what is not used costs nothing.
const STACK: usize = 1 << 30;

/// Bytes that a template may take.
const MEMORY: usize = 512 << 20;

/// Time for a conversation, which takes microseconds. Fuel counts instructions, and one can search a text of `MEMORY` bytes.
const TIME: Duration = Duration::from_secs(20);

/// Runs `work` on a thread with a deep stack, limited memory and limited time. Going beyond ends the process: see
/// [`grpo_process::limited`].
///
/// # Errors
/// There is no memory for a thread, or the work panics.
pub(crate) fn bounded<R: Send>(
    path: &Path,
    work: impl FnOnce() -> R + Send,
) -> Result<R, DataError> {
    let what = format!("the chat template in `{}`", path.display().to_string().escape_debug());
    let failed = |reason: &str| DataError::Invalid(format!("{what} cannot be rendered: {reason}"));
    let remedy = "use a template that does less";
    let limited = || grpo_process::limited(&what, remedy, MEMORY, work);
    let limited = || grpo_process::time_limited(&what, remedy, TIME, limited);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, limited);
        let thread = thread.map_err(|error| failed(&format!("no thread for it ({error})")))?;
        thread.join().map_err(|_| failed("its engine panicked; report the template"))
    })
}
