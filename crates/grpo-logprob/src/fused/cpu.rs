//! Element-wise tile operations for `f32` on the CPU. Rows are processed in parallel with
//! vectorised loops.

use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{Tensor, TensorData};
use grpo_kernels::simd;
use multiversion::multiversion;
use rayon::prelude::*;

use super::{Steps, TilePosition, id_ranges};
use crate::Targets;
use crate::tiles::RowSets;

/// CPU implementation of [`Steps`].
pub(crate) struct Fused;

/// Running sums for one position over all ids so far, where `x` is the scaled logit.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// `max x`.
    max: f32,
    /// `Σ exp(x − max)`. Stored in f64 because it accumulates over many tiles.
    sum: f64,
    /// `Σ exp(x − max) (x − max)`.
    weighted: f64,
    /// `x` for the target token.
    chosen: f32,
    /// `∂ x / ∂ logit · temperature` for the target token.
    chosen_factor: f32,
    /// `exp(old max − max)` for the last tile.
    rescale: f32,
}

/// Scaled logit of excluded ids.
const EXCLUDED: f32 = crate::tiles::EXCLUDED as f32;

impl Steps<Flex> for Fused {
    type Running = Vec<Row>;

    fn start(_like: &FlexTensor, positions: usize) -> Vec<Row> {
        vec![Row::default(); positions]
    }

    fn absorb(
        running: &mut Vec<Row>,
        mut logits: FlexTensor,
        at: &mut TilePosition<'_>,
        weigh: bool,
    ) -> Option<FlexTensor> {
        let scale = Scale::new(at);
        let chosen = at.chosen();
        logits
            .storage_mut::<f32>()
            .par_chunks_mut(at.ids.len())
            .zip(running.par_iter_mut())
            .zip(at.tiles.rows.par_iter_mut().zip(chosen))
            .for_each(|((x, row), (sets, &chosen))| {
                let factors = row.add_logits(x, &scale, sets, chosen, weigh);
                if weigh {
                    factors.iter().for_each(|&(place, factor)| x[place] *= factor);
                }
            });
        weigh.then_some(logits)
    }

    fn accumulate(running: &Vec<Row>, mut sum: FlexTensor, term: FlexTensor) -> FlexTensor {
        let width = sum.shape()[1];
        sum.storage_mut::<f32>()
            .par_chunks_mut(width)
            .zip(term.storage::<f32>().par_chunks(width))
            .zip(running)
            .for_each(|((sum, term), row)| rescale_and_add(sum, term, row.rescale));
        sum
    }

    fn finish(running: &Vec<Row>) -> [FlexTensor; 2] {
        let scores = running.iter().flat_map(|row| [row.logprob(), row.entropy()]);
        let normalizers = running.iter().map(|row| (f64::from(row.max) + row.sum.ln()) as f32);
        let rows = running.len();
        [tensor(scores.collect(), [rows, 2]), tensor(normalizers.collect(), [rows, 1])]
    }

    fn direction(
        running: &Vec<Row>,
        mut sum: FlexTensor,
        weight: &FlexTensor,
        at: &TilePosition<'_>,
    ) -> FlexTensor {
        let width = sum.shape()[1];
        let strides = weight.layout().strides();
        let (down, across) = (strides[0], strides[1]);
        let start = weight.layout().start_offset() as isize;
        let (head, inverse_temperature) = (weight.storage::<f32>(), 1.0 / at.targets.temperature());
        sum.storage_mut::<f32>().par_chunks_mut(width).zip(running).zip(at.chosen()).for_each(
            |((sum, row), &chosen)| {
                let inverse_sum = (1.0 / row.sum) as f32;
                let first = start + chosen as isize * across;
                for (k, sum) in sum.iter_mut().enumerate() {
                    let of_chosen = head[(first + k as isize * down) as usize] * row.chosen_factor;
                    *sum = (of_chosen - *sum * inverse_sum) * inverse_temperature;
                }
            },
        );
        sum
    }

