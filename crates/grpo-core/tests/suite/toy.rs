//! A two-layer network, implemented both as a Burn module and in f64 loops.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Int, Tensor, TensorData, activation::log_softmax};
use grpo_core::{LossConfig, LossInputs, grpo_loss};

use crate::support::{Batch, Rows, Run, Uniform, rounded, tensor};

/// Number of features, hidden width and vocabulary size.
const SIZES: [usize; 3] = [3, 4, 5];

/// Total number of parameters. The first layer comes first.
pub(crate) const PARAMETERS: usize = SIZES[0] * SIZES[1] + SIZES[1] * SIZES[2];

/// Two-layer network that maps features to log-probabilities. [`Scene::at`] is the f64 version.
#[derive(Module, Debug)]
pub(crate) struct Toy {
    pub(crate) first: Param<Tensor<2>>,
    pub(crate) second: Param<Tensor<2>>,
}

/// Four sequences of three tokens, scored by a [`Toy`].
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) parameters: Vec<f64>,
    features: Vec<[f64; 3]>,
    /// Sampled token at each position, row by row.
    ids: Vec<usize>,
    /// `log π_ref` for each vocabulary token at each position.
    reference: Rows,
    /// Inputs that don't depend on the policy.
    given: Batch,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut uniform = Uniform(8);
        let mut between = |low: f64, high: f64| rounded(low + (high - low) * uniform.draw());
        let (rows, width) = (4, 3);
        let parameters: Vec<f64> = (0..PARAMETERS).map(|_| between(-1.0, 1.0)).collect();
        let features = (0..rows * width).map(|_| [0; 3].map(|_| between(-1.5, 1.5))).collect();
        let ids: Vec<usize> = (0..rows * width).map(|_| between(0.0, 4.999) as usize).collect();
        let reference = (0..rows * width)
            .map(|_| log_softmaxed(&[0; SIZES[2]].map(|_| between(-1.0, 1.0))))
            .collect();
        let blank = vec![vec![0.0; width]; rows];
        let given = Batch {
            logprobs: blank.clone(),
            old: None,
            reference: None,
            sampling: None,
            exact_kl: None,
            entropies: blank,
            advantages: vec![1.25, -0.5, -1.5, 0.75],
            mask: [3, 1, 2, 3].map(|n| (0..width).map(|t| t < n).collect()).to_vec(),
            entropy_coef: 0.0,
        };
        let mut scene = Self { parameters, features, ids, reference, given };
        let near = |logprobs: &Rows, between: &mut dyn FnMut() -> f64| -> Rows {
            logprobs
                .iter()
                .map(|row| row.iter().map(|l| rounded(l + between())).collect())
                .collect()
        };
        let logprobs = scene.batch().logprobs;
        let old = near(&logprobs, &mut || between(-0.5, 0.5));
        scene.given.sampling = Some(near(&old, &mut || between(-0.3, 0.3)));
        scene.given.old = Some(old);
        scene
    }

    pub(crate) fn with_entropy_coef(mut self, coef: f64) -> Self {
        self.given.entropy_coef = coef;
        self
    }

    /// Evaluates the scene with the current parameters.
    pub(crate) fn batch(&self) -> Batch {
        self.at(&self.parameters)
    }

    /// Evaluates the scene with different parameters.
    pub(crate) fn at(&self, parameters: &[f64]) -> Batch {
        let width = self.given.width();
        let rows = |values: Vec<f64>| values.chunks(width).map(<[f64]>::to_vec).collect::<Rows>();
        let log_policies: Rows = self.features.iter().map(|x| log_policy(parameters, x)).collect();
        let places = || log_policies.iter().zip(&self.reference).zip(&self.ids);
        let expected = |policy: &[f64], of: &dyn Fn(usize) -> f64| -> f64 {
            policy.iter().enumerate().map(|(v, l)| l.exp() * of(v)).sum()
        };
        Batch {
            logprobs: rows(places().map(|((policy, _), &id)| policy[id]).collect()),
            reference: Some(rows(places().map(|((_, reference), &id)| reference[id]).collect())),
            exact_kl: Some(rows(
                places().map(|((policy, q), _)| expected(policy, &|v| policy[v] - q[v])).collect(),
            )),
            entropies: rows(
                log_policies.iter().map(|policy| expected(policy, &|v| -policy[v])).collect(),
            ),
            ..self.given.clone()
        }
    }

    pub(crate) fn toy(&self, dtype: DType) -> Toy {
        let device = Device::flex().autodiff();
        let (first, second) = self.parameters.split_at(SIZES[0] * SIZES[1]);
        let param =
            |values: &[f64], shape| Param::from_tensor(tensor(values, shape, dtype, &device));
        Toy {
            first: param(first, [SIZES[0], SIZES[1]]),
            second: param(second, [SIZES[1], SIZES[2]]),
        }
    }

    /// Computes the gradients of the loss for some of the rows, using Burn from the parameters
    /// onwards.
    pub(crate) fn gradients(
        &self,
        toy: &Toy,
        rows: std::ops::Range<usize>,
        config: &LossConfig,
    ) -> GradientsParams {
        let device = Device::flex().autodiff();
        let dtype = toy.first.val().dtype();
        let batch = self.batch();
        let totals = batch.totals(config.high_entropy_share);
        let width = batch.width();
        let part = batch.part(rows.clone());
        let places = rows.start * width..rows.end * width;
        let count = places.len();
        let features =
            tensor(&self.features[places.clone()].concat(), [count, SIZES[0]], dtype, &device);
        let ids: Vec<i32> = self.ids[places.clone()].iter().map(|&id| id as i32).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [count, 1]), &device);
        let reference = tensor(&self.reference[places].concat(), [count, SIZES[2]], dtype, &device);
        let logits = features.matmul(toy.first.val()).tanh().matmul(toy.second.val());
        let log_policy = log_softmax(logits, 1); // [b · t, v]
        let over_vocabulary =
            |of: Tensor<2>| -> Tensor<2> { (log_policy.clone().exp() * of).sum_dim(1) };
        let active: Vec<i32> =
            part.places(true).into_iter().map(|(b, t)| (b * width + t) as i32).collect();
        let active = Tensor::<1, Int>::from_data(&active[..], &device);
        let of_actions = |values: Tensor<2>| values.reshape([count]).select(0, active.clone());
        let given = |rows: &Option<Rows>| rows.as_ref().map(|rows| part.packed(rows));
        let [old, reference_logprobs, sampling] =
            [&part.old, &part.reference, &part.sampling].map(given);
        let inputs = LossInputs {
            exact_kl: Some(of_actions(over_vocabulary(log_policy.clone() - reference))),
            entropies: Some(of_actions(over_vocabulary(log_policy.clone().neg()))),
            logprobs: of_actions(log_policy.gather(1, ids)),
            rows: &part.row_index(),
            advantages: &part.advantages,
            old_logprobs: old.as_deref(),
            ref_logprobs: reference_logprobs.as_deref(),
            sampling_logprobs: sampling.as_deref(),
            entropy_coef: part.entropy_coef,
        };
        GradientsParams::from_grads(grpo_loss(&inputs, config, &totals).loss.backward(), toy)
    }
}

/// Flattens all gradients into a vector. The first layer comes first.
pub(crate) fn flat(toy: &Toy, gradients: &GradientsParams) -> Vec<f64> {
    let of = |param: &Param<Tensor<2>>| -> Vec<f64> {
        gradients.get::<2>(param.id).expect("a gradient").into_data().iter().collect()
    };
    [of(&toy.first), of(&toy.second)].concat()
}

fn log_policy(parameters: &[f64], x: &[f64; 3]) -> Vec<f64> {
    let (first, second) = parameters.split_at(SIZES[0] * SIZES[1]);
    let hidden: Vec<f64> = (0..SIZES[1])
        .map(|h| (0..SIZES[0]).map(|i| x[i] * first[i * SIZES[1] + h]).sum::<f64>().tanh())
        .collect();
    let logit = |v: usize| (0..SIZES[1]).map(|h| hidden[h] * second[h * SIZES[2] + v]).sum::<f64>();
    log_softmaxed(&(0..SIZES[2]).map(logit).collect::<Vec<f64>>())
}

pub(crate) fn log_softmaxed(logits: &[f64]) -> Vec<f64> {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit - total.ln()).collect()
}
