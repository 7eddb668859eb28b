//! What a download reports.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::HubError;

/// What happens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The hub is asked which files a repository has.
    Listing {
        /// Name of the repository.
        repo: &'a str,
    },
    /// Files are missing in the cache, and will be downloaded in this order.
    Missing {
        /// Number of files.
        files: usize,
        /// Their size in bytes, if the hub lists it.
        size: Option<u64>,
    },
    /// Content arrives.
    Downloading {
        /// Path of the file in its repository.
        file: &'a str,
        /// Number of bytes on the disk, including those of an earlier run.
        done: u64,
        /// Size of the file, if the hub lists it.
        size: Option<u64>,
    },
    /// The hash of a file is compared with that of the hub.
    Checking {
        /// Path of the file in its repository.
        file: &'a str,
    },
    /// Another process downloads the same content.
    Waiting {
        /// Path of the file in its repository.
        file: &'a str,
    },
    /// A request failed and will be sent again.
    Retrying {
        /// Path of the file in its repository, or the name of the repository.
        file: &'a str,
        /// What went wrong.
        error: &'a HubError,
        /// Time until the next attempt.
        left: Duration,
    },
}

/// A function that receives the progress, and can stop the download by `ControlFlow::Break`.
pub type Observer<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + 'a;
