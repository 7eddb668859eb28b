//! Quartiles, and which of them a value is in.

use serde::{Deserialize, Serialize};

/// The value below which `percent` of all lie, interpolated linearly between the two nearest (numpy's `linear`). `sorted`
/// is not empty.
pub(super) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let place = percent / 100.0 * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

pub(super) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Values up to the first boundary, from there to the second, and so on: a value that equals a boundary is below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quartiles {
    /// Increasing. A stratum more than there are boundaries.
    pub boundaries: Vec<f64>,
}

impl Quartiles {
    /// The quartiles of `values`. Where many values are equal, so that two boundaries would be, strata are uneven, and
    /// some can be empty.
    ///
    /// # Panics
    /// If there are no values.
    pub fn of(values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "no values have no quartiles");
        let sorted = sorted(values);
        Self { boundaries: [25.0, 50.0, 75.0].map(|percent| percentile(&sorted, percent)).into() }
    }

    /// The same with equal edges merged, the least and the largest value among the edges: fewer strata, none of them empty
    /// by that.
    ///
    /// # Panics
    /// If there are no values.
    pub fn merged(values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "no values have no quartiles");
        let sorted = sorted(values);
        let mut edges =
            [0.0, 25.0, 50.0, 75.0, 100.0].map(|percent| percentile(&sorted, percent)).to_vec();
        edges.dedup();
        let inner = 1..edges.len().max(2) - 1;
        Self { boundaries: edges[inner].to_vec() }
    }

    /// How many strata there are.
    pub fn strata(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// The stratum of a value, from 0.
    pub fn stratum(&self, value: f64) -> usize {
        self.boundaries.iter().take_while(|boundary| value > **boundary).count()
    }
}
