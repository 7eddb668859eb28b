//! The process itself: its allocator and its threads, set up before it begins, and the memory that it holds.
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOCATOR: grpo_process::Allocator = grpo_process::Allocator;
//!
//! fn main() -> Result<(), grpo_process::ThreadsError> {
//!     grpo_process::compute(None, || println!("on a thread of the pool"))
//! }
//! ```

mod allocator;
mod memory;
mod threads;

pub use memory::ResidentMemory;
pub use mimalloc::MiMalloc as Allocator;
pub use threads::{ThreadsError, compute};
