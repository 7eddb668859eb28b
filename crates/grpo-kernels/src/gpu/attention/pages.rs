//! Attention over the pages of a cache, and writing to them.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{cube_each, elements, empty, of_indices, owned, primitive, rows_of, unit_each};
use super::forward::attend;
use super::units::StridesLaunch;
use crate::{Heads, PAGE};

/// Computes attention over pages. `rows` contains the first of `pages` and the number of positions
/// of each row.
pub(crate) fn attention_over_pages(
    query: Tensor<2>,
    [keys, values]: [&Tensor<2>; 2],
    [rows, pages]: [Tensor<1, Int>; 2],
    of: Heads,
    scale: f32,
) -> Tensor<2> {
    let Heads { heads, kv_heads, width } = of;
    let (query, stride) = rows_of(query);
    let [keys, values] = [keys, values].map(|tensor| primitive(tensor.clone()));
    let [rows, pages] = [rows, pages].map(of_indices);
    let output = empty(&query, query.shape().to_vec());
    let normalizers = empty(&query, [query.shape()[0], heads]);
    let (count, dim) = cube_each(&output.client, elements(&normalizers));
    attend::launch(
        &output.client,
        count,
        dim,
        query.into_buffer_arg(),
        keys.into_buffer_arg(),
        values.into_buffer_arg(),
        rows.into_buffer_arg(),
        pages.into_buffer_arg(),
        output.clone().into_buffer_arg(),
        normalizers.into_buffer_arg(),
        StridesLaunch::new(stride, of.key_columns(), 0, 0, scale),
        heads,
        heads / kv_heads,
        width,
        PAGE,
    );
    Tensor::from_primitive::<Cube>(output)
}

/// Writes rows of keys and values to `places`, in place unless the matrices have other owners.
pub(crate) fn write_rows(all: &mut [Tensor<2>; 2], new: [Tensor<2>; 2], places: Tensor<1, Int>) {
    let [(keys, key_stride), (values, value_stride)] = new.map(rows_of);
    let (columns, count) = (keys.shape()[1], elements(&keys));
    if count == 0 {
        return;
    }
    let places = of_indices(places);
    in_place(all, |[all_keys, all_values]| {
        let (cubes, dim) = unit_each(&keys.client, count);
        scatter_rows::launch(
            &keys.client,
            cubes,
            dim,
            keys.clone().into_buffer_arg(),
            values.into_buffer_arg(),
            places.into_buffer_arg(),
            all_keys.clone().into_buffer_arg(),
            all_values.clone().into_buffer_arg(),
            columns,
            key_stride,
            value_stride,
            count,
        );
    });
}

/// Copies pages of keys and values. `copies` contains sources and targets. No
/// target occurs twice or is a source.
pub(crate) fn copy_pages(all: &mut [Tensor<2>; 2], copies: Tensor<1, Int>, page: usize) {
    let columns = all[0].dims()[1];
    let count = copies.dims()[0] / 2 * page * columns;
    let copies = of_indices(copies);
    in_place(all, |[keys, values]| {
        let (cubes, dim) = unit_each(&keys.client, count);
        copy_elements::launch(
            &keys.client,
            cubes,
            dim,
            copies.into_buffer_arg(),
            keys.clone().into_buffer_arg(),
            values.clone().into_buffer_arg(),
            page * columns,
            count,
        );
    });
}

/// Calls `change` with both matrices, moved out and back in because a second owner would force a copy.
pub(super) fn in_place([keys, values]: &mut [Tensor<2>; 2], change: impl FnOnce([&CubeTensor; 2])) {
    keys.inplace(|all_keys| {
        let all_keys = owned(all_keys);
        values.inplace(|all_values| {
            let all_values = owned(all_values);
            change([&all_keys, &all_values]);
            Tensor::from_primitive::<Cube>(all_values)
        });
        Tensor::from_primitive::<Cube>(all_keys)
    });
}

#[cube(launch)]
fn scatter_rows(
    keys: &[f32],
    values: &[f32],
    places: &[i32],
    all_keys: &mut [f32],
    all_values: &mut [f32],
    columns: usize,
    key_stride: usize,
    value_stride: usize,
    count: usize,
) {
    let at = ABSOLUTE_POS;
    if at >= count {
        terminate!();
    }
    let (row, column) = (at / columns, at % columns);
    let place = places[row] as usize * columns + column;
    all_keys[place] = keys[row * key_stride + column];
    all_values[place] = values[row * value_stride + column];
}

#[cube(launch)]
fn copy_elements(copies: &[i32], keys: &mut [f32], values: &mut [f32], size: usize, count: usize) {
    let at = ABSOLUTE_POS;
    if at >= count {
        terminate!();
    }
    let (copy, element) = (at / size, at % size);
    let from = copies[2 * copy] as usize * size + element;
    let to = copies[2 * copy + 1] as usize * size + element;
    keys[to] = keys[from];
    values[to] = values[from];
}
