//! The incomplete output files and the temporary folders of this process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static INCOMPLETE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn incomplete() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    INCOMPLETE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a file or folder that has just been created.
pub(crate) fn begin(path: PathBuf) -> PathBuf {
    incomplete().insert(path.clone());
    path
}

/// Removes a file, unless it has been renamed.
pub(super) fn end(path: &Path) {
    let _gone = std::fs::remove_file(path);
    incomplete().remove(path);
}

/// Removes all files and folders before the process exits without dropping their owners.
pub(crate) fn remove_incomplete() {
    for path in incomplete().iter() {
        let removed = std::fs::remove_file(path);
        let _gone = removed.or_else(|_| std::fs::remove_dir_all(path));
    }
}
