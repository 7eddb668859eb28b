//! Panics that have a cause outside of the program.

use grpo_task::output::say_error;

/// Ends the process with an error if a thread cannot be started, which panics.
pub(crate) fn explain_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().is_some_and(|text| text.contains("failed to spawn thread")) {
            let limits = "raise the limits on memory and processes (ulimit -v, ulimit -u)";
            say_error(&anyhow::anyhow!("cannot start a thread; {limits}, or use fewer --threads"));
            std::process::exit(1);
        }
        before(panic);
    }));
}
