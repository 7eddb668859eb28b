#![doc = include_str!("../README.md")]

mod allocator;
mod memory;
mod threads;

pub use memory::ResidentMemory;
pub use mimalloc::MiMalloc as Allocator;
pub use threads::{ThreadsError, compute};
