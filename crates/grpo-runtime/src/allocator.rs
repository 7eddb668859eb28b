//! The global allocator. It keeps freed memory and enforces memory limits.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

use crate::limit::{charge, out_of_memory, refund};

/// The mimalloc allocator, extended with the limits set by [`limited`](crate::limited). If it has no
/// memory, the process exits with code 1 and a message.
#[derive(Debug)]
pub struct Allocator;

#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: all calls are forwarded unchanged to mimalloc. The accounting does not allocate or
// unwind, but it may exit the process.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`, which mimalloc shares.
        given(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: as above.
        given(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
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
        given(unsafe { MiMalloc.realloc(pointer, layout, size) }, size)
    }
}

/// Returns the pointer to allocated memory. Ends the process if there is none.
fn given(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() {
        out_of_memory(size);
    }
    pointer
}

/// `mi_option_purge_delay`, which the bindings do not export. Delay in milliseconds until freed
/// memory is returned to the operating system.
const PURGE_DELAY: c_int = 15;
const NEVER: c_long = -1;

/// Makes the allocator keep freed memory for later use instead of returning it to the operating
/// system, which would have to clear it before reuse (docs/LOG.md has measurements). As a result,
/// the memory usage of the process stays at its peak. The environment variable
/// `MIMALLOC_PURGE_DELAY` overrides this setting.
///
/// # Errors
/// Returns the number of threads if there is more than one. All threads read the options of the
/// allocator, and setting one is not synchronised.
pub(crate) fn keep_memory() -> Result<(), usize> {
    if let Some(threads) = threads().filter(|threads| *threads > 1) {
        return Err(threads);
    }
    #[expect(unsafe_code, reason = "mimalloc's options can only be set through its C functions")]
    // SAFETY: the function takes two integers, and the option exists in both versions of mimalloc.
    // It is not thread-safe, but the process has only one thread at this point, as far as the
    // operating system reports. `compute` starts other threads later.
    unsafe {
        libmimalloc_sys::mi_option_set_default(PURGE_DELAY, NEVER);
    }
    Ok(())
}

/// Returns the number of threads of this process, or `None` if the operating system is not Linux.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}
