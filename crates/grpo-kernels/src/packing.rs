//! Packed sequences without padding.

use std::ops::Range;
use std::sync::Arc;

/// Describes how sequences are concatenated along the rows of a matrix and which tokens can see
/// each other.
///
/// This is the variable-length layout used by FlashAttention (docs/decisions/0013), extended with
/// continuations. A sequence may continue an earlier one, so that e.g. the completions of a group
/// can share a single copy of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    causal: bool,
    sequences: Arc<[Sequence]>,
}

/// The rows of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Row range. It starts where the previous sequence ends.
    pub rows: Range<usize>,
    /// Index of the earlier sequence that this one continues. That sequence can't be a continuation
    /// itself.
    pub behind: Option<usize>,
}

/// Attention head layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads. Each is shared by `heads / kv_heads` adjacent query heads.
    pub kv_heads: usize,
    /// Number of columns per head.
    pub width: usize,
}

impl Heads {
    /// Returns the number of query columns.
    pub fn query_columns(&self) -> usize {
        self.heads * self.width
    }

    /// Returns the number of key columns, which equals the number of value columns.
    pub fn key_columns(&self) -> usize {
        self.kv_heads * self.width
    }
}

impl Packing {
    /// Creates a packing. If `causal` is set, tokens can't see later tokens.
    ///
    /// # Panics
    /// Panics if the rows are not contiguous starting at 0, if a sequence is empty, or if a
    /// continuation is invalid.
    pub fn new(sequences: impl Into<Arc<[Sequence]>>, causal: bool) -> Self {
        let sequences = sequences.into();
        let mut next = 0;
        for (index, sequence) in sequences.iter().enumerate() {
            let Range { start, end } = sequence.rows;
            assert!(start == next && end > start, "sequence {index} has rows {start}..{end}");
            next = end;
            if let Some(first) = sequence.behind {
                let can_be_continued = first < index && sequences[first].behind.is_none();
                assert!(can_be_continued, "sequence {index} cannot continue sequence {first}");
            }
        }
        Self { causal, sequences }
    }

    /// Creates a packing of independent sequences with the given lengths.
    pub fn of_lengths(lengths: impl IntoIterator<Item = usize>, causal: bool) -> Self {
        let mut start = 0;
        let sequence = |length: usize| {
            let rows = start..start + length;
            start = rows.end;
            Sequence { rows, behind: None }
        };
        Self::new(lengths.into_iter().map(sequence).collect::<Vec<_>>(), causal)
    }

    /// Returns whether attention is causal.
    pub fn is_causal(&self) -> bool {
        self.causal
    }

    /// Returns the sequences in row order.
    pub fn sequences(&self) -> &[Sequence] {
        &self.sequences
    }

    /// Returns the total number of rows.
    pub fn rows(&self) -> usize {
        self.sequences.last().map_or(0, |sequence| sequence.rows.end)
    }

    /// Returns the row range of the sequence continued by `index`, or an empty range if `index` does
    /// not continue a sequence.
    pub fn prefix(&self, index: usize) -> Range<usize> {
        self.sequences[index].behind.map_or(0..0, |first| self.sequences[first].rows.clone())
    }

    /// Returns the position of each row within its sequence. The prefix of a continuation counts.
    pub fn positions(&self) -> Vec<usize> {
        let of = |index: usize| {
            let first = self.prefix(index).len();
            first..first + self.sequences[index].rows.len()
        };
        (0..self.sequences.len()).flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_behind_what_a_sequence_continues() {
        let sequence = |rows, behind| Sequence { rows, behind };
        let sequences =
            vec![sequence(0..3, None), sequence(3..5, Some(0)), sequence(5..6, Some(0))];
        let packing = Packing::new(sequences, true);
        assert_eq!(packing.rows(), 6);
        assert_eq!(packing.positions(), [0, 1, 2, 3, 4, 3]);
        assert_eq!(packing.prefix(0), 0..0);
        assert_eq!(packing.prefix(2), 0..3);
        assert_eq!(Packing::of_lengths([2, 3], true).positions(), [0, 1, 0, 1, 2]);
    }

    #[test]
    #[should_panic(expected = "sequence 1 has rows 3..4")]
    fn rows_without_a_sequence() {
        let rows = [0..2, 3..4].map(|rows| Sequence { rows, behind: None });
        Packing::new(rows, true);
    }

    #[test]
    #[should_panic(expected = "sequence 2 cannot continue sequence 1")]
    fn a_continuation_is_not_continued() {
        let sequences = [(0..2, None), (2..3, Some(0)), (3..4, Some(1))];
        Packing::new(sequences.map(|(rows, behind)| Sequence { rows, behind }), true);
    }
}
