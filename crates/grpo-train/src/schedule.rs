//! Learning-rate schedules.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// Linear warm-up followed by a half cosine to a floor. Time has any unit (tokens or updates) that
/// is used consistently.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmupCosine {
    /// Length of the warm-up.
    pub warmup: f64,
    /// End of the cosine.
    pub total: f64,
    /// Lowest multiplier after the warm-up.
    pub floor: f64,
}

impl WarmupCosine {
    /// Returns the factor of the highest learning rate after `done` units.
    ///
    /// `done / warmup` during warm-up, then `max(floor, ½(1 + cos(π · progress)))` (MolGPT).
    pub fn multiplier(&self, done: f64) -> f64 {
        if done < self.warmup {
            return done / self.warmup;
        }
        let progress = ((done - self.warmup) / (self.total - self.warmup).max(1.0)).min(1.0);
        (0.5 * (1.0 + (PI * progress).cos())).max(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_comes_down_and_stays_at_the_floor() {
        let schedule = WarmupCosine { warmup: 100.0, total: 1100.0, floor: 0.1 };
        for (done, expected) in [
            (0.0, 0.0),
            (50.0, 0.5),
            (100.0, 1.0),
            (350.0, 0.5 * (1.0 + std::f64::consts::FRAC_1_SQRT_2)),
            (600.0, 0.5),
            (1099.0, 0.1),
            (5000.0, 0.1),
        ] {
            assert!((schedule.multiplier(done) - expected).abs() < 1e-12, "after {done}");
        }
    }

    #[test]
    fn no_warmup_starts_at_the_top() {
        let schedule = WarmupCosine { warmup: 0.0, total: 10.0, floor: 0.0 };
        assert_eq!(schedule.multiplier(0.0), 1.0);
        assert!(schedule.multiplier(10.0) < 1e-12);
    }
}
