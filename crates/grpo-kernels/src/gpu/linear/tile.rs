//! Kernels for linear layers. A cube computes a tile of the output.

use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::super::activation::{gelu_of, swiglu_of};
use super::super::reduce::UNITS;

/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns per unit, and numbers that are read at once.
pub(super) const WIDTH: usize = 4;
/// Units next to each other, each with its own columns.
const ABREAST: usize = 8;
/// Columns of a tile.
pub(super) const COLUMNS: usize = ABREAST * WIDTH;
/// Parts of the inner dimension.
pub(super) const SLICES: usize = UNITS / ABREAST;
/// Elements of a tile that each unit writes. They are in the same column.
const ELEMENTS: usize = ROWS * COLUMNS / UNITS;

type QuadOf<T> = Vector<T, Const<WIDTH>>;
type Quad = QuadOf<f32>;

/// What is applied to the output of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OutputActivation {
    Identity,
    Gelu,
    GeluTanh,
}

/// Computes one layer. `x`, and `weight` along its rows (along its columns if `transposed`), are read
/// in quads.
#[cube(launch)]
pub(super) fn multiply_rows<X: Float, W: Float>(
    x: &[QuadOf<X>],
    weight: &[QuadOf<W>],
    bias: &[f32],
    y: &mut [f32],
    rows: usize,
    inner_quads: usize,
    columns: usize,
    #[comptime] has_bias: bool,
    #[comptime] activation: OutputActivation,
    #[comptime] transposed: bool,
    #[define(X, W)] _types: [ElemType; 2],
) {
    let mut partial = Shared::<[f32]>::new_slice(comptime!(SLICES * ROWS * COLUMNS));
    let tile = CUBE_POS_X as usize;
    multiply_tile(x, weight, &mut partial, tile, rows, inner_quads, columns, transposed);
    write_tile(&partial, bias, y, tile, rows, columns, 0usize, columns, has_bias, activation);
}

/// Computes three layers next to each other.
#[cube(launch)]
pub(super) fn multiply_jointly<X: Float, W: Float>(
    x: &[QuadOf<X>],
    first: &[QuadOf<W>],
    second: &[QuadOf<W>],
    third: &[QuadOf<W>],
    first_bias: &[f32],
    second_bias: &[f32],
    third_bias: &[f32],
    y: &mut [f32],
    rows: usize,
    inner_quads: usize,
    first_columns: usize,
    second_columns: usize,
    third_columns: usize,
    #[comptime] has_bias: bool,
    #[comptime] transposed: bool,
    #[define(X, W)] _types: [ElemType; 2],
) {
    let mut partial = Shared::<[f32]>::new_slice(comptime!(SLICES * ROWS * COLUMNS));
    let (of_first, of_second) = (first_columns.div_ceil(COLUMNS), second_columns.div_ceil(COLUMNS));
    let stride = first_columns + second_columns + third_columns;
    let identity = comptime!(OutputActivation::Identity);
    let mut tile = CUBE_POS_X as usize;
    if tile < of_first {
        let columns = first_columns;
        multiply_tile(x, first, &mut partial, tile, rows, inner_quads, columns, transposed);
        write_tile(
            &partial, first_bias, y, tile, rows, columns, 0usize, stride, has_bias, identity,
        );
    } else if tile < of_first + of_second {
        tile -= of_first;
        let (columns, before) = (second_columns, first_columns);
        multiply_tile(x, second, &mut partial, tile, rows, inner_quads, columns, transposed);
        write_tile(
            &partial,
            second_bias,
            y,
            tile,
            rows,
            columns,
            before,
            stride,
            has_bias,
            identity,
        );
    } else {
        tile -= of_first + of_second;
        let (columns, before) = (third_columns, first_columns + second_columns);
        multiply_tile(x, third, &mut partial, tile, rows, inner_quads, columns, transposed);
        write_tile(
            &partial, third_bias, y, tile, rows, columns, before, stride, has_bias, identity,
        );
    }
}

