//! Learning-rate schedules.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// Linear warm-up, followed by a half cosine that decays to a floor. Any unit of time can be used,
/// e.g. tokens or updates, as long as it is used consistently.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmupCosine {
    /// Length of the warm-up phase.
    pub warmup: f64,
    /// Time at which the cosine ends.
    pub total: f64,
    /// Lowest multiplier after warm-up.
    pub floor: f64,
}

impl WarmupCosine {
    /// Returns the learning rate after `done` units, as a fraction of the maximum.
    ///
    /// The multiplier is `done / warmup` during warm-up and then
    /// `max(floor, ½(1 + cos(π · progress)))` (MolGPT).
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
