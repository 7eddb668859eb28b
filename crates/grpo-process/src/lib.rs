#![doc = include_str!("../README.md")]

mod allocator;
mod memory;
mod threads;

pub use memory::{ResidentMemory, available_memory};
pub use mimalloc::MiMalloc as Allocator;
pub use threads::{ThreadsError, compute};
