//! Element-wise steps of scoring a tile of logits, with one cube per position.
//!
//! A tile has the logits of some positions for some ids, `[positions, ids]`. `grpo-logprob` calls these
//! kernels for one tile after another, and computes the products between them.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{Slice, TensorData};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::reduce::{UNITS, max_of_units, sum_of_units};
use super::{cube_each, own};

/// A tile's targets and sampling distribution. A set of ids is a bit mask of `i32` words: bit `i % 32` of
/// word `i / 32` stands for the id `first + i`.
#[derive(Clone, Copy)]
pub struct LogitTile<'a> {
    /// Target ids, `[positions]`.
    pub chosen: &'a CubeTensor,
    /// Id of the first column.
    pub first: usize,
    /// Divides the logits.
    pub temperature: f32,
    /// Ids that could not be sampled, `[positions, words]`, or `[1, words]` if they are the same for all
    /// positions.
    pub excluded: Option<&'a CubeTensor>,
    /// Ids with a repetition penalty, `[positions, words]`, and the penalty.
    pub penalised: Option<(&'a CubeTensor, f32)>,
    /// Scaled logit of excluded ids.
    pub excluded_logit: f32,
}

/// Running sums of each position over the tiles so far, where `x` is the scaled logit.
#[derive(Clone, Debug)]
pub struct RunningScores(CubeTensor);

/// Number of bits in a word of a set.
const WORD: usize = 32;

// Rows of the running sums, each with one number per position.

/// `max x`.
const MAX: usize = 0;
/// `Σ exp(x − max)`.
const SUM: usize = 1;
/// `Σ exp(x − max) (x − max)`.
const WEIGHTED: usize = 2;
/// `x` of the target.
const CHOSEN: usize = 3;
/// `∂x / ∂logit · temperature` of the target.
const CHOSEN_FACTOR: usize = 4;
/// `exp(old max − max)` of the last tile.
const RESCALE: usize = 5;

impl RunningScores {
    /// Creates the sums over no tiles, on the device of `like`.
    pub fn new(like: &CubeTensor, positions: usize, excluded_logit: f32) -> Self {
        let rows = [excluded_logit, 0.0, 0.0, excluded_logit, 1.0, 0.0];
        let values: Vec<f32> =
            rows.into_iter().flat_map(|value| std::iter::repeat_n(value, positions)).collect();
        let values = TensorData::new(values, [rows.len(), positions]);
        Self(Cube::float_from_data(values, &like.device()))
    }

    /// Adds a tile. The logits, `[positions, ids]`, are copied if they have other owners. With `weigh`,
    /// returns `exp(x − max) · ∂x/∂logit · temperature`, in the same shape.
    pub fn absorb(
        &mut self,
        logits: CubeTensor,
        tile: LogitTile<'_>,
        weigh: bool,
    ) -> Option<CubeTensor> {
        let logits = own(logits);
        // Clones keep their sums.
        if !self.0.can_mut() {
            self.0 = self.0.copy();
        }
        let [positions, ids] = [0, 1].map(|axis| logits.shape()[axis]);
        let sets = tile.sets();
        let (count, dim) = cube_each(&logits.client, positions);
        absorb::launch(
            &logits.client,
            count,
            dim,
            self.0.clone().into_buffer_arg(),
            logits.clone().into_buffer_arg(),
            tile.chosen.clone().into_buffer_arg(),
            sets.excluded.into_buffer_arg(),
            sets.penalised.into_buffer_arg(),
            positions,
            ids,
            tile.first,
            1.0 / tile.temperature,
            tile.excluded_logit,
            sets.penalty,
            sets.stride,
            sets.has_excluded,
            sets.has_penalised,
            weigh,
        );
        weigh.then_some(logits)
    }

    /// Returns `max x`, `[positions, 1]`, like the following.
    pub fn max(&self) -> CubeTensor {
        self.column(MAX)
    }

    /// Returns `Σ exp(x − max)`.
    pub fn sum(&self) -> CubeTensor {
        self.column(SUM)
    }

    /// Returns `Σ exp(x − max) (x − max)`.
    pub fn weighted(&self) -> CubeTensor {
        self.column(WEIGHTED)
    }

    /// Returns `x` of the target.
    pub fn chosen(&self) -> CubeTensor {
        self.column(CHOSEN)
    }

