//! Backward pass of attention (Dao et al. 2022, "FlashAttention", appendix B.2): with
//! `P = softmax(scale · Q Kᵀ)` and `D = rowsum(dO ∘ O)`, `dS = P ∘ (dO Vᵀ − D)`,
//! `dQ = scale · dS K`, `dK = scale · dSᵀ Q` and `dV = Pᵀ dO`.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::reduce::{UNITS, sum_of_units};
use super::super::{cube_each, elements};
use super::layout::{Attention, Layout};
use super::units::{Strides, StridesLaunch, dot, place, sum_of_groups, viewers};
use crate::Heads;

fn strides(of: &Attention, layout: Layout) -> StridesLaunch {
    let Layout { query_stride, key_stride, keys, values } = layout;
    StridesLaunch::new(query_stride, key_stride, keys, values, of.scale)
}

/// Computes the gradient of the queries, and D.
pub(super) fn of_queries(
    of: &Attention,
    [query, keys, values]: [&CubeTensor; 3],
    layout: Layout,
    [keys_of_rows, output, normalizers]: [&CubeTensor; 3],
    dy: &CubeTensor,
    [gradient, deltas]: [&CubeTensor; 2],
) {
    let Heads { heads, kv_heads, width } = of.heads;
    let (count, dim) = cube_each(&query.client, elements(deltas));
    query_gradient::launch(
        &query.client,
        count,
        dim,
        query.clone().into_buffer_arg(),
        keys.clone().into_buffer_arg(),
        values.clone().into_buffer_arg(),
        keys_of_rows.clone().into_buffer_arg(),
        output.clone().into_buffer_arg(),
        normalizers.clone().into_buffer_arg(),
        dy.clone().into_buffer_arg(),
        gradient.clone().into_buffer_arg(),
        deltas.clone().into_buffer_arg(),
        strides(of, layout),
        heads,
        heads / kv_heads,
        width,
    );
}

/// Computes the gradients of keys and values.
pub(super) fn of_keys(
    of: &Attention,
    [query, keys, values]: [&CubeTensor; 3],
    layout: Layout,
    [of_rows, ranges]: [CubeTensor; 2],
    [normalizers, dy, deltas]: [&CubeTensor; 3],
    [of_key, of_value]: [&CubeTensor; 2],
) {
    let Heads { heads, kv_heads, width } = of.heads;
    let rows = of.packing.rows();
    let (count, dim) = cube_each(&query.client, rows * kv_heads);
    key_gradients::launch(
        &query.client,
        count,
        dim,
        query.clone().into_buffer_arg(),
        keys.clone().into_buffer_arg(),
        values.clone().into_buffer_arg(),
        of_rows.into_buffer_arg(),
        ranges.into_buffer_arg(),
        normalizers.clone().into_buffer_arg(),
        dy.clone().into_buffer_arg(),
        deltas.clone().into_buffer_arg(),
        of_key.clone().into_buffer_arg(),
        of_value.clone().into_buffer_arg(),
        strides(of, layout),
        heads,
        kv_heads,
        width,
    );
}

/// Computes `dQ` and D of one query and head.
#[cube(launch)]
fn query_gradient(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    rows: &[i32],
    output: &[f32],
    normalizers: &[f32],
    dy: &[f32],
    gradient: &mut [f32],
    deltas: &mut [f32],
    strides: Strides,
    #[comptime] heads: usize,
    #[comptime] heads_per_key: usize,
    #[comptime] width: usize,
) {
    let task = CUBE_POS;
    if task >= deltas.len() {
        terminate!();
    }
    let (row, head) = (task / heads, task % heads);
    let unit = UNIT_POS as usize;
    let key_column = (head / heads_per_key) * width;
    let mut own_query = Shared::<[f32]>::new_slice(width);
    let mut upstream = Shared::<[f32]>::new_slice(width);
    let mut weights = Shared::<[f32]>::new_slice(UNITS);
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let mut of_delta = 0.0f32;
    if unit < width {
        own_query[unit] = query[row * strides.query + head * width + unit] * strides.scale;
        upstream[unit] = dy[task * width + unit];
        of_delta = dy[task * width + unit] * output[task * width + unit];
    }
    let delta = sum_of_units(of_delta, &mut shared);
    let normalizer = normalizers[task];
    let count = (rows[4 * row + 1] + rows[4 * row + 3]) as usize;
    let groups = comptime!(UNITS / width);
    let (group, column) = (unit / width, unit % width);
    let mut sum = 0.0f32;
    let mut start = 0usize;
    while start < count {
        let mut weight = 0.0f32;
        if start + unit < count {
            let key = place(start + unit, row, rows, rows, 0usize);
            let from = key * strides.key + key_column;
            let score = dot(&own_query, keys, from + strides.keys, width);
            let product = dot(&upstream, values, from + strides.values, width);
            weight = (score - normalizer).exp() * (product - delta);
        }
        weights[unit] = weight;
        sync_cube();
        let in_chunk = (count - start).min(UNITS);
        let mut index = group;
        while index < in_chunk {
            let key = place(start + index, row, rows, rows, 0usize);
            sum += weights[index] * keys[key * strides.key + strides.keys + key_column + column];
            index += groups;
        }
        sync_cube();
        start += UNITS;
    }
    shared[unit] = sum;
    sync_cube();
    if unit < width {
        gradient[row * strides.query + head * width + unit] =
            sum_of_groups(&shared, unit, width) * strides.scale;
    }
    if unit == 0 {
        deltas[task] = delta;
    }
}

