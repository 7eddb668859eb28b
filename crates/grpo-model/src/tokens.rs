//! Token ids of a batch, and which of its places hold tokens.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Sequences of different lengths in one rectangle.
///
/// Where tokens are is known from how the batch was made, and never read from the ids.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBatch {
    /// `[rows · columns]`
    ids: Vec<i32>,
    columns: usize,
    /// The columns of each row that hold tokens.
    spans: Arc<[Range<usize>]>,
}

/// On which side short rows are filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Behind the last token.
    Right,
    /// In front of the first one, so that all rows end in the same column.
    Left,
}

impl TokenBatch {
    /// One row for each sequence, as wide as the longest.
    ///
    /// # Panics
    /// Where a sequence is empty.
    pub fn new<'a>(rows: impl IntoIterator<Item = &'a [u32]>, padding: Padding) -> Self {
        let rows: Vec<&[u32]> = rows.into_iter().collect();
        assert!(rows.iter().all(|row| !row.is_empty()), "a row of a batch has at least one token");
        let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let spans: Arc<[Range<usize>]> = rows
            .iter()
            .map(|row| match padding {
                Padding::Right => 0..row.len(),
                Padding::Left => columns - row.len()..columns,
            })
            .collect();
        // Any id will do in the places between: no token sees them.
        let mut ids = vec![0; rows.len() * columns];
        for ((place, row), span) in ids.chunks_mut(columns.max(1)).zip(rows).zip(spans.iter()) {
            for (place, &id) in place[span.clone()].iter_mut().zip(row) {
                *place = id as i32;
            }
        }
        Self { ids, columns, spans }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.spans.len()
    }

    /// Columns: tokens of the longest row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The columns of each row that hold tokens.
    pub fn spans(&self) -> &Arc<[Range<usize>]> {
        &self.spans
    }

    /// Whether a row does not begin in the first column.
    pub(crate) fn is_left_padded(&self) -> bool {
        self.spans.iter().any(|span| span.start > 0)
    }

    /// `[rows · columns]`
    pub fn flat_ids(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(self.ids.clone(), [self.ids.len()]), device)
    }
}

impl<'a> FromIterator<&'a [u32]> for TokenBatch {
    /// Padded on the right.
    fn from_iter<I: IntoIterator<Item = &'a [u32]>>(rows: I) -> Self {
        Self::new(rows, Padding::Right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filled_up_on_the_side_that_was_asked_for() {
        let rows: [&[u32]; 3] = [&[1, 2, 3], &[4], &[5, 6]];
        let right = TokenBatch::new(rows, Padding::Right);
        assert_eq!(right.ids, [1, 2, 3, 4, 0, 0, 5, 6, 0]);
        assert_eq!(*right.spans, [0..3, 0..1, 0..2]);
        assert!(!right.is_left_padded());
        let left = TokenBatch::new(rows, Padding::Left);
        assert_eq!(left.ids, [1, 2, 3, 0, 0, 4, 0, 5, 6]);
        assert_eq!(*left.spans, [0..3, 2..3, 1..3]);
        assert!(left.is_left_padded());
        assert_eq!((left.rows(), left.columns()), (3, 3));
    }
}
