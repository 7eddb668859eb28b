//! Biases, and sums over the rows of a matrix.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{binary, elements, empty, empty_like, unit_each};
use crate::tape::Operation;

/// Rows per partial sum.
pub(super) const ROWS: usize = 32;

pub(crate) fn add_bias(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    binary(AddBias, x, bias)
}

#[derive(Debug)]
struct AddBias;

impl Operation<Cube, 2> for AddBias {
    type Saved = ();

    fn forward(&self, inputs: [CubeTensor; 2], _: [bool; 2]) -> (CubeTensor, ()) {
        let [x, bias] = inputs.map(into_contiguous);
        let y = empty_like(&x);
        let (count, dim) = unit_each(&x.client, elements(&x));
        add_to_rows::launch(
            &y.client,
            count,
            dim,
            x.into_buffer_arg(),
            bias.clone().into_buffer_arg(),
            y.clone().into_buffer_arg(),
            elements(&bias),
        );
        (y, ())
    }

    fn backward(self, (): (), dy: CubeTensor, [_, of_bias]: [bool; 2]) -> [Option<CubeTensor>; 2] {
        let dbias = of_bias.then(|| sum_over_rows(&into_contiguous(dy.clone())));
        [Some(dy), dbias]
    }
}

/// Returns the sum of each column.
fn sum_over_rows(x: &CubeTensor) -> CubeTensor {
    let (rows, columns) = (x.shape()[0], x.shape()[1]);
    let parts = empty(x, [rows.div_ceil(ROWS), columns]);
    let (count, dim) = unit_each(&x.client, elements(&parts));
    let (from, to) = (x.clone().into_buffer_arg(), parts.clone().into_buffer_arg());
    sum_of_some_rows::launch(&x.client, count, dim, from, to, rows, columns);
    sum_of_parts(parts)
}

/// Returns the sum of partial sums, one per row, for each column.
pub(super) fn sum_of_parts(parts: CubeTensor) -> CubeTensor {
    let (rows, columns) = (parts.shape()[0], parts.shape()[1]);
    let sums = empty(&parts, [columns]);
    let (count, dim) = unit_each(&sums.client, columns);
    let to = sums.clone().into_buffer_arg();
    sum_of_rows::launch(&sums.client, count, dim, parts.into_buffer_arg(), to, rows);
    sums
}

#[cube(launch)]
fn add_to_rows(x: &[f32], bias: &[f32], y: &mut [f32], columns: usize) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    y[ABSOLUTE_POS] = x[ABSOLUTE_POS] + bias[ABSOLUTE_POS % columns];
}

/// Adds up [`ROWS`] rows, with one unit per part and column.
#[cube(launch)]
fn sum_of_some_rows(x: &[f32], parts: &mut [f32], rows: usize, columns: usize) {
    if ABSOLUTE_POS >= parts.len() {
        terminate!();
    }
    let (part, column) = (ABSOLUTE_POS / columns, ABSOLUTE_POS % columns);
    let mut sum = 0.0f32;
    let mut row = part * ROWS;
    let end = (row + ROWS).min(rows);
    while row < end {
        sum += x[row * columns + column];
        row += 1;
    }
    parts[ABSOLUTE_POS] = sum;
}

/// Adds up rows in order, with one unit per column.
#[cube(launch)]
fn sum_of_rows(partial: &[f32], sums: &mut [f32], rows: usize) {
    let column = ABSOLUTE_POS;
    let features = sums.len();
    if column >= features {
        terminate!();
    }
    let mut sum = 0.0f32;
    let mut row = 0usize;
    while row < rows {
        sum += partial[row * features + column];
        row += 1;
    }
    sums[column] = sum;
}
