#![doc = include_str!("../README.md")]

mod allocator;
mod error;
mod limit;
mod memory;
mod signals;
mod start;
mod threads;

pub use allocator::Allocator;
pub use error::ThreadsError;
pub use limit::{limited, time_limited};
pub use memory::{ResidentMemory, available_memory};
pub use signals::ignores_signal;
pub use start::{check_open_files, check_stacks, is_stdout_closed};
pub use threads::compute;