    fn gradient(
        mut logits: FlexTensor,
        scores: &FlexTensor,
        log_normalizer: &FlexTensor,
        upstream: &FlexTensor,
        at: &mut TilePosition<'_>,
    ) -> FlexTensor {
        let scale = Scale::new(at);
        let chosen = at.chosen();
        let [scores, log_normalizer, upstream] =
            [scores, log_normalizer, upstream].map(FlexTensor::to_contiguous);
        let columns = scores.storage::<f32>().par_chunks(2).zip(log_normalizer.storage::<f32>());
        logits
            .storage_mut::<f32>()
            .par_chunks_mut(at.ids.len())
            .zip(columns.zip(upstream.storage::<f32>().par_chunks(2)))
            .zip(at.tiles.rows.par_iter_mut().zip(chosen))
            .for_each(|((x, ((score, &log_normalizer), upstream)), (sets, &chosen))| {
                let mut again = Excluded::default();
                let factors = scale.apply_noting(x, sets, &mut again);
                let (of_logprob, of_entropy) = (upstream[0], upstream[1]);
                // ∂ log π(y) / ∂ x_v = [v = y] − π_v, ∂ H / ∂ x_v = −π_v (ln π_v + H).
                gradient_row(x, log_normalizer, of_logprob, of_entropy, score[1]);
                if let Some(place) = scale.place_of(chosen) {
                    x[place] += of_logprob;
                }
                again.clear(x);
                factors.iter().for_each(|&(place, factor)| x[place] *= factor);
                scale_row(x, scale.inverse_temperature);
            });
        logits
    }

    fn matmul(a: FlexTensor, b: FlexTensor) -> FlexTensor {
        let [a, b] = [a, b].map(Tensor::<2>::from_primitive::<Flex>);
        let product = grpo_kernels::matmul(a, b).try_into_primitive::<Flex>();
        product.expect("the product of CPU tensors is on the CPU")
    }

    fn logits(hidden: FlexTensor, weight: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
        let [hidden, weight] = [hidden, weight].map(Tensor::<2>::from_primitive::<Flex>);
        let bias = bias.map(Tensor::<1>::from_primitive::<Flex>);
        let logits = grpo_kernels::linear(hidden, weight, bias).try_into_primitive::<Flex>();
        logits.expect("the logits of CPU tensors are on the CPU")
    }

    fn zeros(_like: &FlexTensor, shape: [usize; 2]) -> FlexTensor {
        // `FlexTensor::zeros` may allocate unaligned memory, which would require a copy.
        tensor(vec![0.0; shape[0] * shape[1]], shape)
    }

    fn is_transposed(weight: &FlexTensor) -> bool {
        let strides = weight.layout().strides();
        strides[0] == 1 && strides[1] != 1
    }
}

impl Default for Row {
    fn default() -> Self {
        Self {
            max: EXCLUDED,
            sum: 0.0,
            weighted: 0.0,
            chosen: EXCLUDED,
            chosen_factor: 1.0,
            rescale: 0.0,
        }
    }
}

impl Row {
    /// Adds the logits of a tile, which are replaced by scaled logits, or by `exp(x − max)` if `weigh`
    /// is true. Returns the factor of each penalised index.
    fn add_logits(
        &mut self,
        x: &mut [f32],
        scale: &Scale,
        sets: &mut RowSets<'_>,
        chosen: u32,
        weigh: bool,
    ) -> Vec<(usize, f32)> {
        let factors = scale.apply(x, sets);
        if let Some(place) = scale.place_of(chosen) {
            self.chosen = x[place];
            let could_be_drawn = self.chosen > EXCLUDED;
            self.chosen_factor = if could_be_drawn { factor_at(&factors, place) } else { 0.0 };
        }
        self.absorb(x, weigh);
        factors
    }

    fn logprob(&self) -> f32 {
        let logprob = f64::from(self.chosen) - f64::from(self.max) - self.sum.ln();
        at_most_zero(logprob) as f32
    }