/// Computes two layers, and SwiGLU of both.
#[cube(launch)]
pub(super) fn multiply_gated<X: Float, W: Float>(
    x: &[QuadOf<X>],
    gate: &[QuadOf<W>],
    up: &[QuadOf<W>],
    gate_bias: &[f32],
    up_bias: &[f32],
    y: &mut [f32],
    rows: usize,
    inner_quads: usize,
    columns: usize,
    #[comptime] has_bias: bool,
    #[comptime] transposed: bool,
    #[define(X, W)] _types: [ElemType; 2],
) {
    let mut partial = Shared::<[f32]>::new_slice(comptime!(SLICES * ROWS * COLUMNS));
    let tile = CUBE_POS_X as usize;
    let (first_row, own) = own_column(tile);
    // Units beyond the edge repeat the last column, because all have to reach the barriers.
    let column = own.min(columns - 1);
    multiply_tile(x, gate, &mut partial, tile, rows, inner_quads, columns, transposed);
    let mut gates = Array::<f32>::new(ELEMENTS);
    #[unroll]
    for element in 0..ELEMENTS {
        gates[element] =
            sum_of_slices(&partial, bias_or_zero(gate_bias, column, has_bias), element);
    }
    sync_cube();
    multiply_tile(x, up, &mut partial, tile, rows, inner_quads, columns, transposed);
    #[unroll]
    for element in 0..ELEMENTS {
        let row = first_row + element * (UNITS / COLUMNS);
        let sum = sum_of_slices(&partial, bias_or_zero(up_bias, column, has_bias), element);
        if row < rows && own < columns {
            y[row * columns + own] = swiglu_of(gates[element], sum);
        }
    }
}

/// Multiplies the rows of this cube by the columns of a tile. `partial` gets the sums of each slice.
#[cube]
fn multiply_tile<X: Float, W: Float>(
    x: &[QuadOf<X>],
    weight: &[QuadOf<W>],
    partial: &mut Shared<[f32]>,
    tile: usize,
    rows: usize,
    inner_quads: usize,
    columns: usize,
    #[comptime] transposed: bool,
) {
    let unit = UNIT_POS as usize;
    let (abreast, slice) = (unit % ABREAST, unit / ABREAST);
    let first_row = CUBE_POS_Y as usize * ROWS;
    let column = tile * COLUMNS + abreast * WIDTH;
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
            let place = if transposed {
                (column + at).min(columns - 1) * inner_quads + quad
            } else {
                let row_quads = columns / WIDTH;
                (quad * WIDTH + at) * row_quads + (column / WIDTH).min(row_quads - 1)
            };
            of_weight[at] = Quad::cast_from(weight[place]);
        }
        #[unroll]
        for row in 0..ROWS {
            let of_x = Quad::cast_from(x[(first_row + row).min(rows - 1) * inner_quads + quad]);
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
    #[unroll]
    for row in 0..ROWS {
        #[unroll]
        for at in 0..WIDTH {
            partial[(slice * ROWS + row) * COLUMNS + abreast * WIDTH + at] = sums[row * WIDTH + at];
        }
    }
    sync_cube();
}

/// Returns the row of the first element that this unit writes, and the column of all of them.
#[cube]
fn own_column(tile: usize) -> (usize, usize) {
    let unit = UNIT_POS as usize;
    (CUBE_POS_Y as usize * ROWS + unit / COLUMNS, tile * COLUMNS + unit % COLUMNS)
}

#[cube]
fn bias_or_zero(bias: &[f32], column: usize, #[comptime] has_bias: bool) -> f32 {
    if comptime!(has_bias) { bias[column] } else { 0.0f32.runtime() }
}

/// Adds the sums of all slices to `sum`, for one of the elements of this unit.
#[cube]
fn sum_of_slices(partial: &Shared<[f32]>, sum: f32, #[comptime] element: usize) -> f32 {
    let unit = UNIT_POS as usize;
    let row = unit / COLUMNS + comptime!(element * (UNITS / COLUMNS));
    let mut sum = sum;
    for slice in 0..SLICES {
        sum += partial[(slice * ROWS + row) * COLUMNS + unit % COLUMNS];
    }
    sum
}

/// Writes the elements of this unit, `before` columns to the right, after applying the activation.
#[cube]
fn write_tile(
    partial: &Shared<[f32]>,
    bias: &[f32],
    y: &mut [f32],
    tile: usize,
    rows: usize,
    columns: usize,
    before: usize,
    stride: usize,
    #[comptime] has_bias: bool,
    #[comptime] activation: OutputActivation,
) {
    let (first_row, column) = own_column(tile);
    if column < columns {
        #[unroll]
        for element in 0..ELEMENTS {
            let row = first_row + element * (UNITS / COLUMNS);
            let mut sum = sum_of_slices(partial, bias_or_zero(bias, column, has_bias), element);
            if comptime!(activation != OutputActivation::Identity) {
                sum = gelu_of(sum, comptime!(activation == OutputActivation::GeluTanh));
            }
            if row < rows {
                y[row * stride + before + column] = sum;
            }
        }
    }
}
