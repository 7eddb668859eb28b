//! Validation loss limits.

use super::{LimitAction, LossLimits};
use crate::supervised::Review;

impl LossLimits {
    /// Checks the losses after `step` optimizer steps. `told` records the limits that have already
    /// triggered a warning, so that each warning is shown only once.
    pub(super) fn review(
        &self,
        step: u64,
        train_loss: f64,
        eval_loss: f64,
        told: &mut [bool; 3],
    ) -> Review {
        let exceeded = self.exceeded(step, train_loss, eval_loss);
        match self.action {
            LimitAction::Stop => {
                let messages: Vec<String> =
                    exceeded.into_iter().map(|(_, message)| message).collect();
                let stop = (!messages.is_empty()).then(|| messages.join("; "));
                Review { stop, ..Review::default() }
            }
            LimitAction::Warn => {
                let first = |(limit, message)| {
                    (!std::mem::replace(&mut told[limit], true)).then_some(message)
                };
                let warnings = exceeded.into_iter().filter_map(first).collect();
                Review { warnings, ..Review::default() }
            }
        }
    }

    /// Returns the index of each limit that is exceeded, along with a message.
    fn exceeded(&self, step: u64, train_loss: f64, eval_loss: f64) -> Vec<(usize, String)> {
        let gap = eval_loss - train_loss;
        let mut exceeded = Vec::new();
        if let Some(max) = self.max_gap.filter(|&max| gap > max) {
            exceeded.push((0, format!("after step {step} the validation loss {eval_loss:.4} is {gap:.4} above the training loss {train_loss:.4}, more than pretrain.limits.max_gap = {max}: the model memorises its examples; lower the learning rate or lora.rank, or raise dropout")));
        }
        if let Some(min) = self.min_valid_loss.filter(|&min| eval_loss < min) {
            exceeded.push((1, format!("after step {step} the validation loss {eval_loss:.4} is below pretrain.limits.min_valid_loss = {min}: are validation examples in the training set?")));
        }
        if let Some(max) = self.max_valid_loss.filter(|&max| eval_loss > max) {
            exceeded.push((2, format!("after step {step} the validation loss {eval_loss:.4} is above pretrain.limits.max_valid_loss = {max}")));
        }
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(action: LimitAction) -> LossLimits {
        LossLimits {
            max_gap: Some(0.3),
            min_valid_loss: Some(0.05),
            max_valid_loss: Some(2.0),
            action,
        }
    }

    #[test]
    fn a_limit_warns_once_or_ends() {
        let (limited, mut told) = (limits(LimitAction::Warn), [false; 3]);
        let mut warned = |train, eval| {
            let review = limited.review(7, train, eval, &mut told);
            assert_eq!(review.stop, None);
            review.warnings
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

        let review = limits(LimitAction::Stop).review(3, 1.0, 2.5, &mut [false; 3]);
        let message = review.stop.expect("it ends");
        assert!(message.starts_with("after step 3 ") && message.contains("; after step 3 "));
        assert!(review.warnings.is_empty());
    }
}
