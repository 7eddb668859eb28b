//! Forward pass of attention.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::reduce::{UNITS, max_of_units, sum_of_units};
use super::super::{cube_each, elements};
use super::layout::{Attention, Layout};
use super::units::{Strides, StridesLaunch, dot, place, sum_of_groups};
use crate::Heads;

/// Computes outputs and normalisers of all rows.
pub(super) fn of_rows(
    of: &Attention,
    [query, keys, values]: [&CubeTensor; 3],
    layout: Layout,
    keys_of_rows: &CubeTensor,
    [output, normalizers]: [&CubeTensor; 2],
) {
    let Heads { heads, kv_heads, width } = of.heads;
    let (count, dim) = cube_each(&output.client, elements(normalizers));
    attend::launch(
        &output.client,
        count,
        dim,
        query.clone().into_buffer_arg(),
        keys.clone().into_buffer_arg(),
        values.clone().into_buffer_arg(),
        keys_of_rows.clone().into_buffer_arg(),
        keys_of_rows.clone().into_buffer_arg(),
        output.clone().into_buffer_arg(),
        normalizers.clone().into_buffer_arg(),
        StridesLaunch::new(
            layout.query_stride,
            layout.key_stride,
            layout.keys,
            layout.values,
            of.scale,
        ),
        heads,
        heads / kv_heads,
        width,
        0,
    );
}

/// Score of a key that is not there.
const NONE: f32 = -1e30;

/// Computes `softmax(scale · q Kᵀ) V` for one query and head.
///
/// Without pages (`page` is 0), `rows` contains four numbers per row, see
/// [`keys_of_rows`](super::layout::keys_of_rows). With pages, it contains two.
#[cube(launch)]
pub(super) fn attend(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    rows: &[i32],
    pages: &[i32],
    output: &mut [f32],
    normalizers: &mut [f32],
    strides: Strides,
    #[comptime] heads: usize,
    #[comptime] heads_per_key: usize,
    #[comptime] width: usize,
    #[comptime] page: usize,
) {
    let task = CUBE_POS;
    if task >= normalizers.len() {
        terminate!();
    }
    let (row, head) = (task / heads, task % heads);
    let unit = UNIT_POS as usize;
    let key_column = (head / heads_per_key) * width;
    let mut own_query = Shared::<[f32]>::new_slice(width);
    if unit < width {
        own_query[unit] = query[row * strides.query + head * width + unit] * strides.scale;
    }
    let mut weights = Shared::<[f32]>::new_slice(UNITS);
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let count = if comptime!(page > 0) {
        rows[2 * row + 1] as usize
    } else {
        (rows[4 * row + 1] + rows[4 * row + 3]) as usize
    };
    // Units are divided among columns. Each group of units adds up some of the keys.
    let groups = comptime!(UNITS / width);
    let (group, column) = (unit / width, unit % width);
    let mut sum = 0.0f32;
    let mut largest = f32::new(NONE);
    let mut total = 0.0f32;
    sync_cube();
    let mut start = 0usize;
    while start < count {
        let mut score = f32::new(NONE);
        if start + unit < count {
            let key = place(start + unit, row, rows, pages, page);
            let from = key * strides.key + strides.keys + key_column;
            score = dot(&own_query, keys, from, width);
        }
        let of_chunk = max_of_units(score, &mut shared);
        let new_largest = largest.max(of_chunk);
        let mut weight = 0.0f32;
        if start + unit < count {
            weight = (score - new_largest).exp();
        }
        weights[unit] = weight;
        let rescale = (largest - new_largest).exp();
        total = total * rescale + sum_of_units(weight, &mut shared);
        sum *= rescale;
        largest = new_largest;
        let in_chunk = (count - start).min(UNITS);
        let mut index = group;
        while index < in_chunk {
            let key = place(start + index, row, rows, pages, page);
            let value = values[key * strides.key + strides.values + key_column + column];
            sum += weights[index] * value;
            index += groups;
        }
        sync_cube();
        start += UNITS;
    }
    shared[unit] = sum;
    sync_cube();
    if unit < width {
        output[task * width + unit] = sum_of_groups(&shared, unit, width) / total;
    }
    if unit == 0 {
        normalizers[task] = largest + total.ln();
    }
}
