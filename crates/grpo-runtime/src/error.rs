//! Error type for process settings.

use rayon::ThreadPoolBuildError;

/// Errors while setting up compute threads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// The requested number of threads is out of range.
    #[error("--threads {threads} is out of range; expected 1 to 1024")]
    Number {
        /// Requested number of threads.
        threads: usize,
    },
    /// Other threads were started before the allocator was configured.
    #[error("the process already has {threads} threads; call `compute` first in `main`")]
    Late {
        /// Number of running threads.
        threads: usize,
    },
    /// The thread pool could not be created, or one already exists.
    #[error("failed to create the thread pool")]
    Pool(#[from] ThreadPoolBuildError),
}
