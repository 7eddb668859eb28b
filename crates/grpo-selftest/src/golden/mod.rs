//! Reference values: `advantages.json` and `losses.json` from TRL, and model folders with results
//! from transformers, PEFT and TRL.
//!
//! Error messages name the file, the case, the key and the expected value.

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
