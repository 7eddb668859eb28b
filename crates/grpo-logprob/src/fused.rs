//! Computes scores from hidden states, one tile at a time.
//!
//! The algorithm is implemented once using backend operations. Element-wise operations on a tile
//! are provided by a [`Steps`] implementation: Burn operations ([`plain`]), or in `f32`, vectorised
//! loops on the CPU (`cpu`) and kernels on GPUs (`gpu`).

#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
pub(crate) mod plain;

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Slice;

use crate::Targets;
use crate::tiles::Tiles;

/// Positions per tile. Large enough for matrix multiplication to run at full speed.
const POSITIONS: usize = 2048;
/// Ids per tile. This is a constant, so the order of summation at a position never depends on the
/// batch size.
const IDS: usize = 2048;

/// Inputs of the score.
pub(crate) struct Problem<'a, B: Backend> {
    /// `[n, width]`.
    pub(crate) hidden: &'a FloatTensor<B>,
    /// `[width, vocabulary]`.
    pub(crate) weight: &'a FloatTensor<B>,
    /// `[vocabulary]`.
    pub(crate) bias: Option<&'a FloatTensor<B>>,
    pub(crate) targets: &'a Targets,
}

/// Forward pass result.
#[derive(Clone, Debug)]
pub(crate) struct Forward<B: Backend> {
    /// Log-probability and entropy for each position, `[n, 2]`.
    pub(crate) scores: FloatTensor<B>,
    /// `ln Σ exp(scaled logit)` for each position, `[n, 1]`.
    pub(crate) log_normalizer: FloatTensor<B>,
    /// `∂ logprob / ∂ hidden`, `[n, width]`, if requested.
    pub(crate) direction: Option<FloatTensor<B>>,
}

/// Gradients that were requested.
pub(crate) struct Gradients<B: Backend> {
    pub(crate) hidden: Option<FloatTensor<B>>,
    pub(crate) weight: Option<FloatTensor<B>>,
    pub(crate) bias: Option<FloatTensor<B>>,
}

/// Specifies which gradients to compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) hidden: bool,
    pub(crate) weight: bool,
    pub(crate) bias: bool,
}

/// Element-wise tile operations. Id ranges are processed in ascending order.
pub(crate) trait Steps<B: Backend> {
    /// Running maximum and sums for each position.
    type Running;

    fn start(like: &FloatTensor<B>, positions: usize) -> Self::Running;

    /// Adds the logits in a tile, `[positions, ids]`, to the running sums. If `weigh` is true,
    /// returns `exp(scaled logit − running maximum) · ∂ scaled logit / ∂ logit · temperature`.
    fn absorb(
        running: &mut Self::Running,
        logits: FloatTensor<B>,
        at: &mut TilePosition<'_>,
        weigh: bool,
    ) -> Option<FloatTensor<B>>;

    /// Returns `sum · exp(old maximum − new maximum) + term`, `[positions, width]`, where the
    /// maxima are those before and after the last tile.
    fn accumulate(
        running: &Self::Running,
        sum: FloatTensor<B>,
        term: FloatTensor<B>,
    ) -> FloatTensor<B>;

    /// Returns the scores, `[positions, 2]`, and the log-normalizers, `[positions, 1]`.
    fn finish(running: &Self::Running) -> [FloatTensor<B>; 2];

    /// Converts `Σ_v exp(x_v − maximum) W_v` to the derivative of the log-probability with respect
    /// to the hidden state.
    fn direction(
        running: &Self::Running,
        sum: FloatTensor<B>,
        weight: &FloatTensor<B>,
        at: &TilePosition<'_>,
    ) -> FloatTensor<B>;

    /// Returns the gradient with respect to the logits in a tile, `[positions, ids]`.
    ///
    /// `scores` and `upstream` are `[positions, 2]`, and `log_normalizer` is `[positions, 1]`.
    fn gradient(
        logits: FloatTensor<B>,
        scores: &FloatTensor<B>,
        log_normalizer: &FloatTensor<B>,
        upstream: &FloatTensor<B>,
        at: &mut TilePosition<'_>,
    ) -> FloatTensor<B>;

    fn zeros(like: &FloatTensor<B>, shape: [usize; 2]) -> FloatTensor<B>;

