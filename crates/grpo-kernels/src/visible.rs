//! Key visibility in attention.

use std::ops::Range;
use std::sync::Arc;

/// The keys that each attention query can see.
///
/// The last query is aligned with the last key: with `q` queries and `k ≥ q` keys, query `i`
/// corresponds to column `i + k − q`. A block of new queries over a longer cache therefore needs no
/// mask.
///
/// A query without any visible keys is padding. It sees the key in its own column, which keeps its
/// row finite. The row is never used.
#[derive(Clone, Debug, PartialEq)]
pub struct Visible {
    /// Whether to hide the keys after each query. The last query is aligned with the last key.
    pub causal: bool,
    /// For each batch row, the range of columns that are not padding. `None` means there is no
    /// padding.
    pub tokens: Option<Arc<[Range<usize>]>>,
    /// Number of keys that a query sees at most, if attention is causal and has a window. At least 1.
    pub window: Option<usize>,
}

impl Visible {
    /// Makes all keys up to the query visible.
    pub fn causal() -> Self {
        Self { causal: true, tokens: None, window: None }
    }

    /// Makes all keys visible.
    pub fn all() -> Self {
        Self { causal: false, tokens: None, window: None }
    }

    /// Restricts visibility to keys that are not padding. `tokens` contains a column range for each
    /// batch row.
    #[must_use]
    pub fn within(self, tokens: impl Into<Arc<[Range<usize>]>>) -> Self {
        Self { tokens: Some(tokens.into()), ..self }
    }

    /// Returns the visible columns of each query in each batch row. The ranges are never empty.
    pub(crate) fn columns(&self, [batch, _, queries, keys]: [usize; 4]) -> Vec<Range<usize>> {
        let of_row = |row: usize| {
            let tokens = self.tokens.as_ref().map_or(0..keys, |tokens| tokens[row].clone());
            (keys - queries..keys).map(move |own| self.columns_of_query(own, &tokens))
        };
        (0..batch).flat_map(of_row).collect()
    }

    fn columns_of_query(&self, own: usize, tokens: &Range<usize>) -> Range<usize> {
        let end = if self.causal { tokens.end.min(own + 1) } else { tokens.end };
        let first = self.window.map_or(0, |window| (own + 1).saturating_sub(window));
        let start = tokens.start.max(first);
        if start < end { start..end } else { own..own + 1 }
    }

    /// Checks that the ranges match the shape of the scores.
    ///
    /// # Panics
    /// Panics if they don't match.
    pub(crate) fn assert_fits(&self, [batch, _, queries, keys]: [usize; 4]) {
        assert!(queries <= keys, "{queries} queries need at least as many keys, found {keys} keys");
        let Some(tokens) = &self.tokens else { return };
        assert_eq!(tokens.len(), batch, "expected one token range per row of the batch");
        for (row, range) in tokens.iter().enumerate() {
            let inside = range.start <= range.end && range.end <= keys;
            assert!(inside, "row {row}: token range {range:?} is outside {keys} keys");
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a batch of one row has one range")]
mod tests {
    use super::Visible;
    use std::ops::Range;

    /// Checks which of 6 keys are visible to each query.
    #[track_caller]
    fn check(visible: Visible, queries: usize, expect: &[Range<usize>]) {
        visible.assert_fits([1, 2, queries, 6]);
        assert_eq!(visible.columns([1, 2, queries, 6]), expect);
    }

    #[test]
    fn without_padding() {
        check(Visible::all(), 2, &[0..6, 0..6]);
        check(Visible::causal(), 1, &[0..6]);
        check(Visible::causal(), 3, &[0..4, 0..5, 0..6]);
    }

    #[test]
    fn with_padding() {
        check(Visible::all().within([1..4]), 2, &[1..4, 1..4]);
        check(Visible::causal().within([1..4]), 4, &[1..3, 1..4, 1..4, 1..4]);
        check(Visible::causal().within([1..4]), 5, &[1..2, 1..3, 1..4, 1..4, 1..4]);
    }

    #[test]
    fn a_query_that_would_see_nothing_sees_itself() {
        check(Visible::causal().within([4..6]), 4, &[2..3, 3..4, 4..5, 4..6]);
        check(Visible::all().within([3..3]), 2, &[4..5, 5..6]);
        check(Visible::causal().within([0..0]), 1, &[5..6]);
    }

    #[test]
    fn each_row_of_the_batch_has_its_own() {
        let visible = Visible::all().within(vec![0..2, 3..6]);
        assert_eq!(visible.columns([2, 1, 2, 6]), [0..2, 0..2, 3..6, 3..6]);
        assert_eq!(Visible::causal().columns([2, 1, 2, 3]), [0..2, 0..3, 0..2, 0..3]);
    }
}
