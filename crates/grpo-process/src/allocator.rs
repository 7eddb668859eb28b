//! The allocator: keeps freed memory, and limits memory.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

use crate::limit::{charge, refund};

/// mimalloc with the limits of [`limited`](crate::limited) on threads that have one.
#[derive(Debug)]
pub struct Allocator;

#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: every call is handed on to mimalloc as it is. What is counted next to it allocates nothing and does not unwind; it can
// end the process.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: the caller's promises are those that mimalloc asks for.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        refund(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        charge(size);
        refund(layout.size());
        // SAFETY: as above.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

/// `mi_option_purge_delay`, which the bindings do not name: milliseconds until free memory returns
/// to the system.
const PURGE_DELAY: c_int = 15;
const NEVER: c_long = -1;

/// Keeps free memory for later buffers instead of returning it to the system, which would clear it
/// before reuse (docs/LOG.md has the cost). The process then holds the most memory that it ever
/// needed. The environment variable `MIMALLOC_PURGE_DELAY` overrides this.
///
/// # Errors
/// Returns the number of threads if there is more than one: every thread reads the options of the
/// allocator, and setting one is not synchronised.
pub(crate) fn keep_memory() -> Result<(), usize> {
    if let Some(threads) = threads().filter(|threads| *threads > 1) {
        return Err(threads);
    }
    #[expect(unsafe_code, reason = "mimalloc's options can only be set through its C functions")]
    // SAFETY: the function takes two numbers, and sets an option that is known in both versions of mimalloc. It is not
    // thread safe; the process has no other thread, as far as the system says, and `compute` makes its own afterwards.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, NEVER);
    }
    Ok(())
}

/// Returns the number of threads of this process; `None` if the system is not Linux.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
