//! Rotary position embeddings, with one unit per pair. The backward pass rotates by the negative
//! angle.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{elements, empty_like, ternary, unit_each};
use crate::tape::Operation;

/// Applies the rotation. `tables` contains the cosines and the sines.
pub(crate) fn rotary(x: Tensor<2>, tables: [Tensor<2>; 2]) -> Tensor<2> {
    ternary(Rotary, x, tables)
}

#[derive(Debug)]
struct Rotary;

impl Operation<Cube, 3> for Rotary {
    /// The tables.
    type Saved = [CubeTensor; 2];

    fn forward(&self, inputs: [CubeTensor; 3], _: [bool; 3]) -> (CubeTensor, Self::Saved) {
        let [x, cos, sin] = inputs.map(into_contiguous);
        (turned(&x, [&cos, &sin], 1.0), [cos, sin])
    }

    fn backward(
        self,
        tables: Self::Saved,
        dy: CubeTensor,
        _: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let dy = into_contiguous(dy);
        [Some(turned(&dy, tables.each_ref(), -1.0)), None, None]
    }
}

/// Rotates `x`. `direction` is 1 in the forward pass and −1 in the backward pass.
fn turned(x: &CubeTensor, [cos, sin]: [&CubeTensor; 2], direction: f32) -> CubeTensor {
    let y = empty_like(x);
    let (count, dim) = unit_each(&x.client, elements(x) / 2);
    turn::launch(
        &x.client,
        count,
        dim,
        x.clone().into_buffer_arg(),
        cos.clone().into_buffer_arg(),
        sin.clone().into_buffer_arg(),
        y.clone().into_buffer_arg(),
        x.shape()[1],
        cos.shape()[1],
        direction,
    );
    y
}

#[cube(launch)]
fn turn(
    x: &[f32],
    cos: &[f32],
    sin: &[f32],
    y: &mut [f32],
    columns: usize,
    half: usize,
    direction: f32,
) {
    let pair = ABSOLUTE_POS;
    if 2 * pair >= y.len() {
        terminate!();
    }
    let pairs_per_row = columns / 2;
    let (row, in_row) = (pair / pairs_per_row, pair % pairs_per_row);
    let (head, column) = (in_row / half, in_row % half);
    let first = row * columns + head * 2 * half + column;
    let second = first + half;
    let (cos, sin) = (cos[row * half + column], direction * sin[row * half + column]);
    let (a, b) = (x[first], x[second]);
    y[first] = a * cos - b * sin;
    y[second] = b * cos + a * sin;
}
