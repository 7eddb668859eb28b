//! Learning-rate schedules.

use std::f64::consts::PI;

use grpo_data::ConfigFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::in_range;

/// Linear warm-up, followed by a decay to a floor. Any unit of time can be used, e.g. tokens or
/// updates, as long as it is used consistently.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Length of the warm-up phase.
    pub warmup: f64,
    /// Time at which the decay ends.
    pub total: f64,
    /// Lowest multiplier after warm-up.
    pub floor: f64,
    /// Shape of the decay.
    pub decay: Decay,
}

/// How the learning rate decreases after the warm-up. With `p` as the fraction of the remaining time
/// that has passed, the multiplier is:
///
/// Variants without settings are structs as well, so that unknown keys are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Decay {
    /// `max(floor, ½(1 + cos(π · p)))`, as in MolGPT.
    Cosine {},
    /// `floor + (1 − floor) · ½(1 + cos(π · p))`, with a warm-up of `(i + 1)/(warmup + 1)`, as in
    /// nanoGPT.
    CosineWithMinLr {},
    /// 1 until `p = stable`, then linear to `floor` (Hu et al. 2024, "MiniCPM").
    WarmupStableDecay {
        /// Fraction of the time after the warm-up in which the learning rate stays constant.
        #[serde(default = "default_stable")]
        stable: f64,
    },
    /// `max(floor, factorⁿ)`, where `n` is the number of times that the validation loss has reached
    /// a plateau, as in PyTorch's `ReduceLROnPlateau`.
    ReduceOnPlateau {
        /// Number of consecutive validations without an improvement that are tolerated.
        #[serde(default = "default_patience")]
        patience: u32,
        /// Factor applied at each plateau.
        #[serde(default = "default_factor")]
        factor: f64,
    },
}

fn default_stable() -> f64 {
    0.8
}

fn default_patience() -> u32 {
    3
}

fn default_factor() -> f64 {
    0.5
}

impl Default for Decay {
    fn default() -> Self {
        Self::Cosine {}
    }
}

impl Decay {
    /// Validates the settings of the key.
    pub(crate) fn check(&self, key: &str) -> Result<(), ConfigFault> {
        match *self {
            Self::Cosine {} | Self::CosineWithMinLr {} => Ok(()),
            Self::WarmupStableDecay { stable } => {
                in_range(&format!("{key}.stable"), stable, 0.0..=1.0)
            }
            Self::ReduceOnPlateau { factor, .. } => {
                in_range(&format!("{key}.factor"), factor, 1e-6..=1.0)
            }
        }
    }

    /// Rejects a decay that depends on validations.
    pub(crate) fn refuse_plateau(&self, key: &str) -> Result<(), ConfigFault> {
        match self {
            Self::ReduceOnPlateau { .. } => Err(ConfigFault::new(
                key,
                format!(
                    "{key} = \"reduce_on_plateau\" is only valid for supervised training, which has a validation loss"
                ),
                "use another decay",
            )),
            _ => Ok(()),
        }
    }
}

impl Schedule {
    /// Returns the multiplier for a step that begins at `before` and ends at `after`, which only
    /// [`Decay::CosineWithMinLr`] distinguishes.
    pub(crate) fn of_step(&self, before: f64, after: f64, plateaus: u32) -> f64 {
        match self.decay {
            Decay::CosineWithMinLr {} if before < self.warmup => after / (self.warmup + 1.0),
            Decay::CosineWithMinLr {} => self.multiplier(before, plateaus),
            _ => self.multiplier(after, plateaus),
        }
    }