    fn entropy(&self) -> f32 {
        (self.sum.ln() - self.weighted / self.sum) as f32
    }

    /// Adds a tile to the running sums. If `weigh` is true, `x` is replaced by `exp(x − max)`.
    fn absorb(&mut self, x: &mut [f32], weigh: bool) {
        let max = self.max.max(simd::max(x));
        let (sum, weighted) = if weigh { exponentiate(x, max) } else { sums(x, max) };
        self.rescale = (self.max - max).exp();
        if self.sum > 0.0 {
            let (rescale, shift) = (f64::from(self.max - max).exp(), f64::from(self.max - max));
            self.weighted = rescale * (self.weighted + self.sum * shift);
            self.sum *= rescale;
        }
        self.sum += f64::from(sum);
        self.weighted += f64::from(weighted);
        self.max = max;
    }
}

/// Returns the log-probability of a single target for its logits, `[vocabulary]`. It has the bits of
/// [`score`](crate::score) on the CPU.
pub(crate) fn logprob(logits: &[f32], target: &Targets) -> f32 {
    let mut at = TilePosition::new(target, 0..1);
    let mut row = Row::default();
    let mut tile = Vec::new();
    for ids in id_ranges(target) {
        at.ids = ids.clone();
        tile.clear();
        tile.extend_from_slice(&logits[ids]);
        let scale = Scale::new(&at);
        let chosen = at.chosen()[0];
        row.add_logits(&mut tile, &scale, &mut at.tiles.rows[0], chosen, false);
    }
    row.logprob()
}

/// Converts the logits in a tile to scaled logits.
struct Scale {
    inverse_temperature: f32,
    penalty: f32,
    forbidden: Vec<usize>,
    ids: std::ops::Range<usize>,
}

/// Excluded indices in a tile.
#[derive(Default)]
struct Excluded {
    forbidden: Vec<usize>,
    /// If sampling was truncated, all indices except these are excluded.
    kept: Option<Vec<usize>>,
}

impl Scale {
    fn new(at: &TilePosition<'_>) -> Self {
        Self {
            inverse_temperature: 1.0 / at.targets.temperature(),
            penalty: at.targets.penalty().map_or(1.0, |penalty| penalty.factor),
            forbidden: at.tiles.forbidden(&at.ids),
            ids: at.ids.clone(),
        }
    }

    fn place_of(&self, id: u32) -> Option<usize> {
        let id = id as usize;
        self.ids.contains(&id).then(|| id - self.ids.start)
    }

    fn apply(&self, x: &mut [f32], sets: &mut RowSets<'_>) -> Vec<(usize, f32)> {
        self.apply_noting(x, sets, &mut Excluded::default())
    }

    /// Scales logits in place and returns the factor for each penalised index.
    fn apply_noting(
        &self,
        x: &mut [f32],
        sets: &mut RowSets<'_>,
        excluded: &mut Excluded,
    ) -> Vec<(usize, f32)> {
        let factors: Vec<(usize, f32)> = sets
            .seen_in(&self.ids)
            .map(|place| {
                let factor = if x[place] > 0.0 { 1.0 / self.penalty } else { self.penalty };
                x[place] *= factor;
                (place, factor)
            })
            .collect();
        scale_row(x, self.inverse_temperature);
        if sets.is_truncated() {
            let kept: Vec<(usize, f32)> =
                sets.kept_in(&self.ids).map(|place| (place, x[place])).collect();
            x.fill(EXCLUDED);
            kept.iter().for_each(|&(place, value)| x[place] = value);
            excluded.kept = Some(kept.into_iter().map(|(place, _)| place).collect());
        }
        self.forbidden.iter().for_each(|&place| x[place] = EXCLUDED);
        excluded.forbidden.clone_from(&self.forbidden);
        factors
    }
}

impl Excluded {
    /// Sets the gradient to zero for excluded ids.
    fn clear(&self, gradient: &mut [f32]) {
        if let Some(kept) = &self.kept {
            let kept: Vec<(usize, f32)> =
                kept.iter().map(|&place| (place, gradient[place])).collect();
            gradient.fill(0.0);
            kept.into_iter().for_each(|(place, value)| gradient[place] = value);
        }
        self.forbidden.iter().for_each(|&place| gradient[place] = 0.0);
    }
}

