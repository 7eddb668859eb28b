//! Early stopping.

use serde::{Deserialize, Serialize};

use crate::error::in_range;
use grpo_data::ConfigFault;

/// Settings of early stopping.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EarlyStopping {
    /// Consecutive validations without a gain of at least `min_gain` after which the run ends; 0
    /// for never.
    pub patience: u32,
    /// Smallest decrease of the loss that counts as a gain.
    pub min_gain: f64,
}

impl EarlyStopping {
    /// Checks ranges; `section` is the name in the configuration.
    ///
    /// # Errors
    /// Returns an error if the gain is out of range or has no effect.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        in_range(&format!("{section}.min_gain"), self.min_gain, 0.0..=f64::MAX)?;
        match self.min_gain > 0.0 && self.patience == 0 {
            true => Err(ConfigFault::new(
                format!("{section}.min_gain"),
                format!(
                    "{section}.min_gain is what {section}.patience waits for, and patience = 0 waits for nothing"
                ),
                format!("set {section}.patience, or leave min_gain out"),
            )),
            false => Ok(()),
        }
    }
}

/// The validations so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Validations {
    /// Steps done at the lowest loss, and that loss.
    pub(super) best: Option<(u64, f64)>,
    /// The last loss that counted as a gain.
    counted: Option<f64>,
    /// Validations since then.
    since: u32,
}

impl Validations {
    /// Observes the loss after `steps` optimizer steps and returns whether it is the lowest so far.
    pub(super) fn observe(&mut self, steps: u64, loss: f64, stopping: &EarlyStopping) -> bool {
        let is_best = self.best.is_none_or(|(_, best)| loss < best);
        if is_best {
            self.best = Some((steps, loss));
        }
        // Compared with the last gain, so that several small improvements add up.
        let gains = |counted: f64| loss < counted && loss <= counted - stopping.min_gain;
        if self.counted.is_none_or(gains) {
            (self.counted, self.since) = (Some(loss), 0);
        } else {
            self.since += 1;
        }
        is_best
    }

    /// Returns the best validation if the run has waited long enough.
    pub(super) fn exhausted(&self, stopping: &EarlyStopping) -> Option<(u64, f64)> {
        self.best.filter(|_| stopping.patience > 0 && self.since >= stopping.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The step at which training ended, with the best validation and its loss.
    type Ending = (u64, (u64, f64));

    /// Returns which losses were the best so far, and the step and best validation at the end of
    /// the run.
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
        // The fourth loss is the lowest, but not by enough.
        let losses = [2.0, 2.1, 2.05, 1.995, 1.9, 1.0];
        let (best, ended) = course(3, 0.01, &losses);
        assert_eq!(best, [true, false, false, true]);
        assert_eq!(ended, Some((40, (40, 1.995))));
        // Without patience the run never ends early.
        let (best, ended) = course(0, 0.0, &losses);
        assert_eq!((best, ended), (vec![true, false, false, true, true, true], None));
        // An equal loss is no improvement.
        let (best, ended) = course(2, 0.0, &[1.0; 5]);
        assert_eq!((best, ended), (vec![true, false, false], Some((30, (10, 1.0)))));
    }

    #[test]
    fn small_gains_add_up() {
        let losses: Vec<f64> = (0..12).map(|i| 2.0 - 0.006 * f64::from(i)).collect();
        assert_eq!(course(2, 0.01, &losses), (vec![true; 12], None));
        assert_eq!(course(1, 0.01, &losses).1, Some((20, (20, 1.994))));
    }
}
