//! Linear layers for sampling, which multiply few rows by large weights.
//!
//! A cube computes [`ROWS`] rows of [`COLUMNS`] columns. Its units read the weights once, each a column
//! of one of [`SLICES`] slices of the inner dimension. The order of the sums does not depend on the
//! number of rows.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::matmul::matmul;
use super::reduce::UNITS;
use super::sums::add_bias;
use super::{empty, primitive, untracked};

const ROWS: usize = 16;
const COLUMNS: usize = 32;
const SLICES: usize = UNITS / COLUMNS;
/// Length of the part of the inner dimension for which inputs are shared.
const CHUNK: usize = 64;
/// Distance of the columns of a shared tile of weights, so that units read different banks.
const STRIDE: usize = CHUNK + 1;

/// Computes `x · W + b` without autodiff. Each row is independent of the others.
pub(crate) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let ([rows, inner], [_, columns]) = (x.dims(), weight.dims());
    let stored = untracked(weight.clone());
    let transposed = match stored.meta.strides()[..] {
        [stride, 1] if stride == columns && rows > 0 => false,
        [1, stride] if stride == inner && rows > 0 => true,
        // A part of another matrix, or nothing to compute.
        _ => return linear_by_matmul(x, weight, bias),
    };
    let x = primitive(x);
    let y = empty(&x, [rows, columns]);
    let bias = bias.map(primitive);
    let has_bias = bias.is_some();
    let bias: CubeTensor = bias.unwrap_or_else(|| x.clone());
    let count = CubeCount::Static(tiles(rows, ROWS), tiles(columns, COLUMNS), 1);
    linear_rows::launch(
        &y.client,
        count,
        CubeDim::new_1d(UNITS as u32),
        x.clone().into_buffer_arg(),
        stored.into_buffer_arg(),
        bias.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        x.shape()[0],
        inner,
        columns,
        has_bias,
        transposed,
    );
    Tensor::from_primitive::<Cube>(y)
}

fn linear_by_matmul(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let y = matmul(x, weight);
    match bias {
        Some(bias) => add_bias(y, bias),
        None => y,
    }
}

fn tiles(length: usize, tile: usize) -> u32 {
    length.div_ceil(tile) as u32
}

#[cube(launch)]
fn linear_rows(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    y: &mut [f32],
    rows: usize,
    inner: usize,
    columns: usize,
    #[comptime] has_bias: bool,
    #[comptime] transposed: bool,
) {
    let unit = UNIT_POS as usize;
    let first_row = CUBE_POS_X as usize * ROWS;
    let first_column = CUBE_POS_Y as usize * COLUMNS;
    let column = first_column + unit % COLUMNS;
    let slice = unit / COLUMNS;
    let mut inputs = Shared::<[f32]>::new_slice(comptime!(ROWS * CHUNK));
    let mut weights = Shared::<[f32]>::new_slice(comptime!(COLUMNS * STRIDE));
    let mut partial = Shared::<[f32]>::new_slice(comptime!(SLICES * ROWS * COLUMNS));
    let mut sums = Array::<f32>::new(ROWS);
    #[unroll]
    for row in 0..ROWS {
        sums[row] = 0.0f32;
    }
    let mut start = 0usize;
    while start < inner {
        load(x, &mut inputs, first_row, rows, start, inner, ROWS, CHUNK);
        if transposed {
            // Neighbouring units read neighbouring elements of a column.
            load(weight, &mut weights, first_column, columns, start, inner, COLUMNS, STRIDE);
        }
        sync_cube();
        if column < columns {
            let end = (inner - start).min(CHUNK);
            let mut at = slice;
            while at < end {
                let of_weight = if transposed {
                    weights[unit % COLUMNS * STRIDE + at]
                } else {
                    weight[(start + at) * columns + column]
                };
                #[unroll]
                for row in 0..ROWS {
                    sums[row] += inputs[row * CHUNK + at] * of_weight;
                }
                at += SLICES;
            }
        }
        sync_cube();
        start += CHUNK;
    }
    #[unroll]
    for row in 0..ROWS {
        partial[(slice * ROWS + row) * COLUMNS + unit % COLUMNS] = sums[row];
    }
    sync_cube();
    // Each unit writes some rows of its column.
    let mut row = slice;
    while row < ROWS {
        if first_row + row < rows && column < columns {
            let mut sum = 0.0f32;
            if has_bias {
                sum = bias[column];
            }
            for slice in 0..SLICES {
                sum += partial[(slice * ROWS + row) * COLUMNS + unit % COLUMNS];
            }
            y[(first_row + row) * columns + column] = sum;
        }
        row += SLICES;
    }
}

/// Copies [`CHUNK`] elements of some rows to shared memory, and 0 where there are none.
#[cube]
fn load(
    matrix: &[f32],
    shared: &mut Shared<[f32]>,
    first_row: usize,
    rows: usize,
    start: usize,
    inner: usize,
    #[comptime] count: usize,
    #[comptime] stride: usize,
) {
    let mut place = UNIT_POS as usize;
    while place < count * CHUNK {
        let (row, at) = (first_row + place / CHUNK, start + place % CHUNK);
        let mut value = 0.0f32;
        if row < rows && at < inner {
            value = matrix[row * inner + at];
        }
        shared[place / CHUNK * stride + place % CHUNK] = value;
        place += UNITS;
    }
}
