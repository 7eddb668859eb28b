//! Quartiles, and which of them a value is in.

use serde::{Deserialize, Serialize};

use crate::statistics::{quantile_of_sorted, sorted};

/// Values up to the first boundary, from there to the second, and so on: a value that equals a boundary is below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quartiles {
    /// Increasing. A stratum more than there are boundaries.
    pub boundaries: Vec<f64>,
}

impl Quartiles {
    /// The quartiles of `values`. Where many values are equal, so that two boundaries would be, strata are uneven, and
    /// some can be empty. No values are one stratum.
    pub fn new(values: &[f64]) -> Self {
        Self { boundaries: quantiles(values, &[0.25, 0.5, 0.75]) }
    }

    /// The same with equal edges merged, the least and the largest value among the edges: fewer strata, none of them empty
    /// by that.
    pub fn merged(values: &[f64]) -> Self {
        let mut edges = quantiles(values, &[0.0, 0.25, 0.5, 0.75, 1.0]);
        edges.dedup();
        let inner = edges.get(1..edges.len().max(2) - 1);
        Self { boundaries: inner.unwrap_or_default().to_vec() }
    }

    /// How many strata there are.
    pub fn strata(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// The stratum of each value.
    pub fn strata_of(&self, values: &[f64]) -> Vec<usize> {
        values.iter().map(|value| self.stratum(*value)).collect()
    }

    /// The stratum of a value, from 0.
    pub fn stratum(&self, value: f64) -> usize {
        self.boundaries.iter().take_while(|boundary| value > **boundary).count()
    }
}

/// None where there are no values.
fn quantiles(values: &[f64], fractions: &[f64]) -> Vec<f64> {
    let sorted = sorted(values);
    let fractions = fractions.iter().filter(|_| !sorted.is_empty());
    fractions.map(|fraction| quantile_of_sorted(&sorted, *fraction)).collect()
}
