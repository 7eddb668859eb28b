//! Rotary position embeddings. Rows are processed in parallel, and the backward pass rotates by the
//! negative angle.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use multiversion::multiversion;
use rayon::prelude::*;

use super::{dense, ternary};
use crate::simd::CHUNK;
use crate::tape::Operation;

/// Applies the rotation. `tables` contains the cosines and the sines.
pub(crate) fn rotary(x: Tensor<2>, tables: [Tensor<2>; 2]) -> Tensor<2> {
    ternary(Rotary, x, tables)
}

#[derive(Debug)]
struct Rotary;

impl Operation<Flex, 3> for Rotary {
    /// The tables.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [x, cos, sin]: [FlexTensor; 3], _: [bool; 3]) -> (FlexTensor, Self::Saved) {
        let tables = [cos, sin];
        (turned(x, &tables, 1.0), tables)
    }

    fn backward(
        self,
        tables: Self::Saved,
        dy: FlexTensor,
        _: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        [Some(turned(dy, &tables, -1.0)), None, None]
    }
}

/// Rotates `x`. `direction` is 1 in the forward pass and −1 in the backward pass.
fn turned(x: FlexTensor, tables: &[FlexTensor; 2], direction: f32) -> FlexTensor {
    let [cos, sin] = tables.each_ref().map(|table| table.to_contiguous());
    let (columns, half) = (x.layout().shape()[1], cos.layout().shape()[1]);
    let rows = (CHUNK / columns).max(1);
    let mut x = dense(x);
    let tables = cos.storage::<f32>().par_chunks(rows * half);
    let tables = tables.zip(sin.storage::<f32>().par_chunks(rows * half));
    x.storage_mut::<f32>()
        .par_chunks_mut(rows * columns)
        .zip(tables)
        .for_each(|(x, (cos, sin))| turn(x, columns, cos, sin, half, direction));
    x
}

/// Rotates rows of shape `[rows][heads · 2 · half]` using tables of shape `[rows][half]`. The
/// angles are negated if `direction` is −1.
#[multiversion(targets = "simd")]
fn turn(x: &mut [f32], columns: usize, cos: &[f32], sin: &[f32], half: usize, direction: f32) {
    let tables = cos.chunks_exact(half).zip(sin.chunks_exact(half));
    for (row, (cos, sin)) in x.chunks_exact_mut(columns).zip(tables) {
        for head in row.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            let pairs = first.iter_mut().zip(second).zip(cos.iter().zip(sin));
            for ((first, second), (&cos, &sin)) in pairs {
                let sin = direction * sin;
                (*first, *second) = (*first * cos - *second * sin, *second * cos + *first * sin);
            }
        }
    }
}
