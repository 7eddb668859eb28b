//! The loss of tensors, for Burn's automatic differentiation.

use burn::tensor::{Tensor, TensorData};

use crate::{BatchTotals, HostInputs, LossConfig, LossTerms, loss_terms};

/// [`HostInputs`] with tensors. The loss is differentiated with respect to `logprobs`, `entropies` and
/// `exact_kl`. All other inputs are constants.
#[derive(Clone, Debug)]
pub struct LossInputs<'a> {
    /// `log π_θ` for each token, `[n]`.
    pub logprobs: Tensor<1>,
    /// Sequence index for each token, `[n]`, in ascending order.
    pub rows: &'a [usize],
    /// Advantage for each sequence, `[b]`. Sequences without tokens are allowed.
    pub advantages: &'a [f64],
    /// `log π_old`, `[n]`. `None` for the first update after sampling, because π_old equals π_θ.
    pub old_logprobs: Option<&'a [f64]>,
    /// `log π_ref`, `[n]`. Required if the KL penalty is part of the loss.
    pub ref_logprobs: Option<&'a [f64]>,
    /// Log-probabilities recorded by the sampler, `[n]`. Required for mismatch correction.
    pub sampling_logprobs: Option<&'a [f64]>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, `[n]`. Required by [`crate::KlEstimator::Exact`].
    pub exact_kl: Option<Tensor<1>>,
    /// Entropy of π_θ in nats for each token, `[n]`. Required for the high-entropy mask and the
    /// entropy bonus.
    pub entropies: Option<Tensor<1>>,
    /// Entropy bonus coefficient for this update, usually [`crate::EntropyController::coef`]. 0
    /// disables the bonus.
    pub entropy_coef: f64,
}

impl<'a> LossInputs<'a> {
    /// Creates inputs for a first update without a reference. Other inputs can be set through the
    /// fields.
    pub fn on_policy(logprobs: Tensor<1>, rows: &'a [usize], advantages: &'a [f64]) -> Self {
        Self {
            logprobs,
            rows,
            advantages,
            old_logprobs: None,
            ref_logprobs: None,
            sampling_logprobs: None,
            exact_kl: None,
            entropies: None,
            entropy_coef: 0.0,
        }
    }
}

/// Result of [`grpo_loss`].
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// Contribution of these sequences to the loss of the optimizer batch, `[1]`. Differentiable
    /// with respect to the inputs.
    pub loss: Tensor<1>,
    /// Loss terms for each token.
    pub terms: LossTerms,
}

/// Computes the loss of [`loss_terms`] as a tensor. The derivatives are rounded to the precision of
/// `logprobs`.
///
/// # Panics
/// Same as [`loss_terms`].
pub fn grpo_loss(inputs: &LossInputs<'_>, config: &LossConfig, totals: &BatchTotals) -> LossOutput {
    let logprobs = host(&inputs.logprobs);
    let [exact_kl, entropies] =
        [&inputs.exact_kl, &inputs.entropies].map(|values| values.as_ref().map(host));
    let batch = HostInputs {
        logprobs: &logprobs,
        rows: inputs.rows,
        advantages: inputs.advantages,
        old_logprobs: inputs.old_logprobs,
        ref_logprobs: inputs.ref_logprobs,
        sampling_logprobs: inputs.sampling_logprobs,
        exact_kl: exact_kl.as_deref(),
        entropies: entropies.as_deref(),
        entropy_coef: inputs.entropy_coef,
        largest: inputs.logprobs.dtype().finfo().expect("floating-point numbers").max,
    };
    let terms = loss_terms(&batch, config, totals);
    LossOutput { loss: on_tape(inputs, &terms, batch.entropy_bonus(totals)), terms }
}

/// Attaches precomputed derivatives to the autodiff graph of the inputs.
fn on_tape(inputs: &LossInputs<'_>, terms: &LossTerms, bonus: Option<f64>) -> Tensor<1> {
    let (device, dtype) = (inputs.logprobs.device(), inputs.logprobs.dtype());
    let constant = |values: Vec<f64>| -> Tensor<1> {
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), (&device, dtype))
    };
    // The difference is always 0; only its derivative matters.
    let term = |input: &Tensor<1>, gradient: Vec<f64>| {
        ((input.clone() - input.clone().detach()) * constant(gradient)).sum()
    };
    let mut loss = constant(vec![terms.loss]);
    loss = loss + term(&inputs.logprobs, terms.tokens().map(|t| t.gradient).collect());
    if let Some(exact_kl) = &inputs.exact_kl {
        loss = loss + term(exact_kl, terms.tokens().map(|t| t.exact_kl_gradient).collect());
    }
    if let (Some(bonus), Some(entropies)) = (bonus, &inputs.entropies) {
        let kept = terms.tokens().map(|t| if t.is_low_entropy { 0.0 } else { -bonus });
        loss = loss + term(entropies, kept.collect());
    }
    loss
}

fn host(tensor: &Tensor<1>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}