    /// Returns `∂x / ∂logit · temperature` of the target, which is 0 if the target is excluded.
    pub fn chosen_factor(&self) -> CubeTensor {
        self.column(CHOSEN_FACTOR)
    }

    /// Returns `exp(old max − max)` of the last tile.
    pub fn rescale(&self) -> CubeTensor {
        self.column(RESCALE)
    }

    fn column(&self, row: usize) -> CubeTensor {
        let positions = self.0.shape()[1];
        let row = row as isize..row as isize + 1;
        let row = Cube::float_slice(self.0.clone(), &[Slice::from(row)]);
        Cube::float_reshape(row, [positions, 1].into())
    }
}

/// Returns the gradient of the scores with respect to the logits of a tile, `[positions, ids]`, given
/// `scores`, `[positions, 2]`, `log_normalizer`, `[positions, 1]`, and the gradient of the scores,
/// `upstream`, `[positions, 2]`. The logits are copied if they have other owners.
pub fn logit_gradients(
    logits: CubeTensor,
    [scores, log_normalizer, upstream]: [&CubeTensor; 3],
    tile: LogitTile<'_>,
) -> CubeTensor {
    let logits = own(logits);
    let [positions, ids] = [0, 1].map(|axis| logits.shape()[axis]);
    let sets = tile.sets();
    let (count, dim) = cube_each(&logits.client, positions);
    gradient::launch(
        &logits.client,
        count,
        dim,
        logits.clone().into_buffer_arg(),
        into_contiguous(scores.clone()).into_buffer_arg(),
        into_contiguous(log_normalizer.clone()).into_buffer_arg(),
        into_contiguous(upstream.clone()).into_buffer_arg(),
        tile.chosen.clone().into_buffer_arg(),
        sets.excluded.into_buffer_arg(),
        sets.penalised.into_buffer_arg(),
        positions,
        ids,
        tile.first,
        1.0 / tile.temperature,
        tile.excluded_logit,
        sets.penalty,
        sets.stride,
        sets.has_excluded,
        sets.has_penalised,
    );
    logits
}

/// The sets of a tile as arguments of a kernel, which needs a buffer for each even if it doesn't read it.
struct Sets {
    excluded: CubeTensor,
    penalised: CubeTensor,
    penalty: f32,
    /// Number of words between the excluded sets of two positions.
    stride: usize,
    has_excluded: bool,
    has_penalised: bool,
}

impl LogitTile<'_> {
    fn sets(&self) -> Sets {
        let (penalised, penalty) = self.penalised.unwrap_or((self.chosen, 1.0));
        let stride = match self.excluded.map(|sets| sets.shape().dims()) {
            None | Some([1, _]) => 0,
            Some([_, words]) => words,
        };
        Sets {
            excluded: self.excluded.unwrap_or(self.chosen).clone(),
            penalised: penalised.clone(),
            penalty,
            stride,
            has_excluded: self.excluded.is_some(),
            has_penalised: self.penalised.is_some(),
        }
    }
}

