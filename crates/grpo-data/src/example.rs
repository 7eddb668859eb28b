//! Sequences to train on by next-token prediction.

/// A sequence, and where what is to be learned begins in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Token ids, begin and end marks among them.
    pub ids: Vec<u32>,
    /// The first token that is to be predicted; those in front of it (a prompt) are only seen. At least 1.
    pub first_target: usize,
}

impl Example {
    /// All of `ids` but the first is learned.
    pub fn of_all(ids: Vec<u32>) -> Self {
        Self { ids, first_target: 1 }
    }

    /// Tokens that are to be predicted.
    pub fn targets(&self) -> &[u32] {
        self.ids.get(self.first_target..).unwrap_or(&[])
    }
}

/// Examples to train on and to measure the loss on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examples {
    /// To train on.
    pub train: Vec<Example>,
    /// To measure the loss on.
    pub validation: Vec<Example>,
}
