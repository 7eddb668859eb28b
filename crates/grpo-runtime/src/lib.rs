#![doc = include_str!("../README.md")]

mod allocator;
mod awake;
mod error;
mod limit;
mod memory;
mod ranks;
mod signals;
mod start;
mod threads;

pub use allocator::Allocator;
pub use awake::{available_threads, awake, beside, let_threads_sleep};
pub use error::ThreadsError;
pub use limit::{limited, time_limited};
pub use memory::{ResidentMemory, available_memory};
pub use ranks::{Launch, RankError, Ranks, Transport, launch};
#[cfg(feature = "mpi")]
pub use ranks::{Mpi, Report};
pub use signals::ignores_signal;
pub use start::{check_open_files, check_stacks, is_stdout_closed};
pub use threads::compute;
