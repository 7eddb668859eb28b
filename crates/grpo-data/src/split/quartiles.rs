//! Quartiles, and which of them a value is in.

use serde::{Deserialize, Serialize};

use super::statistics::{percentile, sorted};

/// Values up to the first boundary, from there to the second, and so on: a value that equals a boundary is below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quartiles {
    /// Increasing. A stratum more than there are boundaries.
    pub boundaries: Vec<f64>,
}

impl Quartiles {
    /// The quartiles of `values`. Where many values are equal, so that two boundaries would be, strata are uneven, and
    /// some can be empty. No values are one stratum.
    pub fn new(values: Vec<f64>) -> Self {
        Self { boundaries: percentiles(values, &[25.0, 50.0, 75.0]) }
    }

    /// The same with equal edges merged, the least and the largest value among the edges: fewer strata, none of them empty
    /// by that.
    pub fn merged(values: Vec<f64>) -> Self {
        let mut edges = percentiles(values, &[0.0, 25.0, 50.0, 75.0, 100.0]);
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
fn percentiles(values: Vec<f64>, percents: &[f64]) -> Vec<f64> {
    let sorted = sorted(values);
    let percents = percents.iter().filter(|_| !sorted.is_empty());
    percents.map(|percent| percentile(&sorted, *percent)).collect()
}