    /// Returns the learning rate after `done` units, as a fraction of the maximum. `plateaus` is the
    /// number of times that the validation loss has reached a plateau.
    ///
    /// The multiplier is `done / warmup` during warm-up.
    pub fn multiplier(&self, done: f64, plateaus: u32) -> f64 {
        let Self { warmup, total, floor, decay } = *self;
        if done < warmup {
            return done / warmup;
        }
        let progress = ((done - warmup) / (total - warmup).max(1.0)).min(1.0);
        let cosine = 0.5 * (1.0 + (PI * progress).cos());
        match decay {
            Decay::Cosine {} => cosine.max(floor),
            Decay::CosineWithMinLr {} => floor + (1.0 - floor) * cosine,
            Decay::WarmupStableDecay { stable } if progress <= stable => 1.0,
            Decay::WarmupStableDecay { stable } => {
                1.0 - (1.0 - floor) * (progress - stable) / (1.0 - stable)
            }
            Decay::ReduceOnPlateau { factor, .. } => {
                factor.powi(plateaus.min(i32::MAX as u32) as i32).max(floor)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: Schedule, values: &[(f64, f64)]) {
        for &(done, expected) in values {
            let found = schedule.multiplier(done, 0);
            assert!((found - expected).abs() < 1e-12, "after {done}: {found}, expected {expected}");
        }
    }

    const COSINE: Schedule =
        Schedule { warmup: 100.0, total: 1100.0, floor: 0.1, decay: Decay::Cosine {} };

    #[test]
    fn warms_up_comes_down_and_stays_at_the_floor() {
        let quarter = 0.5 * (1.0 + std::f64::consts::FRAC_1_SQRT_2);
        let both = [(0.0, 0.0), (100.0, 1.0), (5000.0, 0.1)];
        check(COSINE, &both);
        check(COSINE, &[(50.0, 0.5), (350.0, quarter), (600.0, 0.5), (1099.0, 0.1)]);
        let with_min = Schedule { decay: Decay::CosineWithMinLr {}, ..COSINE };
        check(with_min, &both);
        check(with_min, &[(350.0, 0.1 + 0.9 * quarter), (600.0, 0.55)]);
        // The learning rate of step i < 100 is (i + 1)/101.
        assert_eq!(with_min.of_step(0.0, 1.0, 0), 1.0 / 101.0);
        assert_eq!(with_min.of_step(99.0, 100.0, 0), 100.0 / 101.0);
        assert_eq!(with_min.of_step(100.0, 101.0, 0), 1.0);
        assert_eq!(with_min.of_step(350.0, 351.0, 0), with_min.multiplier(350.0, 0));
        assert_eq!(COSINE.of_step(350.0, 351.0, 0), COSINE.multiplier(351.0, 0));
    }

    #[test]
    fn a_stable_phase_ends_with_a_linear_decay() {
        let decay = Decay::WarmupStableDecay { stable: 0.8 };
        let schedule = Schedule { decay, ..COSINE };
        check(schedule, &[(50.0, 0.5), (100.0, 1.0), (900.0, 1.0), (1000.0, 0.55), (1100.0, 0.1)]);
        check(
            Schedule { decay: Decay::WarmupStableDecay { stable: 1.0 }, ..schedule },
            &[(1100.0, 1.0)],
        );
    }

    #[test]
    fn plateaus_reduce_the_learning_rate_to_the_floor() {
        let decay = Decay::ReduceOnPlateau { patience: 3, factor: 0.5 };
        let schedule = Schedule { decay, ..COSINE };
        let found = [0, 1, 3, 4, u32::MAX].map(|plateaus| schedule.multiplier(800.0, plateaus));
        assert_eq!(found, [1.0, 0.5, 0.125, 0.1, 0.1]);
        assert_eq!(schedule.multiplier(50.0, 2), 0.5);
    }

    #[test]
    fn no_warmup_starts_at_the_top() {
        for decay in [Decay::Cosine {}, Decay::CosineWithMinLr {}] {
            let schedule = Schedule { warmup: 0.0, total: 10.0, floor: 0.0, decay };
            assert_eq!(schedule.multiplier(0.0, 0), 1.0);
            assert!(schedule.multiplier(10.0, 0) < 1e-12);
        }
    }
}
