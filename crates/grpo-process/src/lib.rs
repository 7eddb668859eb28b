#![doc = include_str!("../README.md")]

mod allocator;
mod error;
mod limit;
mod memory;
mod threads;

pub use allocator::Allocator;
pub use error::ThreadsError;
pub use limit::{limited, time_limited};
pub use memory::{ResidentMemory, available_memory};
pub use threads::compute;
