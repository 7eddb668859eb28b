//! Differentiable log-probabilities and entropies of sampled tokens.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::tiles::{EXCLUDED, IdSets, Tile, Tiles};
use crate::{Head, Targets, backend};

/// Log-probability and entropy for each position.
#[derive(Clone, Debug)]
pub struct Scores {
    /// `log π(id)` under the sampling distribution, `[n]`.
    pub logprobs: Tensor<1>,
    /// `−Σ_v π(v) log π(v)` in nats, `[n]`.
    pub entropies: Tensor<1>,
}

/// Scores `targets` from hidden states, without storing the logits for all positions.
///
/// Logits are computed one tile at a time and dropped after use. The forward pass maintains running
/// maxima and sums of exponentials (online log-sum-exp; Milakov & Gimelshein 2018), and the
/// backward pass recomputes the tiles. Memory usage is therefore proportional to `n · width`
/// instead of `n · vocabulary`. If the head is frozen (LoRA), the forward pass also accumulates
/// `Σ_v π(v) W_v`, from which the gradient of `hidden` can be computed without a second pass, as in
/// attention (Rabe & Staats 2021). The gradient of the entropies still requires a second pass.
///
/// This is a single custom operation on every backend. On the CPU, f32 tiles are processed by
/// hand-written loops. In all other cases, the operations of the backend are used.
///
/// # Shapes
/// - hidden: `[n, width]`; receives gradients, as does the head
/// - result: `[n]` each. If an id could not have been sampled, its log-probability is about −1e30.
///
/// # Panics
/// Panics if the shapes are incompatible or if there are no positions.
pub fn score(hidden: Tensor<2>, head: &Head, targets: &Targets) -> Scores {
    let [positions, width] = hidden.dims();
    assert_eq!(positions, targets.ids().len(), "expected one target id per hidden state");
    assert_eq!([width, targets.vocabulary()], head.weight.dims(), "the head's weight");
    assert!(positions > 0, "there are no positions to score");
    let both = backend::fused_score(hidden, head, targets.clone()); // [n, 2]
    let column = |c: usize| both.clone().slice([0..positions, c..c + 1]).squeeze_dim(1);
    Scores { logprobs: column(0), entropies: column(1) }
}

/// Scores `targets` from logits using standard Burn operations. This allocates several tensors of
/// size `[n, vocabulary]`.
///
/// It is the reference implementation for [`score`].
///
/// # Shapes
/// - logits: `[n, vocabulary]`
///
/// # Panics
/// Panics if the shapes are incompatible.
pub fn score_logits(logits: Tensor<2>, targets: &Targets) -> Scores {
    let log_policy = log_policy(logits, targets); // [n, v]
    let device = log_policy.device();
    let ids: Vec<i32> = targets.ids().iter().map(|&id| id as i32).collect();
    let ids: Tensor<1, Int> = Tensor::from_data(ids.as_slice(), &device);
    let entropies = (log_policy.clone().exp() * log_policy.clone()).sum_dim(1).neg();
    let chosen = log_policy.gather(1, ids.unsqueeze_dim(1));
    Scores { logprobs: chosen.squeeze_dim(1), entropies: entropies.squeeze_dim(1) }
}

/// Computes `KL(π ‖ π_ref)` at each position over all ids that are not forbidden, `[n]`. The result
/// is differentiable with respect to both sets of logits. This allocates several tensors of size
/// `[n, vocabulary]`, so it is only suitable for small vocabularies.
///
/// Unlike in scoring, the distribution is not restricted to the ids kept by truncated sampling.
/// Otherwise, the probability of an id that is no longer kept could never recover, because it would
/// have no gradient. Also, the KL would always be 0 if only one id is kept.
///
/// # Shapes
/// - logits, ref_logits: `[n, vocabulary]`
///
/// # Panics
/// Panics if the shapes are incompatible.
pub fn exact_kl(logits: Tensor<2>, ref_logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    let targets = targets.clone().untruncated();
    let log_policy = log_policy(logits, &targets); // [n, v]
    let difference = log_policy.clone() - self::log_policy(ref_logits, &targets);
    (log_policy.exp() * difference).sum_dim(1).squeeze_dim(1)
}

/// Returns `log π(v)` for all ids at each position, `[n, vocabulary]`. [`score`] only returns the
/// values for the target ids.
///
/// # Panics
/// Panics if the shapes of logits and targets are incompatible.
pub fn all_logprobs(logits: Tensor<2>, targets: &Targets) -> Tensor<2> {
    log_policy(logits, targets)
}

/// Returns `log π(v)` for all ids under the sampling distribution, `[n, v]`. It is about −1e30 for
/// ids that could not have been sampled.
fn log_policy(logits: Tensor<2>, targets: &Targets) -> Tensor<2> {
    let [positions, vocabulary] = logits.dims();
    assert_eq!(
        [positions, vocabulary],
        [targets.ids().len(), targets.vocabulary()],
        "logits against targets"
    );
    let device = logits.device();
    let tile = Tiles::new(targets, 0..positions).next_tile(0..vocabulary);
    let flags = |sets: IdSets| -> Tensor<2, Bool> {
        Tensor::from_data(TensorData::new(sets.flags(positions), [positions, vocabulary]), &device)
    };
    let Tile { seen, excluded } = tile;
    let mut scaled = logits;
    if let (Some(penalty), Some(seen)) = (targets.penalty(), seen) {
        let factor = f64::from(penalty.factor);
        let positive = scaled.clone().greater_elem(0.0);
        // Multiply by the reciprocal: in Burn 0.22.1, the derivative of a division by a scalar is
        // computed in f32.
        let divided = scaled.clone() * (1.0 / factor);
        let penalised = (scaled.clone() * factor).mask_where(positive, divided);
        scaled = scaled.mask_where(flags(seen), penalised);
    }
    if targets.temperature() != 1.0 {
        scaled = scaled * (1.0 / f64::from(targets.temperature()));
    }
    // The value must be finite, because it is multiplied by a probability of 0 in the entropy. A
    // comparison is used because clamping would hide NaN.
    scaled = scaled.clone().mask_fill(scaled.lower_elem(EXCLUDED), EXCLUDED);
    if let Some(excluded) = excluded {
        scaled = scaled.mask_fill(flags(excluded), EXCLUDED);
    }
    log_softmax(scaled, 1)
}