fn factor_at(factors: &[(usize, f32)], place: usize) -> f32 {
    factors.binary_search_by_key(&place, |&(place, _)| place).map_or(1.0, |i| factors[i].1)
}

/// Clamps very low exponents, for which `exp` and its product with the exponent are negligible.
/// Unlike `f32::max`, this preserves NaN.
#[inline(always)]
fn at_least_lowest(exponent: f32) -> f32 {
    if exponent < -87.0 { -87.0 } else { exponent }
}

/// Returns `exp(x − max)` and `exp(x − max) (x − max)`.
#[inline(always)]
fn term(x: f32, max: f32) -> (f32, f32) {
    let shifted = at_least_lowest(x - max);
    let e = simd::exp(shifted);
    (e, e * shifted)
}

/// Returns `Σ exp(x − max)` and `Σ exp(x − max) (x − max)`.
#[multiversion(targets = "simd")]
fn sums(x: &[f32], max: f32) -> (f32, f32) {
    let (mut sum, mut weighted) = ([0.0_f32; simd::LANES], [0.0_f32; simd::LANES]);
    let mut chunks = x.chunks_exact(simd::LANES);
    for chunk in &mut chunks {
        for lane in 0..simd::LANES {
            let (e, product) = term(chunk[lane], max);
            sum[lane] += e;
            weighted[lane] += product;
        }
    }
    for (lane, &x) in chunks.remainder().iter().enumerate() {
        let (e, product) = term(x, max);
        sum[lane] += e;
        weighted[lane] += product;
    }
    (sum.iter().sum(), weighted.iter().sum())
}

/// Like [`sums`], but also replaces `x` by `exp(x − max)`.
#[multiversion(targets = "simd")]
fn exponentiate(x: &mut [f32], max: f32) -> (f32, f32) {
    let (mut sum, mut weighted) = ([0.0_f32; simd::LANES], [0.0_f32; simd::LANES]);
    let mut chunks = x.chunks_exact_mut(simd::LANES);
    for chunk in &mut chunks {
        for lane in 0..simd::LANES {
            let (e, product) = term(chunk[lane], max);
            sum[lane] += e;
            weighted[lane] += product;
            chunk[lane] = e;
        }
    }
    for (lane, x) in chunks.into_remainder().iter_mut().enumerate() {
        let (e, product) = term(*x, max);
        sum[lane] += e;
        weighted[lane] += product;
        *x = e;
    }
    (sum.iter().sum(), weighted.iter().sum())
}

/// Computes `−π (g + h (ln π + H))`, where `ln π = x − log_normalizer`.
#[multiversion(targets = "simd")]
fn gradient_row(
    x: &mut [f32],
    log_normalizer: f32,
    of_logprob: f32,
    of_entropy: f32,
    entropy: f32,
) {
    for x in x {
        let logprob = at_least_lowest(*x - log_normalizer);
        *x = -simd::exp(logprob) * (of_logprob + of_entropy * (logprob + entropy));
    }
}

#[multiversion(targets = "simd")]
fn scale_row(x: &mut [f32], by: f32) {
    if by != 1.0 {
        x.iter_mut().for_each(|x| *x *= by);
    }
}

#[multiversion(targets = "simd")]
fn rescale_and_add(sum: &mut [f32], term: &[f32], rescale: f32) {
    for (sum, term) in sum.iter_mut().zip(term) {
        *sum = *sum * rescale + term;
    }
}

/// Clamps a log-probability to at most 0, which may be exceeded due to rounding. Unlike `f64::min`,
/// this preserves NaN.
fn at_most_zero(logprob: f64) -> f64 {
    if logprob > 0.0 { 0.0 } else { logprob }
}

fn tensor(values: Vec<f32>, shape: [usize; 2]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}
