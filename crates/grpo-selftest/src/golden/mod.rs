//! Values that TRL computed, read from `advantages.json` and `losses.json`, and model folders with what
//! transformers, PEFT and TRL computed of them.
//!
//! What is wrong with a file is said in one sentence with the file, the case, the key and what was expected.

mod advantages;
mod losses;
mod models;
mod read;
mod settings;

pub use advantages::{GoldenAdvantages, read_advantages};
pub use losses::{ExpectedLoss, GoldenLoss, read_losses};
pub use models::{
    AdamW, Expected, ExpectedAdapter, ExpectedBlanks, ExpectedScore, ExpectedSentence,
    ExpectedSequence, ExpectedStep, ExpectedTraining, ExpectedVector, GoldenModel,
    TrainingSettings, read_models,
};
