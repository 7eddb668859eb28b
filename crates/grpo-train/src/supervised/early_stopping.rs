//! Early stopping.

use serde::{Deserialize, Serialize};

use crate::error::in_range;
use grpo_data::ConfigFault;

/// Early stopping settings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EarlyStopping {
    /// Number of consecutive validations with an improvement below `min_gain` after which the run
    /// stops. 0 disables early stopping.
    pub patience: u32,
    /// Minimum decrease in loss that counts as an improvement.
    pub min_gain: f64,
}

impl EarlyStopping {
    /// Validates the settings. `section` is the name of the configuration section.
    ///
    /// # Errors
    /// Returns an error if `min_gain` is out of range or has no effect.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        in_range(&format!("{section}.min_gain"), self.min_gain, 0.0..=f64::MAX)?;
        match self.min_gain > 0.0 && self.patience == 0 {
            true => Err(ConfigFault::new(
                format!("{section}.min_gain"),
                format!("{section}.min_gain has no effect with {section}.patience = 0"),
                format!("set {section}.patience, or remove min_gain"),
            )),
            false => Ok(()),
        }
    }
}

/// Validation history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Validations {
    /// Number of steps at the lowest loss, and the loss itself.
    pub(super) best: Option<(u64, f64)>,
    /// Loss at the last validation that counted as an improvement.
    counted: Option<f64>,
    /// Number of validations since the last improvement.
    since: u32,
    /// Number of validations since the last improvement or plateau.
    #[serde(default, skip_serializing_if = "is_zero")]
    waited: u32,
    /// Number of plateaus.
    #[serde(default, skip_serializing_if = "is_zero")]
    plateaus: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Validations {
    /// Records a validation after `steps` optimizer steps. Returns whether its loss is the lowest
    /// so far.
    pub(super) fn observe(&mut self, steps: u64, loss: f64, stopping: &EarlyStopping) -> bool {
        let is_best = self.best.is_none_or(|(_, best)| loss < best);
        if is_best {
            self.best = Some((steps, loss));
        }
        // Compare with the last improvement, not the last validation, so that small gains add up.
        let gains = |counted: f64| loss < counted && loss <= counted - stopping.min_gain;
        if self.counted.is_none_or(gains) {
            (self.counted, self.since) = (Some(loss), 0);
        } else {
            self.since += 1;
        }
        is_best
    }

    /// Counts a plateau if more than `patience` validations in a row brought no improvement. Must be
    /// called after each validation.
    pub(super) fn count_plateau(&mut self, patience: u32) {
        self.waited = if self.since == 0 { 0 } else { self.waited + 1 };
        if self.waited > patience {
            (self.waited, self.plateaus) = (0, self.plateaus + 1);
        }
    }

    /// Returns the number of plateaus so far.
    pub(super) fn plateaus(&self) -> u32 {
        self.plateaus
    }

    /// Returns the best validation if the patience is exhausted.
    pub(super) fn exhausted(&self, stopping: &EarlyStopping) -> Option<(u64, f64)> {
        self.best.filter(|_| stopping.patience > 0 && self.since >= stopping.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The step in which training ended, followed by the step and loss of the best validation.
    type Ending = (u64, (u64, f64));

    /// Returns which validations were the best so far, and how the run ended.
    fn course(patience: u32, min_gain: f64, losses: &[f64]) -> (Vec<bool>, Option<Ending>) {
        let stopping = EarlyStopping { patience, min_gain };
        stopping.check("pretrain").unwrap();
        let (mut validations, mut best) = (Validations::default(), Vec::new());
        for (step, &loss) in (10..).step_by(10).zip(losses) {
            best.push(validations.observe(step, loss, &stopping));
            if let Some(kept) = validations.exhausted(&stopping) {
                return (best, Some((step, kept)));
            }
        }
        (best, None)
    }

    #[test]
    fn patience_ends_a_training_that_gains_nothing() {
        // The fourth loss is the lowest, but the improvement is too small to count.
        let losses = [2.0, 2.1, 2.05, 1.995, 1.9, 1.0];
        let (best, ended) = course(3, 0.01, &losses);
        assert_eq!(best, [true, false, false, true]);
        assert_eq!(ended, Some((40, (40, 1.995))));
        // Without patience, a run never ends early.
        let (best, ended) = course(0, 0.0, &losses);
        assert_eq!((best, ended), (vec![true, false, false, true, true, true], None));
        // An equal loss does not count as an improvement.
        let (best, ended) = course(2, 0.0, &[1.0; 5]);
        assert_eq!((best, ended), (vec![true, false, false], Some((30, (10, 1.0)))));
    }

    /// PyTorch 2.15's `ReduceLROnPlateau(patience=1, threshold=0)` reduces after the same validations.
    #[test]
    fn plateaus_follow_each_other() {
        let (mut validations, stopping) = (Validations::default(), EarlyStopping::default());
        let losses = [2.0, 2.0, 2.1, 1.9, 2.0, 2.0, 1.9, 2.0, 1.8, 1.7];
        let plateaus = losses.map(|loss| {
            validations.observe(1, loss, &stopping);
            validations.count_plateau(1);
            validations.plateaus()
        });
        assert_eq!(plateaus, [0, 0, 1, 1, 1, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn small_gains_add_up() {
        let losses: Vec<f64> = (0..12).map(|i| 2.0 - 0.006 * f64::from(i)).collect();
        assert_eq!(course(2, 0.01, &losses), (vec![true; 12], None));
        assert_eq!(course(1, 0.01, &losses).1, Some((20, (20, 1.994))));
    }
}
