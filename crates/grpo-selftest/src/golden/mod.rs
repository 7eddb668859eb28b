//! Reference values: `advantages.json` and `losses.json` of TRL, and model folders with results of
//! transformers, PEFT and TRL.
//!
//! Errors name the file, the case, the key and what was expected.

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
