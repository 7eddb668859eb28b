//! The incomplete output files and the temporary folders of this process.
#![expect(clippy::disallowed_methods, reason = "output files that the user chose")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use grpo_data::{FileKind, Locked, OwnFolder};

static INCOMPLETE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn incomplete() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    INCOMPLETE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a file or folder that has just been created, and is removed if a signal ends the process.
pub fn begin(path: PathBuf) -> PathBuf {
    incomplete().insert(path.clone());
    path
}

/// Creates a uniquely named temporary file in the same folder as `path`.
pub(super) fn temporary(path: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    clear_leftovers(folder.unwrap_or(Path::new(".")), name);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}-{number}", std::process::id()));
        match File::create_new(&temporary) {
            // Left behind by a killed process.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            // Another process may take it for a leftover until it is locked. Without locks, none does.
            Ok(file) if file.try_lock().is_ok() && !temporary.exists() => {}
            Ok(file) => return Ok((begin(temporary), file)),
        }
    }
}

/// Removes the temporary files of the output file `name` in `folder` whose processes have exited. A
/// process locks its temporary files.
fn clear_leftovers(folder: &Path, name: &str) {
    // Leftovers that cannot be found or removed do not stand in the way.
    let Ok(folder) = OwnFolder::open(folder) else { return };
    for (leftover, kind) in folder.entries("").unwrap_or_default() {
        if kind == FileKind::File
            && is_temporary(&leftover, name)
            && let Ok(Locked::Held(_lock)) = folder.lock(&leftover, FileKind::File)
        {
            let _gone = folder.remove_file(&leftover);
        }
    }
}

/// Returns whether a name is `.NAME.PROCESS-NUMBER`.
fn is_temporary(leftover: &str, name: &str) -> bool {
    let numbers = leftover
        .strip_prefix('.')
        .and_then(|rest| rest.strip_prefix(name)?.strip_prefix('.')?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Removes a file, unless it has been renamed.
pub(super) fn end(path: &Path) {
    let _gone = std::fs::remove_file(path);
    incomplete().remove(path);
}

/// Whether a signal ends the process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does not return if a signal ends the process. Writers of a folder with many files call this before
/// each of them, so that the folder can be removed.
pub fn stop_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Removes all files and folders before the process exits without dropping their owners.
pub fn remove_incomplete() {
    IS_ENDING.store(true, Ordering::SeqCst);
    for path in incomplete().iter() {
        if std::fs::remove_file(path).is_err() {
            remove_folder(path);
        }
    }
}

/// Removes a folder that another thread may be writing, or renaming to its final name.
fn remove_folder(path: &Path) {
    /// Number of attempts, because the file that is being written can bring its folder back.
    const ATTEMPTS: usize = 100;
    // A thread that renames the folder either finds it whole, or not at all: it must not find one
    // from which files are missing.
    let mut taken = path.as_os_str().to_owned();
    taken.push("0");
    for _ in 0..ATTEMPTS {
        let is_taken = std::fs::rename(path, &taken).is_ok();
        let is_left = std::fs::remove_dir_all(&taken).is_err() && Path::new(&taken).exists();
        if !is_taken && !is_left && path.symlink_metadata().is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_killed_processes_are_removed_and_those_in_use_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (used, file) = temporary(&at("a.csv"), "a.csv").unwrap();
        for name in [".a.csv.12-0", ".a.csv.x-0", ".b.csv.12-0", "a.csv"] {
            std::fs::write(at(name), "left").unwrap();
        }
        let (other, _file) = temporary(&at("a.csv"), "a.csv").unwrap();
        assert!(used.exists() && other.exists() && used != other);
        assert!(!at(".a.csv.12-0").exists());
        for name in [".a.csv.x-0", ".b.csv.12-0", "a.csv"] {
            assert!(at(name).exists(), "{name}");
        }
        drop(file);
        clear_leftovers(folder.path(), "a.csv");
        assert!(!used.exists());
    }

    /// The folder keeps all files, or no folder is left.
    #[test]
    fn a_folder_that_is_renamed_meanwhile_is_whole_or_gone() {
        let place = tempfile::tempdir().unwrap();
        let (hidden, target) = (place.path().join(".new.tmp-0"), place.path().join("new"));
        for delay in 0..100 {
            std::fs::create_dir(&hidden).unwrap();
            (0..50).for_each(|file| std::fs::write(hidden.join(file.to_string()), "").unwrap());
            let renamed = thread::scope(|scope| {
                let renaming = scope.spawn(|| {
                    thread::sleep(Duration::from_micros(10 * delay));
                    std::fs::rename(&hidden, &target)
                });
                remove_folder(&hidden);
                renaming.join().unwrap()
            });
            if renamed.is_ok() {
                assert_eq!(std::fs::read_dir(&target).unwrap().count(), 50);
                std::fs::remove_dir_all(&target).unwrap();
            }
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        }
    }
}
