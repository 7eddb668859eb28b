//! Output that cannot be written.

use std::io;
use std::sync::{Mutex, PoisonError};

/// The first error while writing to standard output.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// Notes whether the process was started with a closed standard output, which is an error at its end.
pub fn note_closed() {
    if grpo_runtime::is_stdout_closed() {
        note_lost(&io::Error::other("it is closed"));
    }
}

/// Makes [`check_written`] fail because standard output could not be written.
pub fn note_lost(error: &io::Error) {
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    lost.get_or_insert_with(|| error.to_string());
}

/// Checks that all lines passed to `say` since the last call were written.
///
/// # Errors
/// Returns an error if standard output cannot be written, e.g. because the disk is full.
pub fn check_written() -> anyhow::Result<()> {
    let lost = LOST.lock().unwrap_or_else(PoisonError::into_inner).take();
    match lost {
        None => Ok(()),
        Some(fault) => anyhow::bail!(
            "cannot write to standard output ({fault}), so the output is incomplete; everything else succeeded, so run the command again with a different output"
        ),
    }
}
