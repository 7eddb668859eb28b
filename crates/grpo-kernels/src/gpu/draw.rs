//! Sampling of tokens, with one cube per row.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{Device, Tensor, TensorData};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::penalty::penalised;
use super::reduce::{UNITS, max_of_units};
use super::{cube_each, of_indices, primitive};
use crate::indices;
use crate::scaling::Scaling;

/// Draws an id for each row. See [`crate::draw_on_gpu`].
pub(crate) fn draw_rows(
    logits: Tensor<2>,
    scaling: &Scaling<'_>,
    uniforms: &[f64],
) -> Vec<Option<(u32, f32)>> {
    let Scaling { penalty, forbidden, temperature } = *scaling;
    let logits = penalised(logits, penalty);
    let device = logits.device();
    let [rows, vocabulary] = logits.dims();
    let uniforms: Vec<f32> = uniforms.iter().map(|&uniform| uniform as f32).collect();
    let uniforms = Tensor::<1>::from_data(TensorData::new(uniforms, [rows]), &device);
    let ids = forbidden_ids(forbidden, vocabulary, &device);
    let drawn = primitive(Tensor::<2>::full([rows, 2], -1.0, &device));
    let (logits, uniforms) = (primitive(logits), primitive(uniforms));
    let (count, dim) = cube_each(&logits.client, logits.shape()[0]);
    draw::launch(
        &drawn.client,
        count,
        dim,
        logits.into_buffer_arg(),
        uniforms.into_buffer_arg(),
        ids.into_buffer_arg(),
        drawn.clone().into_buffer_arg(),
        vocabulary,
        1.0 / temperature,
        forbidden.len(),
    );
    let drawn: Vec<f32> = Tensor::<2>::from_primitive::<Cube>(drawn).into_data().iter().collect();
    let of_row = |row: &[f32]| (row[0] >= 0.0).then(|| (row[0] as u32, row[1].min(0.0)));
    drawn.chunks_exact(2).map(of_row).collect()
}

/// Copies the forbidden ids to the device, followed by a number that is not an id, because a buffer
/// cannot be empty.
pub(super) fn forbidden_ids(forbidden: &[u32], vocabulary: usize, device: &Device) -> CubeTensor {
    let ids = forbidden.iter().map(|&id| id as usize).chain(std::iter::once(vocabulary));
    of_indices(indices(ids, device))
}

/// Below every logit, but not so far that a difference to it would be infinite.
const LEAST: f32 = -1e38;

/// Writes id and log-probability for each row. Where the distribution is not finite, `drawn` stays as it
/// is.
///
/// Each unit adds up the weights of a segment of the vocabulary. The unit in whose segment the
/// cumulative distribution reaches the uniform number finds the id there.
#[cube(launch)]
fn draw(
    logits: &[f32],
    uniforms: &[f32],
    forbidden: &[i32],
    drawn: &mut [f32],
    vocabulary: usize,
    inverse_temperature: f32,
    #[comptime] forbidden_ids: usize,
) {
    let row = CUBE_POS;
    if row >= uniforms.len() {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let segment = vocabulary.div_ceil(UNITS);
    let start = (unit * segment).min(vocabulary);
    let end = (start + segment).min(vocabulary);
    let first = row * vocabulary;
    let of_segment = largest_of(logits, forbidden, first, start, end, forbidden_ids);
    let largest = max_of_units(of_segment, &mut shared) * inverse_temperature;
    let mut sum = 0.0f32;
    let mut id = start;
    while id < end {
        if is_allowed(id, forbidden, forbidden_ids) {
            sum += (logits[first + id] * inverse_temperature - largest).exp();
        }
        id += 1;
    }
    shared[unit] = sum;
    sync_cube();
    // All units add in the same order, so the parts of the distribution have no gaps.
    let mut before = 0.0f32;
    let mut total = 0.0f32;
    let mut after = 0.0f32;
    for other in 0..UNITS {
        if other == unit {
            before = total;
        }
        if other > unit {
            after += shared[other];
        }
        total += shared[other];
    }
    let target = uniforms[row] * total;
    // Because of rounding, the target may not be below the total.
    let is_reached = target < before + sum || after == 0.0f32;
    if sum > 0.0f32 && before <= target && is_reached {
        let mut remaining = target - before;
        let mut chosen = start;
        let mut id = start;
        while id < end {
            let mut weight = 0.0f32;
            if is_allowed(id, forbidden, forbidden_ids) {
                weight = (logits[first + id] * inverse_temperature - largest).exp();
            }
            if weight > 0.0f32 {
                chosen = id;
                if remaining < weight {
                    id = end;
                }
                remaining -= weight;
            }
            id += 1;
        }
        drawn[2 * row] = chosen as f32;
        drawn[2 * row + 1] = logits[first + chosen] * inverse_temperature - largest - total.ln();
    }
}

/// Returns the largest logit of a segment whose id is allowed.
#[cube]
pub(super) fn largest_of(
    logits: &[f32],
    forbidden: &[i32],
    first: usize,
    start: usize,
    end: usize,
    #[comptime] forbidden_ids: usize,
) -> f32 {
    let mut largest = f32::new(LEAST);
    let mut id = start;
    while id < end {
        if is_allowed(id, forbidden, forbidden_ids) {
            largest = largest.max(logits[first + id]);
        }
        id += 1;
    }
    largest
}

#[cube]
#[allow(clippy::needless_range_loop, reason = "kernels have no iterators over slices")]
pub(super) fn is_allowed(id: usize, forbidden: &[i32], #[comptime] forbidden_ids: usize) -> bool {
    let mut allowed = true;
    for index in 0..forbidden_ids {
        if forbidden[index] as usize == id {
            allowed = false;
        }
    }
    allowed
}
