//! Errors of process settings.

use rayon::ThreadPoolBuildError;

/// Errors of thread settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// The number is impossible.
    #[error("--threads {threads} is out of range; expected 1 to 1024")]
    Number {
        /// The requested number.
        threads: usize,
    },
    /// Threads were started before the options of the allocator were set.
    #[error("the process already has {threads} threads; call `compute` first in `main`")]
    Late {
        /// Number of threads of the process.
        threads: usize,
    },
    /// The system or an existing thread pool refused.
    #[error("failed to create the thread pool")]
    Pool(#[from] ThreadPoolBuildError),
}
