//! Training examples for next-token prediction.

use crate::{Mixture, Prefix};

/// A token sequence and the index of its first target.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// Conditions that the model reads before the ids.
    pub prefix: Prefix,
    /// Token ids, including begin and end tokens.
    pub ids: Vec<u32>,
    /// Index of the first token to predict, at least 1. Earlier tokens, e.g. a prompt, are context
    /// only.
    pub first_target: usize,
}

impl Example {
    /// Creates an example without conditions.
    pub fn new(ids: Vec<u32>, first_target: usize) -> Self {
        Self { prefix: Prefix::default(), ids, first_target }
    }

    /// Creates an example in which every token except the first is a target.
    pub fn of_all(ids: Vec<u32>) -> Self {
        Self::new(ids, 1)
    }

    /// Returns the target tokens.
    pub fn targets(&self) -> &[u32] {
        self.ids.get(self.first_target..).unwrap_or(&[])
    }
}

/// Training and validation examples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    /// Training examples.
    pub train: Vec<Example>,
    /// Validation examples.
    pub validation: Vec<Example>,
    /// How often the training examples of several files are used. `None` if each is used once per epoch.
    pub mixture: Option<Mixture>,
}

impl Examples {
    /// Creates examples of which each is used once per epoch.
    pub fn new(train: Vec<Example>, validation: Vec<Example>) -> Self {
        Self { train, validation, mixture: None }
    }

    /// Returns how often the training examples are used.
    ///
    /// # Panics
    /// Panics if their number does not fit in 32 bits.
    pub fn mixture(&self) -> Mixture {
        self.mixture.clone().unwrap_or_else(|| self.train.len().into())
    }
}