    /// Computes the matrix product of `a` and `b`.
    fn matmul(a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B>;

    /// Computes logits from hidden states, like the output layer in sampling.
    fn logits(
        hidden: FloatTensor<B>,
        weight: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        let logits = Self::matmul(hidden, weight);
        let Some(bias) = bias else { return logits };
        let ids = bias.shape()[0];
        B::float_add(logits, B::float_reshape(bias, [1, ids].into()))
    }

    /// Returns whether it is faster to accumulate the weight gradient as `[vocabulary, width]`.
    fn is_transposed(weight: &FloatTensor<B>) -> bool;
}

/// Location of a tile: ranges of positions and ids.
pub(crate) struct TilePosition<'a> {
    pub(crate) targets: &'a Targets,
    pub(crate) tiles: Tiles<'a>,
    pub(crate) positions: Range<usize>,
    pub(crate) ids: Range<usize>,
}

impl<'a> TilePosition<'a> {
    fn new(targets: &'a Targets, positions: Range<usize>) -> Self {
        Self { targets, tiles: Tiles::new(targets, positions.clone()), positions, ids: 0..0 }
    }

    /// Returns the target token for each position.
    pub(crate) fn chosen(&self) -> &'a [u32] {
        &self.targets.ids()[self.positions.clone()]
    }
}

/// Computes scores. If `direct` is true, also computes the direction of the hidden-state gradient.
pub(crate) fn forward<B: Backend, S: Steps<B>>(
    problem: &Problem<'_, B>,
    direct: bool,
) -> Forward<B> {
    let (mut scores, mut normalizers, mut directions) = (Vec::new(), Vec::new(), Vec::new());
    for positions in problem.position_ranges() {
        let hidden = rows::<B>(problem.hidden, &positions);
        let mut running = S::start(&hidden, positions.len());
        let mut at = TilePosition::new(problem.targets, positions.clone());
        let mut sum: Option<FloatTensor<B>> = None;
        for ids in id_ranges(problem.targets) {
            at.ids = ids.clone();
            let weight = columns::<B>(problem.weight, &ids);
            let logits = problem.logits::<S>(hidden.clone(), weight.clone(), &ids);
            if let Some(weights) = S::absorb(&mut running, logits, &mut at, direct) {
                let term = S::matmul(weights, B::float_transpose(weight));
                sum = Some(match sum {
                    Some(sum) => S::accumulate(&running, sum, term),
                    None => term,
                });
            }
        }
        let [score, normalizer] = S::finish(&running);
        scores.push(score);
        normalizers.push(normalizer);
        directions.extend(sum.map(|sum| S::direction(&running, sum, problem.weight, &at)));
    }
    Forward {
        scores: cat::<B>(scores),
        log_normalizer: cat::<B>(normalizers),
        direction: (!directions.is_empty()).then(|| cat::<B>(directions)),
    }
}

/// Computes gradients, recomputing the logits tile by tile. `upstream` is `[n, 2]`.
pub(crate) fn backward<B: Backend, S: Steps<B>>(
    problem: &Problem<'_, B>,
    forward: &Forward<B>,
    upstream: &FloatTensor<B>,
    wanted: Wanted,
) -> Gradients<B> {
    let mut hidden_parts = Vec::new();
    let mut weight_gradient = wanted.weight.then(|| WeightGradient::new::<S>(problem.weight));
    let mut bias_gradient: Option<FloatTensor<B>> = None;
    for positions in problem.position_ranges() {
        let hidden = rows::<B>(problem.hidden, &positions);
        let part = |of: &FloatTensor<B>| rows::<B>(of, &positions);
        let (scores, normalizer) = (part(&forward.scores), part(&forward.log_normalizer));
        let upstream = part(upstream);
        let mut at = TilePosition::new(problem.targets, positions.clone());
        let mut hidden_gradient: Option<FloatTensor<B>> = None;
        let mut bias_parts = Vec::new();
        for ids in id_ranges(problem.targets) {
            at.ids = ids.clone();
            let weight = columns::<B>(problem.weight, &ids);
            let logits = problem.logits::<S>(hidden.clone(), weight.clone(), &ids);
            let gradient = S::gradient(logits, &scores, &normalizer, &upstream, &mut at);
            if let Some(weight_gradient) = &mut weight_gradient {
                weight_gradient.add::<S>(&hidden, &gradient, &ids);
            }
            if wanted.bias {
                bias_parts.push(B::float_transpose(B::float_sum_dim(gradient.clone(), 0)));
            }
            if wanted.hidden {
                let term = S::matmul(gradient, B::float_transpose(weight));
                hidden_gradient = Some(plus::<B>(hidden_gradient, term));
            }
        }
        hidden_parts.extend(hidden_gradient);
        if wanted.bias {
            bias_gradient = Some(plus::<B>(bias_gradient, cat::<B>(bias_parts)));
        }
    }
    let vocabulary = problem.targets.vocabulary();
    Gradients {
        hidden: wanted.hidden.then(|| cat::<B>(hidden_parts)),
        weight: weight_gradient.map(WeightGradient::into_gradient),
        bias: bias_gradient.map(|gradient| B::float_reshape(gradient, [vocabulary].into())),
    }
}

