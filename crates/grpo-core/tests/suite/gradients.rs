//! Gradients of a whole module: one norm, and adding up.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData, activation::log_softmax};
use grpo_core::{LossInputs, accumulate, clip_by_global_norm, grpo_loss};

use crate::support::{Batch, Uniform, close, largest, penalised, rounded};

/// Features, hidden width, tokens of the vocabulary.
const SIZES: [usize; 3] = [3, 4, 5];

/// Two layers from features to the log-probabilities of tokens; its f64 twin is [`logprobs`].
#[derive(Module, Debug)]
pub(crate) struct Toy {
    first: Param<Tensor<2>>,
    second: Param<Tensor<2>>,
}

/// A batch whose log-probabilities come from a [`Toy`].
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) parameters: Vec<f64>,
    pub(crate) features: Vec<[f64; 3]>,
    pub(crate) ids: Vec<usize>,
    /// Its `logprobs` are those of the parameters above.
    pub(crate) batch: Batch,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut uniform = Uniform(8);
        let mut between = |low: f64, high: f64| rounded(low + (high - low) * uniform.draw());
        let (rows, width) = (4, 3);
        let parameters = 0..SIZES[0] * SIZES[1] + SIZES[1] * SIZES[2];
        let parameters: Vec<f64> = parameters.map(|_| between(-1.0, 1.0)).collect();
        let features: Vec<[f64; 3]> =
            (0..rows * width).map(|_| [0; 3].map(|_| between(-1.5, 1.5))).collect();
        let ids: Vec<usize> = (0..rows * width).map(|_| between(0.0, 4.999) as usize).collect();
        let logprobs = logprobs(&parameters, &features, &ids, width);
        let mut off = |by: f64| -> Vec<Vec<f64>> {
            let rows = logprobs.iter();
            rows.map(|row| row.iter().map(|l| rounded(l + between(-by, by))).collect()).collect()
        };
        let batch = Batch {
            old: Some(off(0.5)),
            reference: Some(off(1.0)),
            entropies: vec![vec![0.0; width]; rows],
            advantages: vec![1.25, -0.5, -1.5, 0.75],
            mask: [3, 1, 2, 3].map(|n| (0..width).map(|t| t < n).collect()).to_vec(),
            logprobs,
        };
        Self { parameters, features, ids, batch }
    }

    /// With other parameters.
    pub(crate) fn at(&self, parameters: &[f64]) -> Batch {
        let logprobs = logprobs(parameters, &self.features, &self.ids, self.batch.width());
        Batch { logprobs, ..self.batch.clone() }
    }

    pub(crate) fn toy(&self, device: &Device) -> Toy {
        let (first, second) = self.parameters.split_at(SIZES[0] * SIZES[1]);
        Toy {
            first: Param::from_tensor(tensor(first, [SIZES[0], SIZES[1]], device)),
            second: Param::from_tensor(tensor(second, [SIZES[1], SIZES[2]], device)),
        }
    }

    /// Gradients of the loss of some rows, through Burn from the parameters on.
    pub(crate) fn gradients(
        &self,
        toy: &Toy,
        rows: std::ops::Range<usize>,
        config: &grpo_core::LossConfig,
    ) -> GradientsParams {
        let device = Device::flex().autodiff();
        let width = self.batch.width();
        let part = self.batch.part(rows.clone());
        let shape = [part.rows(), width];
        let tokens = rows.start * width..rows.end * width;
        let features = self.features[tokens.clone()].concat();
        let ids: Vec<i32> = self.ids[tokens].iter().map(|&id| id as i32).collect();
        let count = ids.len();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [count, 1]), &device);
        let hidden = tensor(&features, [count, SIZES[0]], &device).matmul(toy.first.val()).tanh();
        let logits = hidden.matmul(toy.second.val());
        let given = |values: &Option<Vec<Vec<f64>>>| {
            values.as_ref().map(|values| tensor(&values.concat(), shape, &device))
        };
        let weights = part.weights(config, &self.batch.totals());
        let inputs = LossInputs {
            logprobs: log_softmax(logits, 1).gather(1, ids).reshape(shape),
            old_logprobs: given(&part.old),
            ref_logprobs: given(&part.reference),
            advantages: tensor(&part.advantages, [part.rows(), 1], &device),
            weights: Tensor::from_data(TensorData::new(weights, shape), &device),
        };
        GradientsParams::from_grads(grpo_loss(inputs, config).backward(), toy)
    }
}

/// All gradients of a toy in one row, first layer first.
pub(crate) fn flat(toy: &Toy, gradients: &GradientsParams) -> Vec<f64> {
    let of = |param: &Param<Tensor<2>>| -> Vec<f64> {
        gradients.get::<2>(param.id).expect("a gradient").into_data().iter().collect()
    };
    [of(&toy.first), of(&toy.second)].concat()
}

