//! Errors of the operating system that say nothing about a file: too few file descriptors, a failing
//! disk, too little memory.
//!
//! A file that cannot be opened for such a reason is neither missing nor damaged. Many readers treat
//! an unreadable file as one of both, e.g. because an audit lists what it finds. The first error is
//! therefore kept, and the program ends with it instead of with what follows from it.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Returns the first error of the system since the last [`take_system_fault`], as a sentence.
pub fn system_fault() -> Option<String> {
    first().clone()
}

/// Like [`system_fault`], and forgets it.
pub fn take_system_fault() -> Option<String> {
    first().take()
}

/// Keeps an error while accessing `path`, if it is one of the system.
pub fn note_system_fault(path: &Path, error: &io::Error) {
    if let Some((what, remedy)) = system_words(error).filter(|_| is_of_system(error)) {
        first()
            .get_or_insert_with(|| format!("cannot access `{}`: {what}; {remedy}", path.display()));
    }
}

/// Like [`note_system_fault`], for a result.
pub(crate) fn noted<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.inspect_err(|error| note_system_fault(path, error))
}

fn first() -> MutexGuard<'static, Option<String>> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Describes an error of the operating system that no permission and no disk space would mend: what
/// is wrong, and how to fix it. Returns `None` for other errors.
pub fn system_words(error: &io::Error) -> Option<(&'static str, &'static str)> {
    kinds::of(error).map(|(.., what, remedy)| (*what, *remedy))
}

/// Returns whether an error is the system's own, and not a property of the path.
fn is_of_system(error: &io::Error) -> bool {
    kinds::of(error).is_some_and(|(_, is_of_system, ..)| *is_of_system)
}

/// Code, whether the path has no part in it, description, and remedy.
type Kind = (i32, bool, &'static str, &'static str);

#[cfg(unix)]
mod kinds {
    use super::Kind;
    use nix::errno::Errno;
    use std::io;

    const KINDS: [Kind; 7] = [
        (
            Errno::EMFILE as i32,
            true,
            "the limit on open files is too low",
            "raise it with `ulimit -n 1024`",
        ),
        (
            Errno::ENFILE as i32,
            true,
            "the machine has too many open files",
            "end other programs, then run the command again",
        ),
        (
            Errno::EIO as i32,
            true,
            "the disk reports an input or output error",
            "check the disk, then run the command again",
        ),
        (
            Errno::ENOMEM as i32,
            true,
            "the machine is out of memory",
            "end other programs or raise the limit (ulimit -v), then run the command again",
        ),
        (
            Errno::ESTALE as i32,
            true,
            "the network file system has lost it",
            "mount the file system again, then run the command again",
        ),
        (
            Errno::ENAMETOOLONG as i32,
            false,
            "a name in the path, or the path, is too long",
            "use a shorter one",
        ),
        (
            Errno::ELOOP as i32,
            false,
            "its symbolic links lead in a circle",
            "remove one of them, or use another path",
        ),
    ];

    pub(super) fn of(error: &io::Error) -> Option<&'static Kind> {
        let code = error.raw_os_error()?;
        KINDS.iter().find(|(known, ..)| *known == code)
    }
}

#[cfg(not(unix))]
mod kinds {
    use super::Kind;
    use std::io;

    pub(super) fn of(_: &io::Error) -> Option<&'static Kind> {
        None
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use nix::errno::Errno;

    /// The only test of this crate that notes an error of the system.
    #[test]
    fn only_errors_of_the_system_are_kept_and_only_the_first() {
        let noted = |code: Errno| {
            note_system_fault(Path::new("a"), &io::Error::from_raw_os_error(code as i32));
            system_fault()
        };
        for code in [Errno::ENOENT, Errno::EACCES, Errno::EISDIR, Errno::ELOOP, Errno::ENAMETOOLONG]
        {
            assert_eq!(noted(code), None, "{code}");
        }
        let expected =
            "cannot access `a`: the limit on open files is too low; raise it with `ulimit -n 1024`";
        for code in [Errno::EMFILE, Errno::EIO] {
            assert_eq!(noted(code).as_deref(), Some(expected), "{code}");
        }
        assert_eq!(take_system_fault().as_deref(), Some(expected));
        assert_eq!(system_fault(), None);
        for code in [Errno::ENFILE, Errno::EIO, Errno::ENOMEM, Errno::ESTALE] {
            assert!(noted(code).is_some(), "{code}");
            take_system_fault();
        }
    }
}
