//! The repetition penalty, with one cube per row.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::reduce::UNITS;
use super::{cube_each, empty_like, of_indices, primitive};
use crate::indices;
use crate::scaling::Penalty;

/// Penalises the logits of seen ids, if there is a penalty.
pub(super) fn penalised(logits: Tensor<2>, penalty: Option<Penalty<'_>>) -> Tensor<2> {
    let Some(Penalty { seen, factor }) = penalty else { return logits };
    let (device, [rows, vocabulary]) = (logits.device(), logits.dims());
    assert_eq!(seen.len(), rows, "expected seen ids for each row of logits");
    let (mut ids, mut starts) = (Vec::new(), vec![0]);
    for row in seen {
        ids.extend(row.iter().map(|&id| id as usize));
        starts.push(ids.len());
    }
    assert!(ids.iter().all(|&id| id < vocabulary), "a seen id is outside the vocabulary");
    // A buffer of length 0 is not allowed.
    ids.push(vocabulary);
    let [ids, starts] = [ids, starts].map(|numbers| of_indices(indices(numbers, &device)));
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
        factor,
    );
    Tensor::from_primitive::<Cube>(result)
}

/// Copies the logits of a row, and penalises those of its seen ids.
///
/// A unit writes every [`UNITS`]-th logit and nothing else, so no unit waits for another. For this, each
/// reads all seen ids of the row, which are few compared to the vocabulary. An id that occurs several
/// times is penalised once, because its logit is read from `logits`.
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
            // The same factors as in scores.
            let mut factor = penalty;
            if logit > 0.0f32 {
                factor = 1.0f32 / penalty;
            }
            result[first + id] = logit * factor;
        }
        at += 1;
    }
}
