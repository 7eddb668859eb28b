//! What the losses of evaluations mean for a training: which model is the best, and when it is enough.

use super::{LimitAction, LossLimits, PretrainConfig, PretrainEnding};

/// The evaluations so far.
pub(super) struct Watch {
    patience: u32,
    min_gain: f64,
    limits: Option<LossLimits>,
    /// Steps that were done at the lowest loss, and that loss.
    best: Option<(u64, f64)>,
    /// The last loss that was lower by enough.
    counted: f64,
    /// Evaluations since then.
    since: u32,
    /// Whether it was said that each limit is passed.
    is_said: [bool; 3],
}

/// What an evaluation means.
pub(super) struct Seen {
    pub(super) is_best: bool,
    pub(super) warnings: Vec<String>,
    pub(super) ending: Option<PretrainEnding>,
}

impl Watch {
    pub(super) fn new(config: &PretrainConfig) -> Self {
        Self {
            patience: config.patience,
            min_gain: config.min_gain,
            limits: config.limits,
            best: None,
            counted: f64::INFINITY,
            since: 0,
            is_said: [false; 3],
        }
    }

    /// Takes note of the evaluation after `step` optimizer steps.
    pub(super) fn observe(&mut self, step: u64, train_loss: f64, eval_loss: f64) -> Seen {
        let is_best = self.best.is_none_or(|(_, best)| eval_loss < best);
        if is_best {
            self.best = Some((step, eval_loss));
        }
        // Against the last that counted, so that many small gains are a gain.
        if eval_loss < self.counted && eval_loss <= self.counted - self.min_gain {
            (self.counted, self.since) = (eval_loss, 0);
        } else {
            self.since += 1;
        }
        let mut warnings = Vec::new();
        let beyond = self.beyond(step, train_loss, eval_loss);
        let mut ending = None;
        if !beyond.is_empty() {
            match self.limits.map(|limits| limits.action) {
                Some(LimitAction::Stop) => {
                    let messages: Vec<String> =
                        beyond.into_iter().map(|(_, message)| message).collect();
                    ending = Some(PretrainEnding::Limit { message: messages.join("; ") });
                }
                _ => {
                    for (limit, message) in beyond {
                        if !std::mem::replace(&mut self.is_said[limit], true) {
                            warnings.push(message);
                        }
                    }
                }
            }
        }
        if let (None, Some(best)) = (&ending, self.best)
            && self.patience > 0
            && self.since >= self.patience
        {
            ending = Some(PretrainEnding::NoGain { step, best });
        }
        Seen { is_best, warnings, ending }
    }

