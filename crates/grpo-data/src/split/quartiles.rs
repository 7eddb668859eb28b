//! Stratification by quartiles.

use serde::{Deserialize, Serialize};

use crate::statistics::{percentile_of_sorted, sorted};

/// Strata separated by quartiles. A value equal to a boundary belongs to the stratum below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quartiles {
    /// Sorted boundaries. Their number is one less than the number of strata.
    pub boundaries: Vec<f64>,
}

impl Quartiles {
    /// Computes the quartiles of `values`. Repeated values can lead to strata of different sizes,
    /// some of them empty. If `values` is empty, there is a single stratum.
    pub fn new(values: &[f64]) -> Self {
        Self { boundaries: quantiles(values, &[0.25, 0.5, 0.75]) }
    }

    /// Like [`Self::new`], but merges equal boundaries and drops boundaries that are equal to the
    /// minimum or maximum.
    pub fn merged(values: &[f64]) -> Self {
        let mut edges = quantiles(values, &[0.0, 0.25, 0.5, 0.75, 1.0]);
        edges.dedup();
        let inner = edges.get(1..edges.len().max(2) - 1);
        Self { boundaries: inner.unwrap_or_default().to_vec() }
    }

    /// Returns the number of strata.
    pub fn strata(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// Returns the stratum of each value.
    pub fn strata_of(&self, values: &[f64]) -> Vec<usize> {
        values.iter().map(|value| self.stratum(*value)).collect()
    }

    /// Returns the stratum of a value, starting at 0.
    pub fn stratum(&self, value: f64) -> usize {
        self.boundaries.iter().take_while(|boundary| value > **boundary).count()
    }
}

/// Returns the quantiles for the given fractions. The result is empty if `values` is empty.
fn quantiles(values: &[f64], fractions: &[f64]) -> Vec<f64> {
    let sorted = sorted(values);
    let fractions = fractions.iter().filter(|_| !sorted.is_empty());
    fractions.map(|fraction| percentile_of_sorted(&sorted, *fraction)).collect()
}
