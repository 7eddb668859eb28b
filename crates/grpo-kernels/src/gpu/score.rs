//! Element-wise steps of scoring a tile of logits, with one cube per position.
//!
//! A tile has the logits of some positions for some ids, `[positions, ids]`. `grpo-logprob` calls these
//! kernels for one tile after another, and computes the products between them.

use burn::backend::TensorMetadata;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::cube_each;
use super::reduce::{UNITS, max_of_units, sum_of_units};

/// How the logits of a tile become the distribution that was sampled. Where a distribution depends on a
/// set of ids, the set has a bit per id of the tile, in words of 32 bits that begin with the lowest.
#[derive(Clone, Copy)]
pub struct TileOfLogits<'a> {
    /// Chosen ids, `[positions]`.
    pub chosen: &'a CubeTensor,
    /// Id of the first column.
    pub first: usize,
    /// Divides the logits.
    pub temperature: f32,
    /// Sets of ids that could not be sampled, `[positions, words]`, or `[1, words]` if it is the same for
    /// all.
    pub excluded: Option<&'a CubeTensor>,
    /// Sets of ids with a repetition penalty, `[positions, words]`, and the penalty.
    pub penalised: Option<(&'a CubeTensor, f32)>,
    /// Scaled logit of excluded ids.
    pub least: f32,
}

/// Number of rows in [`absorb_logits`]' `running`: the largest scaled logit `x` so far, `Σ exp(x − max)`,
/// `Σ exp(x − max) (x − max)`, `x` of the chosen id, its derivative with respect to the logit times the
/// temperature, and `exp(old max − max)` of the last tile.
pub const RUNNING: usize = 6;

/// Number of bits in a word of a set.
const WORD: usize = 32;

const MAX: usize = 0;
const SUM: usize = 1;
const WEIGHTED: usize = 2;
const CHOSEN: usize = 3;
const CHOSEN_FACTOR: usize = 4;
const RESCALE: usize = 5;

/// Adds a tile to `running`, `[RUNNING, positions]`. With `weigh`, the logits are replaced with
/// `exp(x − max) · ∂x/∂logit · temperature`, where `x` is the scaled logit. Otherwise, nothing is returned.
///
/// # Panics
/// Panics if `running` or the logits have other owners.
pub fn absorb_logits(
    running: &CubeTensor,
    logits: CubeTensor,
    tile: TileOfLogits<'_>,
    weigh: bool,
) -> Option<CubeTensor> {
    let logits = own(logits);
    let [positions, ids] = [0, 1].map(|axis| logits.shape()[axis]);
    let sets = tile.sets();
    let (count, dim) = cube_each(&logits.client, positions);
    absorb::launch(
        &logits.client,
        count,
        dim,
        running.clone().into_buffer_arg(),
        logits.clone().into_buffer_arg(),
        tile.chosen.clone().into_buffer_arg(),
        sets.excluded.into_buffer_arg(),
        sets.penalised.into_buffer_arg(),
        positions,
        ids,
        tile.first,
        1.0 / tile.temperature,
        tile.least,
        sets.penalty,
        sets.stride,
        sets.is_excluded,
        sets.is_penalised,
        weigh,
    );
    weigh.then_some(logits)
}

/// Replaces the logits of a tile with the gradient of the scores. `scores` and `upstream` are
/// `[positions, 2]`, and `log_normalizer` is `[positions, 1]`.
pub fn logit_gradients(
    logits: CubeTensor,
    [scores, log_normalizer, upstream]: [&CubeTensor; 3],
    tile: TileOfLogits<'_>,
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
        tile.least,
        sets.penalty,
        sets.stride,
        sets.is_excluded,
        sets.is_penalised,
    );
    logits
}

/// Returns the tensor in row-major order, copied if it has other owners.
fn own(x: CubeTensor) -> CubeTensor {
    let x = into_contiguous(x);
    if x.can_mut() { x } else { x.copy() }
}

/// The sets of a tile as arguments of a kernel, which needs a buffer for each even if it doesn't read it.
struct Sets {
    excluded: CubeTensor,
    penalised: CubeTensor,
    penalty: f32,
    /// Words between the excluded sets of two positions.
    stride: usize,
    is_excluded: bool,
    is_penalised: bool,
}

