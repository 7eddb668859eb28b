//! Ranks with ties.

/// The ranks of a list of numbers.
pub(super) struct Ranks {
    /// The rank of each number, starting at 1. Ties have the mean of their ranks.
    pub(super) ranks: Vec<f64>,
    /// Σ t³ − t over all groups of t tied numbers. It is 0 if and only if there are no ties.
    pub(super) tie_term: f64,
}

impl Ranks {
    pub(super) fn new(numbers: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
        let mut ranks = vec![0.0; numbers.len()];
        let (mut first, mut tie_term) = (0.0, 0.0);
        for equal in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
            let count = equal.len() as f64;
            // The mean of the ranks `first + 1` to `first + count`.
            equal.iter().for_each(|&index| ranks[index] = first + (count + 1.0) / 2.0);
            first += count;
            tie_term += count.powi(3) - count;
        }
        Self { ranks, tie_term }
    }
}
