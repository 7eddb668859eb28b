//! Candidates for draws from truncated distributions, with one cube per row.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::draw::{forbidden_ids, is_allowed, largest_of};
use super::penalty::penalised;
use super::reduce::{UNITS, max_of_units, sum_of_units, sum_of_units_before};
use super::{cube_each, empty, primitive};
use crate::candidates::{Likely, Truncation};
use crate::scaling::Scaling;

/// Most candidates per row.
const CAPACITY: usize = 1024;
/// Candidates are the ids within some number of steps below the largest scaled logit.
const LEVELS: usize = 16;
const STEP: f32 = 1.25;
/// Numbers per row in the result: the number of candidates, the sum of all weights, and the id and
/// the logit of each candidate.
const WIDTH: usize = 2 + 2 * CAPACITY;

/// Finds candidates for each row, or returns `None` if it would not save anything. See
/// [`crate::likely_on_gpu`].
pub(crate) fn likely_rows(
    logits: Tensor<2>,
    scaling: &Scaling<'_>,
    truncation: Truncation,
) -> Option<Vec<Option<Likely>>> {
    let [rows, vocabulary] = logits.dims();
    let Truncation { ids: most, mass, gap } = truncation;
    if vocabulary <= WIDTH
        || most.is_some_and(|ids| ids > CAPACITY)
        || mass.is_some_and(|mass| mass > 1.0)
    {
        return None;
    }
    let Scaling { penalty, forbidden, temperature } = *scaling;
    let logits = penalised(logits, penalty);
    let ids = forbidden_ids(forbidden, vocabulary, &logits.device());
    let logits = primitive(logits);
    let found = empty(&logits, [rows, WIDTH]);
    let (count, dim) = cube_each(&logits.client, logits.shape()[0]);
    let allowed = vocabulary.saturating_sub(forbidden.len());
    likely::launch(
        &found.client,
        count,
        dim,
        logits.into_buffer_arg(),
        ids.into_buffer_arg(),
        found.clone().into_buffer_arg(),
        rows,
        vocabulary,
        1.0 / temperature,
        most.map_or(0.0, |ids| ids.min(allowed) as f32),
        mass.unwrap_or(0.0),
        gap.unwrap_or(0.0),
        forbidden.len(),
    );
    let found: Vec<f32> = Tensor::<2>::from_primitive::<Cube>(found).into_data().iter().collect();
    Some(found.chunks_exact(WIDTH).map(of_row).collect())
}

/// Reads the result of a row.
fn of_row(row: &[f32]) -> Option<Likely> {
    let (count, total) = (row[0], row[1]);
    // Negated, so that NaN is rejected.
    if !(count >= 1.0 && total.is_finite()) {
        return None;
    }
    let candidates = row[2..].chunks_exact(2).take(count as usize);
    Some(Likely {
        candidates: candidates.map(|pair| (pair[0] as u32, pair[1])).collect(),
        total: f64::from(total),
    })
}

/// Writes the ids, in ascending order, whose scaled logits are at most a number of levels below the
/// largest one: the smallest number with at least `ids` ids, the fraction `mass` of the total weight,
/// and a difference of `gap`. The number of candidates is −1 if there is none, or if there are too many
/// candidates.
///
/// Each unit has a segment of the vocabulary.
#[cube(launch)]
fn likely(
    logits: &[f32],
    forbidden: &[i32],
    found: &mut [f32],
    rows: usize,
    vocabulary: usize,
    inverse_temperature: f32,
    ids: f32,
    mass: f32,
    gap: f32,
    #[comptime] forbidden_ids: usize,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let segment = vocabulary.div_ceil(UNITS);
    let start = (unit * segment).min(vocabulary);
    let end = (start + segment).min(vocabulary);
    let first = row * vocabulary;
    let of_segment = largest_of(logits, forbidden, first, start, end, forbidden_ids);
    let largest = max_of_units(of_segment, &mut shared);
    let mut counts = Array::<f32>::new(LEVELS);
    let mut masses = Array::<f32>::new(LEVELS);
    let sum = add_levels(
        logits,
        forbidden,
        first,
        start,
        end,
        largest,
        inverse_temperature,
        &mut counts,
        &mut masses,
        forbidden_ids,
    );
    let total = sum_of_units(sum, &mut shared);
    // All units find the same level, the lowest that is enough.
    let mut own = 0.0f32;
    let mut all = f32::new(-1.0f32);
    let mut bound = 0.0f32;
    #[unroll]
    for up in 0..LEVELS {
        let level = comptime!(LEVELS - 1 - up);
        let count = sum_of_units(counts[level], &mut shared);
        let weights = sum_of_units(masses[level], &mut shared);
        let depth = comptime!((level + 1) as f32 * STEP).runtime();
        if count >= ids && weights >= mass * total && depth >= gap {
            own = counts[level];
            all = count;
            bound = depth;
        }
    }
    if all > comptime!(CAPACITY as f32).runtime() {
        all = f32::new(-1.0f32);
    }
    let before = sum_of_units_before(own, &mut shared);
    let to = row * WIDTH;
    if unit == 0 {
        found[to] = all;
        found[to + 1] = total;
    }
    if all > 0.0f32 {
        write_candidates(
            logits,
            forbidden,
            first,
            start,
            end,
            largest,
            bound,
            inverse_temperature,
            found,
            to + 2 + 2 * before as usize,
            forbidden_ids,
        );
    }
}

/// Counts the ids of a segment for each level, and adds up their weights. Returns the sum of all
/// weights.
#[cube]
fn add_levels(
    logits: &[f32],
    forbidden: &[i32],
    first: usize,
    start: usize,
    end: usize,
    largest: f32,
    inverse_temperature: f32,
    counts: &mut Array<f32>,
    masses: &mut Array<f32>,
    #[comptime] forbidden_ids: usize,
) -> f32 {
    #[unroll]
    for level in 0..LEVELS {
        counts[level] = 0.0f32;
        masses[level] = 0.0f32;
    }
    let mut sum = 0.0f32;
    let mut id = start;
    while id < end {
        if is_allowed(id, forbidden, forbidden_ids) {
            let below = (largest - logits[first + id]) * inverse_temperature;
            let weight = (-below).exp();
            sum += weight;
            #[unroll]
            for level in 0..LEVELS {
                if below <= comptime!((level + 1) as f32 * STEP).runtime() {
                    counts[level] += 1.0f32;
                    masses[level] += weight;
                }
            }
        }
        id += 1;
    }
    sum
}

/// Writes the ids of a segment that are at most `bound` below the largest one, and their logits.
#[cube]
fn write_candidates(
    logits: &[f32],
    forbidden: &[i32],
    first: usize,
    start: usize,
    end: usize,
    largest: f32,
    bound: f32,
    inverse_temperature: f32,
    found: &mut [f32],
    to: usize,
    #[comptime] forbidden_ids: usize,
) {
    let mut index = to;
    let mut id = start;
    while id < end {
        if is_allowed(id, forbidden, forbidden_ids) {
            let logit = logits[first + id];
            // As in the count of these ids.
            if (largest - logit) * inverse_temperature <= bound {
                found[index] = id as f32;
                found[index + 1] = logit;
                index += 2;
            }
        }
        id += 1;
    }
}
