//! Values that TRL computed, read from `advantages.json` and `losses.json`.
//!
//! What is wrong with a file is said in one sentence with the file, the case, the key and what was expected.

mod advantages;
mod losses;
mod read;
mod settings;

pub use advantages::{GoldenAdvantages, read_advantages};
pub use losses::{ExpectedLoss, GoldenLoss, read_losses};