impl<B: Backend> Problem<'_, B> {
    fn logits<S: Steps<B>>(
        &self,
        hidden: FloatTensor<B>,
        weight: FloatTensor<B>,
        ids: &Range<usize>,
    ) -> FloatTensor<B> {
        let bias = self.bias.map(|bias| B::float_slice(bias.clone(), &[slice(ids)]));
        S::logits(hidden, weight, bias)
    }

    fn position_ranges(&self) -> impl Iterator<Item = Range<usize>> + use<B> {
        ranges(self.targets.ids().len(), POSITIONS)
    }
}

/// Returns the ids of each tile.
fn id_ranges(targets: &Targets) -> impl Iterator<Item = Range<usize>> + use<> {
    ranges(targets.vocabulary(), IDS)
}

/// Weight gradient, accumulated in place.
struct WeightGradient<B: Backend> {
    /// `[width, vocabulary]`, or `[vocabulary, width]` if transposed.
    sum: Option<FloatTensor<B>>,
    transposed: bool,
}

impl<B: Backend> WeightGradient<B> {
    fn new<S: Steps<B>>(weight: &FloatTensor<B>) -> Self {
        let transposed = S::is_transposed(weight);
        let [width, vocabulary] = weight.shape().dims();
        let shape = if transposed { [vocabulary, width] } else { [width, vocabulary] };
        Self { sum: Some(S::zeros(weight, shape)), transposed }
    }

    /// Adds `hiddenᵀ · gradient` to the columns in `ids`.
    fn add<S: Steps<B>>(
        &mut self,
        hidden: &FloatTensor<B>,
        gradient: &FloatTensor<B>,
        ids: &Range<usize>,
    ) {
        let sum = self.sum.take().expect("there between additions");
        let [width] = [hidden.shape()[1]];
        let (term, place) = if self.transposed {
            let term = S::matmul(B::float_transpose(gradient.clone()), hidden.clone());
            (term, [slice(ids), slice(&(0..width))])
        } else {
            let term = S::matmul(B::float_transpose(hidden.clone()), gradient.clone());
            (term, [slice(&(0..width)), slice(ids)])
        };
        let term = B::float_add(term, B::float_slice(sum.clone(), &place));
        // The slice has been dropped, so the tensor is uniquely owned and can be modified in place.
        self.sum = Some(B::float_slice_assign(sum, &place, term));
    }

    fn into_gradient(self) -> FloatTensor<B> {
        let sum = self.sum.expect("there between additions");
        if self.transposed { B::float_transpose(sum) } else { sum }
    }
}

fn plus<B: Backend>(sum: Option<FloatTensor<B>>, term: FloatTensor<B>) -> FloatTensor<B> {
    match sum {
        Some(sum) => B::float_add(sum, term),
        None => term,
    }
}

fn cat<B: Backend>(mut parts: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    match parts.len() {
        1 => parts.remove(0),
        _ => B::float_cat(parts, 0),
    }
}

fn rows<B: Backend>(of: &FloatTensor<B>, range: &Range<usize>) -> FloatTensor<B> {
    B::float_slice(of.clone(), &[slice(range)])
}

pub(crate) fn columns<B: Backend>(of: &FloatTensor<B>, range: &Range<usize>) -> FloatTensor<B> {
    let rows = of.shape()[0];
    B::float_slice(of.clone(), &[slice(&(0..rows)), slice(range)])
}

fn slice(range: &Range<usize>) -> Slice {
    Slice::from(range.start as isize..range.end as isize)
}

fn ranges(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(step.max(1)).map(move |start| start..(start + step).min(len))
}
