//! The pool of threads that a program computes in.

use rayon::ThreadPoolBuilder;

use crate::ThreadsError;
use crate::allocator::keep_memory;

/// Bytes of a thread's stack: what a main thread has on most systems, since the program's own code runs there.
const STACK: usize = 8 << 20;

/// Runs `program` on a thread of a new pool of `threads`, or of as many as the machine has cores.
///
/// A parallel operation that is begun outside of the pool puts its thread to sleep until it is done; begun inside, the
/// thread takes part in it. A training step begins thousands.
///
/// # Errors
/// A number of threads that no machine has; a process that has other threads already, where the system says so (Linux); a
/// pool that the system refuses.
pub fn compute<R: Send>(
    threads: Option<usize>,
    program: impl FnOnce() -> R + Send,
) -> Result<R, ThreadsError> {
    if let Some(threads) = threads.filter(|threads| !(1..=1024).contains(threads)) {
        return Err(ThreadsError::Number { threads });
    }
    keep_memory().map_err(|threads| ThreadsError::Late { threads })?;
    // 0 stands for the machine's cores, or RAYON_NUM_THREADS.
    ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).stack_size(STACK).build_global()?;
    Ok(rayon::scope(|_| program()))
}
