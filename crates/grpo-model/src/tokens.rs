//! Batches of token IDs.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor, TensorData};
use grpo_data::Prefix;
use grpo_kernels::{Packing, Sequence};

/// A batch of sequences with arbitrary lengths, concatenated without padding.
///
/// A sequence may continue an earlier one. For example, several completions can share a prompt,
/// which is then computed only once. The result is the same as for separate sequences that each
/// contain a copy of the prompt.
///
/// A sequence that is not a continuation can be preceded by conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenBatch {
    ids: Vec<i32>,
    sequences: Vec<Sequence>,
    /// Conditions of each sequence.
    prefixes: Vec<Prefix>,
}

impl TokenBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sequence and returns its index.
    ///
    /// # Panics
    /// Panics if `ids` is empty.
    pub fn push(&mut self, ids: &[u32]) -> usize {
        self.add(Prefix::default(), ids, None)
    }

    /// Adds a sequence that is preceded by conditions and returns its index.
    ///
    /// # Panics
    /// Panics if `ids` is empty.
    pub fn push_conditional(&mut self, prefix: &Prefix, ids: &[u32]) -> usize {
        self.add(prefix.clone(), ids, None)
    }

    /// Adds a continuation of the sequence `first` and returns its index.
    ///
    /// # Panics
    /// Panics if `ids` is empty, or if `first` does not exist or is a continuation itself.
    pub fn push_behind(&mut self, first: usize, ids: &[u32]) -> usize {
        let can_be_continued =
            self.sequences.get(first).is_some_and(|first| first.behind.is_none());
        assert!(can_be_continued, "sequence {first} of {} cannot be continued", self.sequences());
        self.add(Prefix::default(), ids, Some(first))
    }

    fn add(&mut self, prefix: Prefix, ids: &[u32], behind: Option<usize>) -> usize {
        assert!(!ids.is_empty(), "every sequence of a batch must have at least one token");
        let start = self.ids.len();
        self.ids.extend(ids.iter().map(|&id| id as i32));
        self.sequences.push(Sequence { rows: start..self.ids.len(), behind });
        self.prefixes.push(prefix);
        self.sequences.len() - 1
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Returns the total number of tokens, which equals the number of rows in a model's output.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Returns the range of rows that belong to the sequence `index`.
    pub fn rows(&self, index: usize) -> Range<usize> {
        self.sequences[index].rows.clone()
    }

    /// Returns the ID in a row.
    pub(crate) fn id(&self, row: usize) -> u32 {
        self.ids[row] as u32
    }

    /// Returns the length of each sequence in tokens.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().map(|sequence| sequence.rows.len())
    }

    /// Returns the conditions of each sequence.
    pub(crate) fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }

    /// Returns the index of the sequence that each sequence continues.
    pub(crate) fn behind(&self) -> impl Iterator<Item = Option<usize>> {
        self.sequences.iter().map(|sequence| sequence.behind)
    }

    /// Returns whether any sequence continues another one.
    pub(crate) fn has_continuations(&self) -> bool {
        self.sequences.iter().any(|sequence| sequence.behind.is_some())
    }

    /// Returns a description of which tokens can see each other.
    pub(crate) fn packing(&self, causal: bool) -> Packing {
        Packing::new(self.sequences.as_slice(), causal)
    }

    /// Returns all IDs as a tensor of shape `[tokens]`.
    pub fn flat_ids(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(self.ids.clone(), [self.ids.len()]), device)
    }
}

impl<'a> FromIterator<&'a [u32]> for TokenBatch {
    /// Creates a batch of independent sequences.
    fn from_iter<I: IntoIterator<Item = &'a [u32]>>(sequences: I) -> Self {
        let mut batch = Self::new();
        sequences.into_iter().for_each(|ids| {
            batch.push(ids);
        });
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_stand_one_behind_another() {
        let mut batch: TokenBatch = [[1, 2, 3].as_slice(), &[4]].into_iter().collect();
        assert_eq!(batch.push_behind(1, &[5, 6]), 2);
        assert_eq!((batch.sequences(), batch.tokens()), (3, 6));
        assert_eq!(batch.ids, [1, 2, 3, 4, 5, 6]);
        assert_eq!(batch.rows(2), 4..6);
        assert_eq!(batch.packing(true).positions(), [0, 1, 2, 0, 1, 2]);
        assert_eq!(batch.lengths().collect::<Vec<_>>(), [3, 1, 2]);
        assert!(batch.has_continuations());
    }

    #[test]
    #[should_panic(expected = "sequence 1 of 2 cannot be continued")]
    fn a_continuation_is_not_continued() {
        let mut batch = TokenBatch::from_iter([[1].as_slice()]);
        batch.push_behind(0, &[2]);
        batch.push_behind(1, &[3]);
    }
}
