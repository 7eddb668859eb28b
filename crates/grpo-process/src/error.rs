//! Why a program cannot compute.

use rayon::ThreadPoolBuildError;

/// Threads that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// A number that no machine has.
    #[error("--threads {threads} is out of range; expected 1 to 1024")]
    Number {
        /// What was asked for.
        threads: usize,
    },
    /// The options of the allocator are set before any thread reads them.
    #[error("the process has {threads} threads already; `compute` comes first in `main`")]
    Late {
        /// Threads of the process.
        threads: usize,
    },
    /// The system, or a pool that there is already.
    #[error("the pool of threads could not be made")]
    Pool(#[from] ThreadPoolBuildError),
}