    /// The limits that are passed, by their places, and what there is to say of each.
    fn beyond(&self, step: u64, train_loss: f64, eval_loss: f64) -> Vec<(usize, String)> {
        let Some(limits) = self.limits else { return Vec::new() };
        let gap = eval_loss - train_loss;
        let mut beyond = Vec::new();
        if let Some(max) = limits.max_gap.filter(|&max| gap > max) {
            beyond.push((0, format!("after step {step} the validation loss {eval_loss:.4} is {gap:.4} above the training loss {train_loss:.4}, more than pretrain.limits.max_gap = {max}: the model learns its examples by heart; lower the learning rate or lora.rank, or raise dropout")));
        }
        if let Some(min) = limits.min_valid_loss.filter(|&min| eval_loss < min) {
            beyond.push((1, format!("after step {step} the validation loss {eval_loss:.4} is below pretrain.limits.min_valid_loss = {min}: are validation examples among those that are trained on?")));
        }
        if let Some(max) = limits.max_valid_loss.filter(|&max| eval_loss > max) {
            beyond.push((2, format!("after step {step} the validation loss {eval_loss:.4} is above pretrain.limits.max_valid_loss = {max}")));
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(patience: u32, min_gain: f64, limits: Option<LossLimits>) -> PretrainConfig {
        let config = serde_json::json!({
            "epochs": 1, "batch_size": 1, "patience": patience, "min_gain": min_gain,
            "limits": limits, "optimizer": {"learning_rate": 1e-3},
        });
        let config: PretrainConfig = serde_json::from_value(config).unwrap();
        config.check().unwrap();
        config
    }

    /// Which of the losses were the best so far, and the step that the training ended with.
    fn course(
        config: &PretrainConfig,
        losses: &[f64],
    ) -> (Vec<bool>, Option<(u64, PretrainEnding)>) {
        let mut watch = Watch::new(config);
        let mut best = Vec::new();
        for (step, &loss) in (10..).step_by(10).zip(losses) {
            let seen = watch.observe(step, loss, loss);
            best.push(seen.is_best);
            if let Some(ending) = seen.ending {
                return (best, Some((step, ending)));
            }
        }
        (best, None)
    }

    #[test]
    fn patience_ends_a_training_that_gains_nothing() {
        // The fourth is the lowest, and too little lower than the first to count.
        let losses = [2.0, 2.1, 2.05, 1.995, 1.9, 1.0];
        let (best, ended) = course(&config(3, 0.01, None), &losses);
        assert_eq!(best, [true, false, false, true]);
        assert_eq!(ended, Some((40, PretrainEnding::NoGain { step: 40, best: (40, 1.995) })));
        // As the original, which read its settings and used them nowhere.
        let (best, ended) = course(&config(0, 0.0, None), &losses);
        assert_eq!((best, ended), (vec![true, false, false, true, true, true], None));
        // An equal loss is no gain.
        let (best, ended) = course(&config(2, 0.0, None), &[1.0; 5]);
        assert_eq!(best, [true, false, false]);
        assert_eq!(ended, Some((30, PretrainEnding::NoGain { step: 30, best: (10, 1.0) })));
    }

    #[test]
    fn small_gains_add_up() {
        let losses: Vec<f64> = (0..12).map(|i| 2.0 - 0.006 * f64::from(i)).collect();
        let (best, ended) = course(&config(2, 0.01, None), &losses);
        assert_eq!((best, ended), (vec![true; 12], None));
        let (_, ended) = course(&config(1, 0.01, None), &losses);
        assert_eq!(ended, Some((20, PretrainEnding::NoGain { step: 20, best: (20, 1.994) })));
    }

    fn limits(action: LimitAction) -> Option<LossLimits> {
        Some(LossLimits {
            max_gap: Some(0.3),
            min_valid_loss: Some(0.05),
            max_valid_loss: Some(2.0),
            action,
        })
    }

    #[test]
    fn a_limit_warns_once_or_ends() {
        let mut watch = Watch::new(&config(0, 0.0, limits(LimitAction::Warn)));
        let mut warned = |train, eval| {
            let seen = watch.observe(7, train, eval);
            assert_eq!(seen.ending, None);
            seen.warnings
        };
        assert_eq!(warned(1.5, 1.75), Vec::<String>::new());
        assert_eq!(warned(2.0, 2.0), Vec::<String>::new());
        let [gap] = &warned(1.5, 1.81)[..] else { panic!("one warning") };
        let expected = "after step 7 the validation loss 1.8100 is 0.3100 above the training loss 1.5000, more than pretrain.limits.max_gap = 0.3: ";
        assert!(gap.starts_with(expected), "{gap}");
        assert_eq!(warned(1.0, 1.9), Vec::<String>::new());
        assert_eq!(
            warned(1.0, 2.1),
            ["after step 7 the validation loss 2.1000 is above pretrain.limits.max_valid_loss = 2"]
        );
        let [low] = &warned(0.04, 0.04)[..] else { panic!("one warning") };
        assert!(low.contains(" is below pretrain.limits.min_valid_loss = 0.05: "), "{low}");

        let mut watch = Watch::new(&config(0, 0.0, limits(LimitAction::Stop)));
        let seen = watch.observe(3, 1.0, 2.5);
        let Some(PretrainEnding::Limit { message }) = seen.ending else { panic!("it ends") };
        assert!(message.starts_with("after step 3 ") && message.contains("; after step 3 "));
        assert!(seen.is_best && seen.warnings.is_empty());
    }

    #[test]
    fn a_gain_needs_patience_and_limits_are_some() {
        let refused = |keys: serde_json::Value| {
            let mut config = serde_json::json!({
                "epochs": 1, "batch_size": 1, "optimizer": {"learning_rate": 1e-3},
            });
            config.as_object_mut().unwrap().append(&mut keys.as_object().unwrap().clone());
            let config: PretrainConfig = serde_json::from_value(config).unwrap();
            config.check().unwrap_err().to_string()
        };
        assert!(refused(serde_json::json!({"min_gain": 0.01})).contains("patience = 0"));
        let nothing = serde_json::json!({"limits": {"action": "warn"}});
        assert!(refused(nothing).starts_with("pretrain.limits has no limit; "));
        let negative = serde_json::json!({"limits": {"action": "stop", "max_gap": -1.0}});
        assert_eq!(
            refused(negative),
            "pretrain.limits.max_gap = -1 is out of range; expected 0 or more"
        );
    }
}
