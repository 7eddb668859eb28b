//! Differentiable log-probabilities and entropies of sampled tokens.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use crate::tiles::{EXCLUDED, Tile, Tiles};
use crate::{Head, Targets, backend};

/// Log-probability and entropy of each position.
#[derive(Clone, Debug)]
pub struct Scores {
    /// `log π(id)` under the sampling distribution, `[n]`.
    pub logprobs: Tensor<1>,
    /// `−Σ_v π(v) log π(v)` of that distribution, in nats, `[n]`.
    pub entropies: Tensor<1>,
}

/// Scores `targets` from hidden states, without ever holding the logits of all positions.
///
/// Tile by tile, logits are made, used and dropped: the forward pass keeps running maxima and sums of
/// exponentials (online log-sum-exp; Milakov & Gimelshein 2018), the backward pass makes the tiles again. So
/// memory grows with `n · width` and not with `n · vocabulary`. Where the head is frozen (LoRA), the forward
/// pass also accumulates `Σ_v π(v) W_v`, of which the gradient of `hidden` is made without a second pass, as
/// in attention (Rabe & Staats 2021); a gradient of the entropies still takes one.
///
/// One custom operation on every backend. In f32 on the CPU the elements of a tile are worked on in loops of our
/// own, elsewhere in the backend's operations.
///
/// # Shapes
/// - hidden: `[n, width]`; gradients go to it and to the head
/// - result: `[n]` each. An id that could not be drawn gets about −1e30.
///
/// # Panics
/// Where the shapes disagree, or there is no position.
pub fn score(hidden: Tensor<2>, head: &Head, targets: &Targets) -> Scores {
    let [positions, width] = hidden.dims();
    assert_eq!(positions, targets.ids().len(), "one id for each hidden state");
    assert_eq!([width, targets.vocabulary()], head.weight.dims(), "the head's weight");
    assert!(positions > 0, "a score of no position");
    let both = backend::fused_score(hidden, head, targets.clone()); // [n, 2]
    let column = |c: usize| both.clone().slice([0..positions, c..c + 1]).squeeze_dim(1);
    Scores { logprobs: column(0), entropies: column(1) }
}

/// The same from logits, in Burn's own operations: several tensors of `[n, vocabulary]` are held.
///
/// The oracle of [`score`], and the way where logits are at hand anyway.
///
/// # Shapes
/// - logits: `[n, vocabulary]`
///
/// # Panics
/// Where the shapes disagree.
pub fn score_logits(logits: Tensor<2>, targets: &Targets) -> Scores {
    let log_policy = log_policy(logits, targets); // [n, v]
    let device = log_policy.device();
    let ids: Vec<i32> = targets.ids().iter().map(|&id| id as i32).collect();
    let ids: Tensor<1, Int> = Tensor::from_data(ids.as_slice(), &device);
    let entropies = (log_policy.clone().exp() * log_policy.clone()).sum_dim(1).neg();
    let chosen = log_policy.gather(1, ids.unsqueeze_dim(1));
    Scores { logprobs: chosen.squeeze_dim(1), entropies: entropies.squeeze_dim(1) }
}

/// `KL(π ‖ π_ref)` at each position, over all ids that are not forbidden, `[n]`; differentiable in both. Holds several
/// tensors of `[n, vocabulary]`, so it is for small vocabularies.
///
/// What truncated sampling kept is no part of it, though scores are within it: an id that fell out of the kept set has no
/// other gradient that could bring it back, and within one kept id every KL is 0.
///
/// # Shapes
/// - logits, ref_logits: `[n, vocabulary]`
///
/// # Panics
/// Where the shapes disagree.
pub fn exact_kl(logits: Tensor<2>, ref_logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    let targets = targets.clone().untruncated();
    let log_policy = log_policy(logits, &targets); // [n, v]
    let difference = log_policy.clone() - self::log_policy(ref_logits, &targets);
    (log_policy.exp() * difference).sum_dim(1).squeeze_dim(1)
}

/// `log π(v)` of every id at each position, `[n, vocabulary]`: what [`score`] picks one of.
///
/// # Panics
/// Where logits and targets have other shapes.
pub fn all_logprobs(logits: Tensor<2>, targets: &Targets) -> Tensor<2> {
    log_policy(logits, targets)
}

/// `log π(v)` of every id under the sampling distribution, `[n, v]`; about −1e30 where an id could not be
/// drawn.
fn log_policy(logits: Tensor<2>, targets: &Targets) -> Tensor<2> {
    let [positions, vocabulary] = logits.dims();
    assert_eq!(
        [positions, vocabulary],
        [targets.ids().len(), targets.vocabulary()],
        "logits against targets"
    );
    let device = logits.device();
    let tile = Tiles::new(targets, 0..positions).next_tile(0..vocabulary);
    let flags = |flags: Vec<bool>| -> Tensor<2, Bool> {
        Tensor::from_data(TensorData::new(flags, [positions, vocabulary]), &device)
    };
    let Tile { seen, excluded } = tile;
    let mut scaled = logits;
    if let (Some(penalty), Some(seen)) = (targets.penalty(), seen) {
        let factor = f64::from(penalty.factor);
        let positive = scaled.clone().greater_elem(0.0);
        // Multiplied, not divided: Burn 0.22.1 takes the derivative of a division by a number in f32.
        let divided = scaled.clone() * (1.0 / factor);
        let penalised = (scaled.clone() * factor).mask_where(positive, divided);
        scaled = scaled.mask_where(flags(seen), penalised);
    }
    if targets.temperature() != 1.0 {
        scaled = scaled * (1.0 / f64::from(targets.temperature()));
    }
    // Finite, because the entropy multiplies it by a probability of 0. Compared and not clamped, which would
    // hide NaN.
    scaled = scaled.clone().mask_fill(scaled.lower_elem(EXCLUDED), EXCLUDED);
    if let Some(excluded) = excluded {
        scaled = scaled.mask_fill(flags(excluded), EXCLUDED);
    }
    log_softmax(scaled, 1)
}
