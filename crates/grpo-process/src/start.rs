//! What the process was given by the one that started it: standard output, and limits on its stacks.

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
        assert!(!is_stdout_closed());
    }
}
