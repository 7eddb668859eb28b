//! Gradient accumulation over micro-batches.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use grpo_core::accumulate;
use grpo_model::{Forward, LanguageModel};

/// How to split a batch into micro-batches.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Maximum number of tokens per micro-batch, or `None` for no limit.
    pub tokens: Option<usize>,
    /// Whether transformer blocks are recomputed during the backward pass.
    pub checkpointing: bool,
}

/// Accumulated gradients.
#[derive(Default)]
pub struct GradientSum {
    sum: Option<GradientsParams>,
    /// Total time spent in [`Self::add_of`].
    backward: Duration,
}

impl GradientSum {
    /// Creates a sum that already has gradients, and the time that it took to compute them.
    pub(crate) fn from_total(total: GradientsParams, backward: Duration) -> Self {
        Self { sum: Some(total), backward }
    }

    /// Adds the gradients of a micro-batch.
    pub fn add<M: Module>(&mut self, model: &M, part: GradientsParams) {
        self.sum = Some(accumulate(model, self.sum.take(), part));
    }

    /// Computes the gradients of a loss and adds them.
    pub fn add_of<M: LanguageModel>(&mut self, forward: Forward<M>, loss: Tensor<1>, model: &M) {
        let started = Instant::now();
        for part in forward.backward(loss, model) {
            self.add(model, part);
        }
        self.backward += started.elapsed();
    }

    /// Returns the total time spent in [`Self::add_of`].
    pub fn backward(&self) -> Duration {
        self.backward
    }

    /// Returns the accumulated gradients, which are empty if none were added.
    pub fn finish(self) -> GradientsParams {
        self.sum.unwrap_or_default()
    }
}

/// Splits a batch into micro-batches of at most `tokens` tokens. An item that exceeds the limit
/// gets a micro-batch to itself.
pub fn by_tokens<T>(batch: &[T], tokens: Option<usize>, length: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let most = tokens.unwrap_or(usize::MAX);
    let (mut parts, mut first, mut sum) = (Vec::new(), 0, 0);
    for (place, item) in batch.iter().enumerate() {
        let own = length(item);
        if place > first && sum + own > most {
            parts.push(&batch[first..place]);
            (first, sum) = (place, 0);
        }
        sum += own;
    }
    parts.push(&batch[first..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_at_most_so_many_tokens() {
        let check = |tokens, expected: &[&[usize]]| {
            assert_eq!(by_tokens(&[3, 4, 9, 1, 1], tokens, |&length| length), expected);
        };
        check(None, &[&[3, 4, 9, 1, 1]]);
        check(Some(7), &[&[3, 4], &[9], &[1, 1]]);
        check(Some(1), &[&[3], &[4], &[9], &[1], &[1]]);
    }
}
