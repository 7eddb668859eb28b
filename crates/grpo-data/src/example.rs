//! Sequences for next-token prediction.

/// A sequence and the index of its first target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Token ids, including begin and end marks.
    pub ids: Vec<u32>,
    /// Index of the first token to predict, at least 1; earlier tokens (a prompt) are only read.
    pub first_target: usize,
}

impl Example {
    /// Creates an example that predicts all tokens but the first.
    pub fn of_all(ids: Vec<u32>) -> Self {
        Self { ids, first_target: 1 }
    }

    /// Returns the tokens to predict.
    pub fn targets(&self) -> &[u32] {
        self.ids.get(self.first_target..).unwrap_or(&[])
    }
}

/// Training and validation examples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examples {
    /// Training examples.
    pub train: Vec<Example>,
    /// Validation examples.
    pub validation: Vec<Example>,
}
