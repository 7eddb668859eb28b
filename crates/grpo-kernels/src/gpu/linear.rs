//! Linear layers for sampling, which multiply few rows by large weights.
//!
//! A cube computes [`ROWS`] rows of [`COLUMNS`] columns. Each of its units multiplies one of
//! [`SLICES`] slices of the inner dimension by [`WIDTH`] columns, and the sums of the slices are
//! added in order. So the order of the sums does not depend on the number of rows.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::reduce::UNITS;
use super::sums::add_bias;
use super::unit_product::unit_product;
use super::{empty, primitive, untracked};

const ROWS: usize = 8;
/// Columns per unit, and numbers that are read at once.
const WIDTH: usize = 4;
/// Units next to each other, each with its own columns.
const ABREAST: usize = 8;
const COLUMNS: usize = ABREAST * WIDTH;
const SLICES: usize = UNITS / ABREAST;

type Quad = Vector<f32, Const<WIDTH>>;

/// Largest number of cubes in the second dimension.
const MOST_CUBES: usize = 65_535;

/// Computes `x · W + b` without autodiff. Each row is independent of the others.
pub(crate) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let (x, weight) = (untracked(x), untracked(weight));
    if let Some(y) = linear_rows(&x, &weight, bias.clone().map(primitive)) {
        return Tensor::from_primitive::<Cube>(y);
    }
    // Not in parts, whose number would depend on the number of rows.
    let y = Tensor::from_primitive::<Cube>(unit_product(&x, &weight));
    match bias {
        Some(bias) => add_bias(y, bias),
        None => y,
    }
}

/// Computes `x · W + b`, or returns `None` if the matrices cannot be read in vectors.
pub(super) fn linear_rows(
    x: &CubeTensor,
    weight: &CubeTensor,
    bias: Option<CubeTensor>,
) -> Option<CubeTensor> {
    let (rows, inner, columns) = (x.shape()[0], x.shape()[1], weight.shape()[1]);
    if rows == 0 || inner == 0 || columns == 0 || rows > MOST_CUBES * ROWS {
        return None;
    }
    let transposed = match weight.meta.strides()[..] {
        [stride, 1] if stride == columns => false,
        [1, stride] if stride == inner => true,
        // A part of another matrix.
        _ => return None,
    };
    let of_quads = inner.is_multiple_of(WIDTH) && (transposed || columns.is_multiple_of(WIDTH));
    if !of_quads || !is_aligned(weight) {
        return None;
    }
    let x = into_contiguous(x.clone());
    if !is_aligned(&x) {
        return None;
    }
    let y = empty(&x, [rows, columns]);
    let has_bias = bias.is_some();
    let bias = bias.unwrap_or_else(|| x.clone());
    let count = CubeCount::Static(tiles(columns, COLUMNS), tiles(rows, ROWS), 1);
    multiply_rows::launch(
        &y.client,
        count,
        CubeDim::new_1d(UNITS as u32),
        x.into_buffer_arg(),
        weight.clone().into_buffer_arg(),
        bias.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rows,
        inner / WIDTH,
        columns,
        has_bias,
        transposed,
    );
    Some(y)
}

/// Returns whether the tensor starts at a quad.
fn is_aligned(x: &CubeTensor) -> bool {
    let start = x.handle.offset_start.unwrap_or(0);
    start.is_multiple_of((WIDTH * size_of::<f32>()) as u64)
}

fn tiles(length: usize, tile: usize) -> u32 {
    length.div_ceil(tile) as u32
}

/// `x`, and `weight` along its rows (along its columns if `transposed`), are read in quads.
#[cube(launch)]
fn multiply_rows(
    x: &[Quad],
    weight: &[Quad],
    bias: &[f32],
    y: &mut [f32],
    rows: usize,
    inner_quads: usize,
    columns: usize,
    #[comptime] has_bias: bool,
    #[comptime] transposed: bool,
) {
    let unit = UNIT_POS as usize;
    let (abreast, slice) = (unit % ABREAST, unit / ABREAST);
    let first_row = CUBE_POS_Y as usize * ROWS;
    let first_column = CUBE_POS_X as usize * COLUMNS;
    let column = first_column + abreast * WIDTH;
    let mut sums = Array::<f32>::new(comptime!(ROWS * WIDTH));
    #[unroll]
    for at in 0..ROWS * WIDTH {
        sums[at] = 0.0f32;
    }
    let mut of_weight = Array::<Quad>::new(WIDTH);
    let mut quad = slice;
    while quad < inner_quads {
        #[unroll]
        for at in 0..WIDTH {
            // Indices are clamped, so units beyond the edge repeat the last column or row. Their
            // sums are not written.
            of_weight[at] = if transposed {
                weight[(column + at).min(columns - 1) * inner_quads + quad]
            } else {
                let row_quads = columns / WIDTH;
                weight[(quad * WIDTH + at) * row_quads + (column / WIDTH).min(row_quads - 1)]
            };
        }
        #[unroll]
        for row in 0..ROWS {
            let of_x = x[(first_row + row).min(rows - 1) * inner_quads + quad];
            #[unroll]
            for at in 0..WIDTH {
                #[unroll]
                for inner in 0..WIDTH {
                    let factor = if transposed {
                        of_weight[at].extract(inner)
                    } else {
                        of_weight[inner].extract(at)
                    };
                    sums[row * WIDTH + at] += of_x.extract(inner) * factor;
                }
            }
        }
        quad += SLICES;
    }
    let mut partial = Shared::<[f32]>::new_slice(comptime!(SLICES * ROWS * COLUMNS));
    #[unroll]
    for row in 0..ROWS {
        #[unroll]
        for at in 0..WIDTH {
            partial[(slice * ROWS + row) * COLUMNS + abreast * WIDTH + at] = sums[row * WIDTH + at];
        }
    }
    sync_cube();
    // Each unit writes one column of some rows.
    let (column, mut row) = (first_column + unit % COLUMNS, unit / COLUMNS);
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
        row += UNITS / COLUMNS;
    }
}
