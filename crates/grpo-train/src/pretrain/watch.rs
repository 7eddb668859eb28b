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