/// Computes `dK` and `dV` of one key and head. `rows` and `ranges` are those of
/// [`Viewers`](super::layout::Viewers).
#[cube(launch)]
fn key_gradients(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    rows: &[i32],
    ranges: &[i32],
    normalizers: &[f32],
    dy: &[f32],
    deltas: &[f32],
    of_key: &mut [f32],
    of_value: &mut [f32],
    strides: Strides,
    #[comptime] heads: usize,
    #[comptime] kv_heads: usize,
    #[comptime] width: usize,
) {
    let task = CUBE_POS;
    if task >= rows.len() / 4 * kv_heads {
        terminate!();
    }
    let (row, kv_head) = (task / kv_heads, task % kv_heads);
    let unit = UNIT_POS as usize;
    let mut own_key = Shared::<[f32]>::new_slice(width);
    let mut own_value = Shared::<[f32]>::new_slice(width);
    let mut weights = Shared::<[f32]>::new_slice(UNITS);
    let mut slopes = Shared::<[f32]>::new_slice(UNITS);
    let at = row * strides.key + kv_head * width;
    if unit < width {
        own_key[unit] = keys[at + strides.keys + unit] * strides.scale;
        own_value[unit] = values[at + strides.values + unit];
    }
    sync_cube();
    let (group, column) = (unit / width, unit % width);
    let mut key_sum = 0.0f32;
    let mut value_sum = 0.0f32;
    let mut head = kv_head * comptime!(heads / kv_heads);
    while head < (kv_head + 1) * comptime!(heads / kv_heads) {
        let mut range = 0usize;
        while range <= rows[4 * row + 3] as usize {
            let (first, end) = viewers(row, range, rows, ranges);
            let mut start = first;
            while start < end {
                let mut weight = 0.0f32;
                let mut slope = 0.0f32;
                let viewer = start + unit;
                if viewer < end {
                    let from = viewer * strides.query + head * width;
                    let of_viewer = viewer * heads + head;
                    let score = dot(&own_key, query, from, width);
                    let product = dot(&own_value, dy, of_viewer * width, width);
                    weight = (score - normalizers[of_viewer]).exp();
                    slope = weight * (product - deltas[of_viewer]);
                }
                weights[unit] = weight;
                slopes[unit] = slope;
                sync_cube();
                let in_chunk = (end - start).min(UNITS);
                let mut index = group;
                while index < in_chunk {
                    let viewer = start + index;
                    let from = viewer * strides.query + head * width;
                    key_sum += slopes[index] * query[from + column];
                    value_sum += weights[index] * dy[(viewer * heads + head) * width + column];
                    index += comptime!(UNITS / width);
                }
                sync_cube();
                start += UNITS;
            }
            range += 1;
        }
        head += 1;
    }
    weights[unit] = value_sum;
    slopes[unit] = key_sum;
    sync_cube();
    if unit < width {
        of_key[at + strides.keys + unit] = sum_of_groups(&slopes, unit, width) * strides.scale;
        of_value[at + strides.values + unit] = sum_of_groups(&weights, unit, width);
    }
}