#[cube(launch)]
fn absorb(
    running: &mut [f32],
    logits: &mut [f32],
    chosen: &[i32],
    excluded: &[i32],
    penalised: &[i32],
    positions: usize,
    ids: usize,
    first: usize,
    inverse_temperature: f32,
    excluded_logit: f32,
    penalty: f32,
    stride: usize,
    #[comptime] has_excluded: bool,
    #[comptime] has_penalised: bool,
    #[comptime] weigh: bool,
) {
    let row = CUBE_POS;
    if row >= positions {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let start = row * ids;
    let mut unit_max = excluded_logit;
    let mut column = unit;
    while column < ids {
        if !contains(excluded, row * stride, column, has_excluded) {
            let logit = logits[start + column];
            let factor = factor_of(logit, penalised, row, ids, column, penalty, has_penalised);
            unit_max = unit_max.max(scaled(logit, factor, inverse_temperature, excluded_logit));
        }
        column += UNITS;
    }
    let old = running[MAX * positions + row];
    let max = old.max(max_of_units(unit_max, &mut shared));
    let mut unit_sum = 0.0f32;
    let mut unit_weighted = 0.0f32;
    let mut column = unit;
    while column < ids {
        let logit = logits[start + column];
        let mut factor = factor_of(logit, penalised, row, ids, column, penalty, has_penalised);
        let mut x = scaled(logit, factor, inverse_temperature, excluded_logit);
        if contains(excluded, row * stride, column, has_excluded) {
            x = excluded_logit;
            factor = 0.0f32;
        }
        let mut weight = (x - max).exp();
        if x.is_nan() {
            weight = x;
        }
        unit_sum += weight;
        unit_weighted += weight * (x - max);
        if first + column == chosen[row] as usize {
            running[CHOSEN * positions + row] = x;
            running[CHOSEN_FACTOR * positions + row] = factor;
        }
        if weigh {
            logits[start + column] = weight * factor;
        }
        column += UNITS;
    }
    let tile_sum = sum_of_units(unit_sum, &mut shared);
    let tile_weighted = sum_of_units(unit_weighted, &mut shared);
    if unit == 0 {
        let rescale = (old - max).exp();
        let sum = running[SUM * positions + row];
        let weighted = running[WEIGHTED * positions + row];
        running[MAX * positions + row] = max;
        running[SUM * positions + row] = rescale * sum + tile_sum;
        running[WEIGHTED * positions + row] =
            rescale * (weighted + sum * (old - max)) + tile_weighted;
        running[RESCALE * positions + row] = rescale;
    }
}

/// Computes `∂ log π(y) / ∂ x_v = [v = y] − π_v` and `∂ H / ∂ x_v = −π_v (ln π_v + H)`.
#[cube(launch)]
fn gradient(
    logits: &mut [f32],
    scores: &[f32],
    log_normalizers: &[f32],
    upstream: &[f32],
    chosen: &[i32],
    excluded: &[i32],
    penalised: &[i32],
    positions: usize,
    ids: usize,
    first: usize,
    inverse_temperature: f32,
    excluded_logit: f32,
    penalty: f32,
    stride: usize,
    #[comptime] has_excluded: bool,
    #[comptime] has_penalised: bool,
) {
    let row = CUBE_POS;
    if row >= positions {
        terminate!();
    }
    let start = row * ids;
    let entropy = scores[2 * row + 1];
    let of_logprob = upstream[2 * row];
    let of_entropy = upstream[2 * row + 1];
    let mut column = UNIT_POS as usize;
    while column < ids {
        let mut gradient = 0.0f32;
        if !contains(excluded, row * stride, column, has_excluded) {
            let logit = logits[start + column];
            let factor = factor_of(logit, penalised, row, ids, column, penalty, has_penalised);
            let x = scaled(logit, factor, inverse_temperature, excluded_logit);
            let logprob = x - log_normalizers[row];
            gradient = -logprob.exp() * (of_entropy * (logprob + entropy) + of_logprob);
            if first + column == chosen[row] as usize {
                gradient += of_logprob;
            }
            gradient = gradient * factor * inverse_temperature;
        }
        logits[start + column] = gradient;
        column += UNITS;
    }
}

/// Returns the penalty on a logit as a factor.
#[cube]
fn factor_of(
    logit: f32,
    penalised: &[i32],
    row: usize,
    ids: usize,
    column: usize,
    penalty: f32,
    #[comptime] has_penalised: bool,
) -> f32 {
    let mut factor = 1.0f32;
    if contains(penalised, row * ids.div_ceil(WORD), column, has_penalised) {
        factor = penalty;
        if logit > 0.0f32 {
            factor = 1.0f32 / penalty;
        }
    }
    factor
}

#[cube]
fn scaled(logit: f32, factor: f32, inverse_temperature: f32, excluded_logit: f32) -> f32 {
    let mut x = logit * factor * inverse_temperature;
    // −∞ times a probability of 0 would be NaN. NaN itself is kept: llvmpipe evaluates `NaN < x` as true.
    if x < excluded_logit && !x.is_nan() {
        x = excluded_logit;
    }
    x
}

/// Returns whether a column is in the set that begins with the word `start`, or false without sets.
#[cube]
fn contains(sets: &[i32], start: usize, column: usize, #[comptime] has_sets: bool) -> bool {
    let mut inside = false;
    if has_sets {
        let word = sets[start + column / WORD];
        inside = (word >> (column % WORD) as i32) & 1i32 == 1i32;
    }
    inside
}
