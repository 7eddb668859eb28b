//! What the process was given by the one that started it: standard output, and limits on its stacks.
#![expect(clippy::disallowed_methods, reason = "files of the system")]

use std::sync::atomic::{AtomicBool, Ordering};

/// Smallest stack of the main thread and of other threads, in bytes. Parsing arguments needs a quarter
/// of it.
const STACK: u64 = 1 << 20;

/// Checks that the stacks of this process are large enough. A stack overflow would abort it.
///
/// # Errors
/// Returns an error if the limit of the main thread's stack (`ulimit -s`, on Linux), or the variable
/// `RUST_MIN_STACK`, which sets the size of the other stacks, is below 1 MiB.
pub fn check_stacks() -> Result<(), String> {
    let threads = std::env::var("RUST_MIN_STACK").ok().and_then(|size| size.parse::<u64>().ok());
    if let Some(size) = threads.filter(|size| *size < STACK) {
        return Err(format!(
            "the variable RUST_MIN_STACK sets a stack of {size} bytes; unset it, or set at least {STACK}"
        ));
    }
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match stack_limit(&limits).filter(|size| *size < STACK) {
        None => Ok(()),
        Some(size) => Err(format!(
            "the stack is limited to {} KiB; raise the limit with `ulimit -s 8192`",
            size / 1024
        )),
    }
}

/// Parses the limit from `Max stack size  8388608  unlimited  bytes`. Returns `None` if unlimited.
fn stack_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max stack size"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Smallest limit on open files. A run folder, its files and the copies that their readers make need
/// a third of it.
const OPEN_FILES: u64 = 64;

/// Checks that this process may open enough files. With too few, files that exist could not be opened.
///
/// # Errors
/// Returns an error if the limit (`ulimit -n`, on Linux) is below 64.
pub fn check_open_files() -> Result<(), String> {
    // Reading the limit needs a file descriptor, so a limit that cannot be read may be too low.
    match std::fs::read_to_string("/proc/self/limits") {
        Ok(limits) => enough_open_files(&limits),
        #[cfg(unix)]
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EMFILE as i32) => {
            enough_open_files("Max open files 0")
        }
        Err(_) => Ok(()),
    }
}

/// Parses the limit from `Max open files  1024  1048576  files`.
fn enough_open_files(limits: &str) -> Result<(), String> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let limit: Option<u64> = limit.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    match limit.filter(|limit| *limit < OPEN_FILES) {
        None => Ok(()),
        Some(limit) => Err(format!(
            "the limit on open files is too low ({}); raise it with `ulimit -n 1024`",
            match limit {
                0 => "none can be opened".to_owned(),
                limit => limit.to_string(),
            }
        )),
    }
}

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Returns whether the process was started with a closed standard output, as by `>&-` in a shell. The
/// standard library opens `/dev/null` in its place, so writing succeeds. Always false on operating
/// systems other than Linux.
pub fn is_stdout_closed() -> bool {
    // Keeps the function below in the program.
    #[cfg(target_os = "linux")]
    std::hint::black_box(&linux::BEFORE_MAIN);
    IS_CLOSED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::Ordering;

    use nix::libc::{F_GETFD, fcntl};

    #[used]
    #[expect(unsafe_code, reason = "the standard library opens closed files before `main`")]
    // SAFETY: the section contains pointers to functions that the loader calls once before `main`.
    #[unsafe(link_section = ".init_array")]
    pub(super) static BEFORE_MAIN: extern "C" fn() = note_closed;

    extern "C" fn note_closed() {
        #[expect(unsafe_code, reason = "nix asks for an open file")]
        // SAFETY: reads the flags of a file descriptor, which may be closed.
        let flags = unsafe { fcntl(1, F_GETFD) };
        super::IS_CLOSED.store(flags == -1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_kernel_writes_it() {
        let limits = "Max stack size            65536        unlimited            bytes\n";
        assert_eq!(stack_limit(limits), Some(65536));
        assert_eq!(stack_limit(&limits.replace("65536", "unlimited")), None);
        assert_eq!(stack_limit(""), None);
        assert_eq!(check_stacks(), Ok(()));
        let open_files = |limit: &str| {
            enough_open_files(&format!("Max open files            {limit}     1048576     files\n"))
        };
        assert_eq!((open_files("64"), open_files("unlimited")), (Ok(()), Ok(())));
        assert_eq!(
            open_files("63").unwrap_err(),
            "the limit on open files is too low (63); raise it with `ulimit -n 1024`"
        );
        assert_eq!((enough_open_files(""), check_open_files()), (Ok(()), Ok(())));
        assert!(!is_stdout_closed());
    }
}
