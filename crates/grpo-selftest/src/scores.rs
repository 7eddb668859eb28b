//! Test cases for scores, and their evaluation with tensors.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_data::TokenSet;
use grpo_logprob::{Head, Scores, Targets, score, score_logits};

use crate::generate::Draws;
use crate::tensors::host;

/// Sampling distribution options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Under {
    /// Temperature, or `None` for 1.
    pub temperature: Option<f32>,
    /// Whether to forbid two ids.
    pub forbidding: bool,
    /// Whether to restrict each position to a set of kept ids.
    pub truncated: bool,
    /// Repetition penalty. If set, each position has a set of previous ids.
    pub penalty: Option<f32>,
}

impl Under {
    /// Returns all combinations of options.
    pub fn all() -> Vec<Self> {
        let mut all = vec![];
        for temperature in [None, Some(0.7), Some(1.6)] {
            for forbidding in [false, true] {
                for truncated in [false, true] {
                    for penalty in [None, Some(1.3), Some(0.8)] {
                        all.push(Self { temperature, forbidding, truncated, penalty });
                    }
                }
            }
        }
        all
    }
}

/// A test case with `n` positions and one token per position.
#[derive(Clone, Debug)]
pub struct ScoreCase {
    /// Number of positions, width and vocabulary size.
    pub sizes: [usize; 3],
    /// Hidden states, `[n · width]`.
    pub hidden: Vec<f64>,
    /// Head weight, `[width · vocabulary]`.
    pub weight: Vec<f64>,
    /// Head bias, `[vocabulary]`.
    pub bias: Option<Vec<f64>>,
    /// Token ids, `[n]`. All of them can be sampled.
    pub ids: Vec<u32>,
    /// Sampling distribution options.
    pub under: Under,
    /// Forbidden ids.
    pub forbidden: Vec<u32>,
    /// Kept ids at each position.
    pub kept: Option<Vec<Vec<u32>>>,
    /// Penalised ids at each position.
    pub seen: Option<Vec<Vec<u32>>>,
}

impl ScoreCase {
    /// Generates a case in which all numbers can be represented exactly in f32.
    pub fn generated(sizes: [usize; 3], under: Under, bias: bool) -> Self {
        let [n, width, vocabulary] = sizes;
        let mut draws = Draws::new(4, n * width * vocabulary);
        let mut numbers = |count: usize, scale: f64| -> Vec<f64> {
            (0..count).map(|_| f64::from(draws.between(-scale, scale) as f32)).collect()
        };
        let hidden = numbers(n * width, 2.0);
        let weight = numbers(width * vocabulary, 1.0);
        let bias = bias.then(|| numbers(vocabulary, 0.5));
        let forbidden = if under.forbidding { vec![0, vocabulary as u32 / 2] } else { vec![] };
        let drawable: Vec<u32> =
            (0..vocabulary as u32).filter(|id| !forbidden.contains(id)).collect();
        let ids: Vec<u32> = (0..n).map(|_| draws.one_of(&drawable)).collect();
        let mut subset = |always: Option<u32>, share: f64| -> Vec<u32> {
            let ids = 0..vocabulary as u32;
            ids.filter(|&id| always == Some(id) || draws.chance(share)).collect()
        };
        let kept = under.truncated.then(|| ids.iter().map(|&id| subset(Some(id), 0.4)).collect());
        let seen = under.penalty.map(|_| ids.iter().map(|_| subset(None, 0.2)).collect());
        Self { sizes, hidden, weight, bias, ids, under, forbidden, kept, seen }
    }

    /// Returns the targets for scoring.
    ///
    /// # Panics
    /// Panics if a set is not in ascending order.
    pub fn targets(&self) -> Targets {
        let [_, _, vocabulary] = self.sizes;
        let sets = |sets: &Vec<Vec<u32>>| -> Vec<TokenSet> {
            let set = |ids: &Vec<u32>| TokenSet::from_sorted(ids, vocabulary);
            sets.iter().map(|ids| set(ids).expect("ascending ids")).collect()
        };
        let mut targets = Targets::new(self.ids.clone(), vocabulary).without(&self.forbidden);
        if let Some(temperature) = self.under.temperature {
            targets = targets.at_temperature(temperature);
        }
        if let Some(kept) = &self.kept {
            targets = targets.within(sets(kept));
        }
        if let (Some(factor), Some(seen)) = (self.under.penalty, &self.seen) {
            targets = targets.with_repetition_penalty(factor, sets(seen));
        }
        targets
    }

    /// Returns the logits at position `i`.
    pub fn logits(&self, i: usize) -> Vec<f64> {
        let [_, width, vocabulary] = self.sizes;
        let mut logits = self.bias.clone().unwrap_or(vec![0.0; vocabulary]);
        for k in 0..width {
            let h = self.hidden[i * width + k];
            let row = &self.weight[k * vocabulary..(k + 1) * vocabulary];
            logits.iter_mut().zip(row).for_each(|(logit, w)| *logit += h * w);
        }
        logits
    }

    /// Returns the weight as `[vocabulary · width]`, the layout of a tied head.
    fn transposed_weight(&self) -> Vec<f64> {
        let [_, width, vocabulary] = self.sizes;
        let places = (0..vocabulary).flat_map(|v| (0..width).map(move |k| k * vocabulary + v));
        places.map(|place| self.weight[place]).collect()
    }
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
    let targets = case.targets();
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