fn tensor(values: &[f64], shape: [usize; 2], device: &Device) -> Tensor<2> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn logprobs(
    parameters: &[f64],
    features: &[[f64; 3]],
    ids: &[usize],
    width: usize,
) -> Vec<Vec<f64>> {
    let (first, second) = parameters.split_at(SIZES[0] * SIZES[1]);
    let one = |x: &[f64; 3], id: usize| {
        let hidden: Vec<f64> = (0..SIZES[1])
            .map(|h| (0..SIZES[0]).map(|i| x[i] * first[i * SIZES[1] + h]).sum::<f64>().tanh())
            .collect();
        let logit =
            |v: usize| (0..SIZES[1]).map(|h| hidden[h] * second[h * SIZES[2] + v]).sum::<f64>();
        logit(id) - (0..SIZES[2]).map(|v| logit(v).exp()).sum::<f64>().ln()
    };
    let all: Vec<f64> = features.iter().zip(ids).map(|(x, &id)| one(x, id)).collect();
    all.chunks(width).map(<[f64]>::to_vec).collect()
}

/// Two tensors with gradients of our choice: 12 and 20 numbers.
fn chosen(scale: f64) -> (Toy, GradientsParams, Vec<f64>) {
    let toy = Scene::new().toy(&Device::flex().autodiff());
    let mut uniform = Uniform(3);
    let values: Vec<f64> = (0..32).map(|_| rounded(scale * (uniform.draw() - 0.5))).collect();
    let mut gradients = GradientsParams::new();
    let device = Device::flex();
    gradients.register(toy.first.id, tensor(&values[..12], [3, 4], &device));
    gradients.register(toy.second.id, tensor(&values[12..], [4, 5], &device));
    (toy, gradients, values)
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn the_norm_is_of_all_gradients_together_and_the_direction_stays() {
    for scale in [1e-3, 5.0, 1e4] {
        let (toy, gradients, values) = chosen(scale);
        let limit = 0.25 * norm(&values);
        let (clipped, before) = clip_by_global_norm(&toy, gradients, limit);
        close(before, norm(&values), 4.0 * f64::EPSILON * before, "norm");
        let clipped = flat(&toy, &clipped);
        close(norm(&clipped), limit, 1e-7 * limit, "norm after");
        for (clipped, value) in clipped.iter().zip(&values) {
            let tolerance = 2.0 * f64::from(f32::EPSILON) * value.abs();
            close(*clipped, 0.25 * value, tolerance, "gradient");
        }
    }
}

#[test]
fn gradients_below_the_limit_are_untouched() {
    for factor in [1.0, 1.0 + 1e-9, 3.0, f64::INFINITY] {
        let (toy, gradients, values) = chosen(2.0);
        let exact = clip_by_global_norm(&toy, gradients, f64::INFINITY);
        let (clipped, before) = clip_by_global_norm(&toy, exact.0, factor * exact.1);
        assert_eq!(flat(&toy, &clipped), values);
        assert_eq!(before, exact.1);
    }
}

#[test]
fn a_parameter_without_a_gradient_stays_without() {
    let (toy, mut gradients, values) = chosen(2.0);
    gradients.remove::<2>(toy.second.id).unwrap();
    let (clipped, before) = clip_by_global_norm(&toy, gradients, 0.1);
    close(before, norm(&values[..12]), 4.0 * f64::EPSILON * before, "norm");
    assert_eq!(clipped.len(), 1);
    assert!(clipped.get::<2>(toy.first.id).is_some());
}

#[test]
fn accumulation_adds() {
    let (toy, first, values) = chosen(2.0);
    let sum = accumulate(&toy, None, first);
    assert_eq!(flat(&toy, &sum), values);
    // x + x is exact.
    let mut more = GradientsParams::new();
    more.register(toy.first.id, sum.get::<2>(toy.first.id).unwrap());
    let sum = accumulate(&toy, Some(sum), more);
    let doubled: Vec<f64> = values[..12].iter().map(|v| 2.0 * v).collect();
    assert_eq!(flat(&toy, &sum), [&doubled, &values[12..]].concat());

    let (mut only_first, mut only_second) = (GradientsParams::new(), GradientsParams::new());
    only_first.register(toy.first.id, sum.get::<2>(toy.first.id).unwrap());
    only_second.register(toy.second.id, sum.get::<2>(toy.second.id).unwrap());
    let joined = accumulate(&toy, Some(only_first), only_second);
    assert_eq!(flat(&toy, &joined), flat(&toy, &sum));
}

#[test]
fn accumulated_micro_batches_equal_the_whole_batch() {
    let scene = Scene::new();
    let toy = scene.toy(&Device::flex().autodiff());
    for config in penalised() {
        let whole = flat(&toy, &scene.gradients(&toy, 0..4, &config));
        for cuts in [[1, 2], [1, 3], [2, 3]] {
            let mut sum = None;
            for rows in [0..cuts[0], cuts[0]..cuts[1], cuts[1]..4] {
                sum = Some(accumulate(&toy, sum, scene.gradients(&toy, rows, &config)));
            }
            let tolerance = 1e-6 * largest(&whole);
            for (got, expected) in flat(&toy, &sum.unwrap()).iter().zip(&whole) {
                close(*got, *expected, tolerance, "gradient");
            }
        }
    }
}
