//! The thread pool for computations.

use rayon::ThreadPoolBuilder;

use crate::ThreadsError;
use crate::allocator::keep_memory;

/// Stack size of each thread in bytes. Equals the main thread's stack on most systems, because the
/// program itself runs on the pool.
const STACK: usize = 8 << 20;

/// Creates a thread pool and runs `program` on one of its threads. By default, there is one thread
/// per core.
///
/// If a parallel operation starts outside the pool, the calling thread sleeps until it is complete.
/// Inside the pool, the thread takes part in the work. This matters because a training step starts
/// thousands of parallel operations.
///
/// # Errors
/// Returns an error if the number of threads is out of range, if the process already has other
/// threads (only detected on Linux), or if the thread pool cannot be created.
pub fn compute<R: Send>(
    threads: Option<usize>,
    program: impl FnOnce() -> R + Send,
) -> Result<R, ThreadsError> {
    if let Some(threads) = threads.filter(|threads| !(1..=1024).contains(threads)) {
        return Err(ThreadsError::Number { threads });
    }
    keep_memory().map_err(|threads| ThreadsError::Late { threads })?;
    // 0 selects `RAYON_NUM_THREADS` or the number of cores.
    ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).stack_size(STACK).build_global()?;
    Ok(rayon::scope(|_| program()))
}
