//! What a step computed for each token, for whoever asks what moved the policy and why nothing else did.

use burn::tensor::{Device, Tensor, TensorData};
use grpo_core::{
    BatchTotals, HostTokens, KlConfig, LossConfig, LossInputs, TokenFate, grpo_loss, token_fates,
};

/// What a step computed for the tokens of one completion; each list has one entry an action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenRecord {
    /// `log π_θ` in the first update, which is `log π_old`, in nats.
    pub logprobs: Vec<f64>,
    /// `log π_ref`, in nats.
    pub ref_logprobs: Vec<f64>,
    /// Entropy of the policy's distribution in the first update, in nats.
    pub entropies: Vec<f64>,
    /// ∂loss/∂log π_θ of the token, summed over the updates of the step: below 0 where the step makes the token likelier.
    /// The exact KL and the entropy bonus are functions of whole distributions, and no part of it.
    pub gradients: Vec<f64>,
    /// The same of the surrogate alone, without a KL penalty.
    pub surrogate_gradients: Vec<f64>,
    /// What became of the token in each update.
    pub fates: Vec<Vec<TokenFate>>,
}

impl TokenRecord {
    /// The same of a loss that has this weight.
    pub(crate) fn weighted(mut self, weight: f64) -> Self {
        let gradients = self.gradients.iter_mut().chain(&mut self.surrogate_gradients);
        gradients.for_each(|gradient| *gradient *= weight);
        self
    }
}

/// What one update computed for the actions of a micro-batch, `[n]`.
pub(crate) struct UpdateRecord {
    logprobs: Vec<f64>,
    entropies: Vec<f64>,
    gradients: Vec<f64>,
    surrogate_gradients: Vec<f64>,
    fates: Vec<TokenFate>,
}

impl UpdateRecord {
    /// Of a micro-batch whose loss was made of `tokens` and `inputs`; `actions` are the places of its actions among the
    /// `b · t`. The loss is computed once more, of log-probabilities that are the leaves of a tape of their own: that of
    /// the policy is not touched.
    pub(crate) fn of(
        tokens: &HostTokens<'_>,
        is_scored: &[bool],
        inputs: &LossInputs,
        actions: &[usize],
        config: &LossConfig,
        totals: &BatchTotals,
        device: &Device,
    ) -> Self {
        let of_actions = |all: &[f64]| actions.iter().map(|&place| all[place]).collect();
        let gradients = |config: &LossConfig| -> Vec<f64> {
            of_actions(&logprob_gradients(tokens, inputs, config, totals, device))
        };
        let without_kl = LossConfig { kl: KlConfig { coef: 0.0, ..config.kl }, ..*config };
        let surrogate_gradients = gradients(&without_kl);
        let fates = token_fates(tokens, is_scored, config, totals);
        let fate_of = |&place: &usize| fates[place].expect("every action has a fate");
        Self {
            logprobs: of_actions(tokens.logprobs),
            entropies: of_actions(tokens.entropies),
            gradients: match config.kl.in_loss() {
                true => gradients(config),
                false => surrogate_gradients.clone(),
            },
            surrogate_gradients,
            fates: actions.iter().map(fate_of).collect(),
        }
    }
}

/// ∂loss/∂log π_θ at each place, `[b · t]`.
fn logprob_gradients(
    tokens: &HostTokens<'_>,
    inputs: &LossInputs,
    config: &LossConfig,
    totals: &BatchTotals,
    device: &Device,
) -> Vec<f64> {
    let shape = inputs.mask.dims();
    let values: Vec<f32> = tokens.logprobs.iter().map(|&value| value as f32).collect();
    let leaf = Tensor::<2>::from_data(TensorData::new(values, shape), device).require_grad();
    let constants = LossInputs {
        logprobs: leaf.clone(),
        exact_kl: inputs.exact_kl.clone().map(Tensor::detach),
        entropies: inputs.entropies.clone().map(Tensor::detach),
        entropy_coef: 0.0,
        ..inputs.clone()
    };
    let gradients = grpo_loss(constants, config, totals).backward();
    match leaf.grad(&gradients) {
        Some(gradient) => gradient.into_data().iter::<f64>().collect(),
        None => vec![0.0; shape[0] * shape[1]],
    }
}

/// The records of a micro-batch's updates, one behind the other.
pub(crate) fn fold(
    updates: &[UpdateRecord],
    reference: &[f64],
    lengths: impl Iterator<Item = usize>,
) -> Vec<TokenRecord> {
    let Some(first) = updates.first() else { return Vec::new() };
    let sum = |of: &dyn Fn(&UpdateRecord) -> &Vec<f64>, i: usize| {
        updates.iter().map(|update| of(update)[i]).sum::<f64>()
    };
    let mut start = 0;
    lengths
        .map(|length| {
            let actions = start..start + length;
            start = actions.end;
            let each = |of: &dyn Fn(&UpdateRecord) -> &Vec<f64>| {
                actions.clone().map(|i| sum(of, i)).collect()
            };
            let fates = |i| updates.iter().map(|update| update.fates[i]).collect();
            TokenRecord {
                logprobs: first.logprobs[actions.clone()].to_vec(),
                ref_logprobs: reference[actions.clone()].to_vec(),
                entropies: first.entropies[actions.clone()].to_vec(),
                gradients: each(&|update| &update.gradients),
                surrogate_gradients: each(&|update| &update.surrogate_gradients),
                fates: actions.clone().map(fates).collect(),
            }
        })
        .collect()
}
