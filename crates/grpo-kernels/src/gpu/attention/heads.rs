//! Preparation of queries and keys for attention over pages, with one cube per row and head.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{Int, Tensor};
use cubecl::prelude::*;

use super::super::reduce::{UNITS, sum_of_units};
use super::super::{cube_each, empty, of_indices, primitive, rows_of};
use super::pages::in_place;
use crate::{HeadPreparation, Heads};

/// Prepares the queries and keys in `inputs`, which contains queries, keys and values next to each
/// other. Writes keys and values to `places`, and returns the queries.
pub(crate) fn write_heads(
    all: &mut [Tensor<2>; 2],
    inputs: Tensor<2>,
    of: &HeadPreparation,
    heads: Heads,
    places: Tensor<1, Int>,
) -> Tensor<2> {
    let (inputs, stride) = rows_of(inputs);
    let rows = inputs.shape()[0];
    let queries = empty(&inputs, [rows, heads.query_columns()]);
    let places = of_indices(places);
    let scales = of.norms.as_ref().map(|norms| norms.scales.clone().map(primitive));
    let [query_scale, key_scale] =
        scales.unwrap_or_else(|| [inputs.clone(), inputs.clone()]).map(|of| of.into_buffer_arg());
    let tables = of.rotary.clone().map(|tables| [tables.cos, tables.sin].map(primitive));
    let [cos, sin] =
        tables.unwrap_or_else(|| [inputs.clone(), inputs.clone()]).map(|of| of.into_buffer_arg());
    let (count, dim) = cube_each(&queries.client, rows * (heads.heads + 2 * heads.kv_heads));
    in_place(all, |[keys, values]| {
        prepare_heads::launch(
            &queries.client,
            count,
            dim,
            inputs.clone().into_buffer_arg(),
            query_scale,
            key_scale,
            cos,
            sin,
            places.into_buffer_arg(),
            queries.clone().into_buffer_arg(),
            keys.clone().into_buffer_arg(),
            values.clone().into_buffer_arg(),
            rows,
            stride,
            of.norms.as_ref().map_or(0.0, |norms| norms.epsilon as f32),
            heads.heads,
            heads.kv_heads,
            heads.width,
            of.norms.is_some(),
            of.rotary.is_some(),
        );
    });
    Tensor::from_primitive::<Cube>(queries)
}

#[cube(launch)]
fn prepare_heads(
    inputs: &[f32],
    query_scale: &[f32],
    key_scale: &[f32],
    cos: &[f32],
    sin: &[f32],
    places: &[i32],
    queries: &mut [f32],
    keys: &mut [f32],
    values: &mut [f32],
    rows: usize,
    stride: usize,
    epsilon: f32,
    #[comptime] heads: usize,
    #[comptime] kv_heads: usize,
    #[comptime] width: usize,
    #[comptime] normalised: bool,
    #[comptime] rotated: bool,
) {
    let heads_per_row = comptime!(heads + 2 * kv_heads);
    let (row, head) = (CUBE_POS / heads_per_row, CUBE_POS % heads_per_row);
    if row >= rows {
        terminate!();
    }
    let from = row * stride + head * width;
    let place = places[row] as usize * comptime!(kv_heads * width);
    let unit = UNIT_POS as usize;
    if head >= comptime!(heads + kv_heads) {
        let to = place + (head - comptime!(heads + kv_heads)) * width;
        let mut column = unit;
        while column < width {
            values[to + column] = inputs[from + column];
            column += UNITS;
        }
    } else {
        let mut normal = Shared::<[f32]>::new_slice(width);
        let mut inverse = f32::new(1.0);
        if comptime!(normalised) {
            let mut shared = Shared::<[f32]>::new_slice(UNITS);
            let mut squares = 0.0f32;
            let mut column = unit;
            while column < width {
                squares += inputs[from + column] * inputs[from + column];
                column += UNITS;
            }
            let mean = sum_of_units(squares, &mut shared) * comptime!(1.0 / width as f32);
            inverse = 1.0f32 / (mean + epsilon).sqrt();
        }
        let mut column = unit;
        while column < width {
            let mut value = inputs[from + column];
            if comptime!(normalised) {
                let scale = if head < heads { query_scale[column] } else { key_scale[column] };
                value = value * inverse * scale;
            }
            normal[column] = value;
            column += UNITS;
        }
        sync_cube();
        let mut column = unit;
        while column < width {
            let mut value = normal[column];
            if comptime!(rotated) {
                value = turned(&normal, cos, sin, row, column, width);
            }
            if head < heads {
                queries[row * comptime!(heads * width) + head * width + column] = value;
            } else {
                keys[place + (head - heads) * width + column] = value;
            }
            column += UNITS;
        }
    }
}

/// Returns an element of a rotated head, see [`super::super::rotary`].
#[cube]
fn turned(
    head: &Shared<[f32]>,
    cos: &[f32],
    sin: &[f32],
    row: usize,
    column: usize,
    #[comptime] width: usize,
) -> f32 {
    let half = comptime!(width / 2);
    let (pair, angle) = (column % half, row * half + column % half);
    let (first, second) = (head[pair], head[pair + half]);
    if column < half {
        first * cos[angle] - second * sin[angle]
    } else {
        second * cos[angle] + first * sin[angle]
    }
}
