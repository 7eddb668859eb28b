//! The repetition penalty, with one cube per row.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::reduce::UNITS;
use super::{cube_each, empty_like, of_indices, primitive};
use crate::indices;

/// Penalises the logits of seen ids. See [`crate::penalised_on_gpu`].
pub(crate) fn penalised(logits: Tensor<2>, seen: &[&[u32]], penalty: f32) -> Tensor<2> {
    let (device, [_, vocabulary]) = (logits.device(), logits.dims());
    let mut starts = vec![0];
    starts.extend(seen.iter().scan(0, |end, ids| {
        *end += ids.len();
        Some(*end)
    }));
    let ids = seen.iter().flat_map(|ids| ids.iter()).map(|&id| id as usize);
    // A buffer of length 0 is not allowed.
    let ids = of_indices(indices(ids.chain([vocabulary]), &device));
    let starts = of_indices(indices(starts, &device));
    let logits = primitive(logits);
    let result = empty_like(&logits);
    let (count, dim) = cube_each(&logits.client, logits.shape()[0]);
    penalise::launch(
        &result.client,
        count,
        dim,
        logits.into_buffer_arg(),
        ids.into_buffer_arg(),
        starts.into_buffer_arg(),
        result.clone().into_buffer_arg(),
        vocabulary,
        penalty,
    );
    Tensor::from_primitive::<Cube>(result)
}

/// Copies the logits of a row, and penalises those of its seen ids.
///
/// A unit writes every 128th logit and nothing else, so no unit waits for another. An id that occurs
/// several times is read from the original logits each time.
#[cube(launch)]
fn penalise(
    logits: &[f32],
    seen: &[i32],
    starts: &[i32],
    result: &mut [f32],
    vocabulary: usize,
    penalty: f32,
) {
    let row = CUBE_POS;
    if row + 1 >= starts.len() {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let first = row * vocabulary;
    let mut id = unit;
    while id < vocabulary {
        result[first + id] = logits[first + id];
        id += UNITS;
    }
    let mut at = starts[row] as usize;
    let end = starts[row + 1] as usize;
    while at < end {
        let id = seen[at] as usize;
        if id % UNITS == unit {
            let logit = logits[first + id];
            let mut penalised = logit * penalty;
            if logit > 0.0f32 {
                penalised = logit / penalty;
            }
            result[first + id] = penalised;
        }
        at += 1;
    }
}
