//! Memory that is kept.

use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay`, to which the bindings give no name: milliseconds until free memory goes back to the system.
const PURGE_DELAY: c_int = 15;
const NEVER: c_long = -1;

/// Keeps free memory for the next buffers instead of giving it back to the system, which would have to clear it before
/// it gives it out again (docs/LOG.md has what that costs). What the process holds is then the most that it ever needed. The environment variable
/// `MIMALLOC_PURGE_DELAY` says otherwise.
pub(crate) fn keep_memory() {
    #[expect(unsafe_code, reason = "mimalloc's options have no other door than its C functions")]
    // SAFETY: the function takes two numbers, and sets an option that is known in both versions of mimalloc. It is not
    // thread safe; `compute` calls it before it makes any threads.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge_delay() -> c_long {
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: reads a number.
        unsafe {
            libmimalloc_sys::mi_option_get(PURGE_DELAY)
        }
    }

    #[test]
    fn free_memory_is_kept() {
        // The option is the one that is meant: no other has this default.
        assert!(purge_delay() > 1, "{}", purge_delay());
        keep_memory();
        assert_eq!(purge_delay(), NEVER);
    }
}
