//! Evaluates cases for scores with tensors.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_data::TokenSet;
use grpo_logprob::{Head, Scores, Targets, score, score_logits};
use grpo_oracle::ScoreCase;

use crate::tensors::host;

/// Returns the targets of a case for scoring.
///
/// # Panics
/// Panics if a set is not in ascending order.
pub fn targets(case: &ScoreCase) -> Targets {
    let [_, _, vocabulary] = case.sizes;
    let sets = |sets: &Vec<Vec<u32>>| -> Vec<TokenSet> {
        let set = |ids: &Vec<u32>| TokenSet::from_sorted(ids, vocabulary);
        sets.iter().map(|ids| set(ids).expect("ascending ids")).collect()
    };
    let mut targets = Targets::new(case.ids.clone(), vocabulary).without(&case.forbidden);
    if let Some(temperature) = case.under.temperature {
        targets = targets.at_temperature(temperature);
    }
    if let Some(kept) = &case.kept {
        targets = targets.within(sets(kept));
    }
    if let (Some(factor), Some(seen)) = (case.under.penalty, &case.seen) {
        targets = targets.with_repetition_penalty(factor, sets(seen));
    }
    targets
}

/// Evaluation options.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Whether to use `score` or `score_logits`.
    pub fused: bool,
    /// Whether the head weight is a transposed view.
    pub tied: bool,
    /// Whether to compute gradients for hidden states.
    pub track_hidden: bool,
    /// Whether to compute gradients for weight and bias.
    pub track_head: bool,
}

/// Evaluation results.
#[derive(Clone, Debug)]
pub struct Scored {
    /// Log-probabilities, `[n]`.
    pub logprobs: Vec<f64>,
    /// Entropies, `[n]`.
    pub entropies: Vec<f64>,
    /// Gradients for hidden states, weight and bias, if requested. They have the same layout as in
    /// [`ScoreCase`].
    pub gradients: [Option<Vec<f64>>; 3],
}

/// Computes scores and the gradients of
/// `Σ_i upstream[0][i] · logprob_i + upstream[1][i] · entropy_i`.
///
/// If all values in `upstream[1]` are 0, entropies are excluded from the loss.
pub fn scored(
    case: &ScoreCase,
    way: Way,
    upstream: [&[f64]; 2],
    device: &Device,
    dtype: DType,
) -> Scored {
    let device = device.clone().autodiff();
    let [n, width, vocabulary] = case.sizes;
    let matrix = |values: &[f64], shape: [usize; 2], track: bool| {
        let data = TensorData::new(values.to_vec(), shape);
        let tensor = Tensor::<2>::from_data(data, (&device, dtype));
        if track { tensor.require_grad() } else { tensor }
    };
    let vector = |values: &[f64]| -> Tensor<1> {
        Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (&device, dtype))
    };
    let hidden = matrix(&case.hidden, [n, width], way.track_hidden);
    let weight = match way.tied {
        true => matrix(&case.transposed_weight(), [vocabulary, width], way.track_head),
        false => matrix(&case.weight, [width, vocabulary], way.track_head),
    };
    let bias = case.bias.as_ref().map(|bias| match way.track_head {
        true => vector(bias).require_grad(),
        false => vector(bias),
    });
    let as_head = if way.tied { weight.clone().transpose() } else { weight.clone() };
    let head = Head { weight: as_head, bias: bias.clone() };
    let targets = targets(case);
    let Scores { logprobs, entropies } = match way.fused {
        true => score(hidden.clone(), &head, &targets),
        false => score_logits(head.logits(hidden.clone()), &targets),
    };
    let mut gradients = [None, None, None];
    if way.track_hidden || way.track_head {
        let mut loss = (logprobs.clone() * vector(upstream[0])).sum();
        if upstream[1].iter().any(|&weight| weight != 0.0) {
            loss = loss + (entropies.clone() * vector(upstream[1])).sum();
        }
        let tape = loss.backward();
        let of_weight = weight.grad(&tape);
        gradients = [
            hidden.grad(&tape).map(host),
            of_weight.map(|g| if way.tied { host(g.transpose()) } else { host(g) }),
            bias.and_then(|bias| bias.grad(&tape)).map(host),
        ];
    }
    Scored { logprobs: host(logprobs), entropies: host(entropies), gradients }
}
