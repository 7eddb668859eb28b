#![doc = include_str!("../README.md")]

mod allocator;
mod error;
mod memory;
mod threads;

pub use error::ThreadsError;
pub use memory::{ResidentMemory, available_memory};
pub use mimalloc::MiMalloc as Allocator;
pub use threads::compute;