impl TileOfLogits<'_> {
    fn sets(&self) -> Sets {
        let (penalised, penalty) = self.penalised.unwrap_or((self.chosen, 1.0));
        let excluded = self.excluded.unwrap_or(self.chosen);
        let stride = match self.excluded.map(|sets| sets.shape().dims()) {
            None | Some([1, _]) => 0,
            Some([_, words]) => words,
        };
        Sets {
            excluded: excluded.clone(),
            penalised: penalised.clone(),
            penalty,
            stride,
            is_excluded: self.excluded.is_some(),
            is_penalised: self.penalised.is_some(),
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
    least: f32,
    penalty: f32,
    stride: usize,
    #[comptime] is_excluded: bool,
    #[comptime] is_penalised: bool,
    #[comptime] weigh: bool,
) {
    let row = CUBE_POS;
    if row >= positions {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let start = row * ids;
    let mut of_unit = least;
    let mut column = unit;
    while column < ids {
        if !is_in(excluded, row * stride, column, is_excluded) {
            let logit = logits[start + column];
            let factor = factor_of(logit, penalised, row, ids, column, penalty, is_penalised);
            of_unit = of_unit.max(scaled(logit, factor, inverse_temperature, least));
        }
        column += UNITS;
    }
    let old = running[MAX * positions + row];
    let max = old.max(max_of_units(of_unit, &mut shared));
    let mut of_sum = 0.0f32;
    let mut of_weighted = 0.0f32;
    let mut column = unit;
    while column < ids {
        let logit = logits[start + column];
        let mut factor = factor_of(logit, penalised, row, ids, column, penalty, is_penalised);
        let mut x = scaled(logit, factor, inverse_temperature, least);
        if is_in(excluded, row * stride, column, is_excluded) {
            x = least;
            factor = 0.0f32;
        }
        let mut weight = (x - max).exp();
        if x.is_nan() {
            weight = x;
        }
        of_sum += weight;
        of_weighted += weight * (x - max);
        if first + column == chosen[row] as usize {
            running[CHOSEN * positions + row] = x;
            running[CHOSEN_FACTOR * positions + row] = factor;
        }
        if weigh {
            logits[start + column] = weight * factor;
        }
        column += UNITS;
    }
    let of_tile = sum_of_units(of_sum, &mut shared);
    let weighted_of_tile = sum_of_units(of_weighted, &mut shared);
    if unit == 0 {
        let rescale = (old - max).exp();
        let sum = running[SUM * positions + row];
        let weighted = running[WEIGHTED * positions + row];
        running[MAX * positions + row] = max;
        running[SUM * positions + row] = rescale * sum + of_tile;
        running[WEIGHTED * positions + row] =
            rescale * (weighted + sum * (old - max)) + weighted_of_tile;
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
    least: f32,
    penalty: f32,
    stride: usize,
    #[comptime] is_excluded: bool,
    #[comptime] is_penalised: bool,
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
        if !is_in(excluded, row * stride, column, is_excluded) {
            let logit = logits[start + column];
            let factor = factor_of(logit, penalised, row, ids, column, penalty, is_penalised);
            let x = scaled(logit, factor, inverse_temperature, least);
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
    #[comptime] is_penalised: bool,
) -> f32 {
    let mut factor = 1.0f32;
    if is_in(penalised, row * ids.div_ceil(WORD), column, is_penalised) {
        factor = penalty;
        if logit > 0.0f32 {
            factor = 1.0f32 / penalty;
        }
    }
    factor
}

#[cube]
fn scaled(logit: f32, factor: f32, inverse_temperature: f32, least: f32) -> f32 {
    let mut x = logit * factor * inverse_temperature;
    // Infinity times 0 is NaN. A device may treat NaN as less than any number.
    if x < least && !x.is_nan() {
        x = least;
    }
    x
}

/// Returns whether a column is in the set that begins with the word `start`. If `any` is false, there
/// are no sets.
#[cube]
fn is_in(sets: &[i32], start: usize, column: usize, #[comptime] any: bool) -> bool {
    let mut inside = false;
    if any {
        let word = sets[start + column / WORD];
        inside = (word >> (column % WORD) as i32) & 1i32 == 1i32;
    }
    inside
}
