//! Limits for untrusted templates, whose library has no limits on memory and nesting.

use crate::DataError;
use std::path::Path;

/// Stack size in bytes. Templates can be nested as deeply as they are long and are processed
/// recursively; unused stack costs nothing.
const STACK: usize = 1 << 30;

/// Memory limit of a template in bytes.
const MEMORY: usize = 512 << 20;

/// Runs `work` on a thread with a large stack and limited memory. Exceeding the memory limit ends
/// the process; see [`grpo_process::limited`].
///
/// # Errors
/// Returns an error if no thread can be created or if the work panics.
pub(crate) fn bounded<R: Send>(
    path: &Path,
    work: impl FnOnce() -> R + Send,
) -> Result<R, DataError> {
    let what = format!("the chat template in `{}`", path.display().to_string().escape_debug());
    let failed = |reason: &str| DataError::Invalid(format!("{what} cannot be rendered: {reason}"));
    let limited = || grpo_process::limited(&what, "use a template that writes less", MEMORY, work);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, limited);
        let thread = thread.map_err(|error| failed(&format!("no thread for it ({error})")))?;
        thread.join().map_err(|_| failed("its engine panicked; report the template"))
    })
}
