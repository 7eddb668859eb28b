//! Attention over the pages of a cache, and writing to them.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{Int, Tensor};
use cubecl::prelude::*;

use super::super::{cube_each, elements, empty, of_indices, primitive, rows_of, unit_each};
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

/// Writes rows of `new` to `places` of `all`, in place unless it has other owners.
pub(crate) fn write_rows(all: Tensor<2>, new: Tensor<2>, places: Tensor<1, Int>) -> Tensor<2> {
    let (all, (new, stride)) = (primitive(all), rows_of(new));
    let all = if all.can_mut() { all } else { all.copy() };
    let (count, dim) = unit_each(&all.client, elements(&new));
    scatter_rows::launch(
        &all.client,
        count,
        dim,
        new.clone().into_buffer_arg(),
        of_indices(places).into_buffer_arg(),
        all.clone().into_buffer_arg(),
        new.shape()[1],
        stride,
        elements(&new),
    );
    Tensor::from_primitive::<Cube>(all)
}

#[cube(launch)]
fn scatter_rows(
    new: &[f32],
    places: &[i32],
    all: &mut [f32],
    columns: usize,
    stride: usize,
    count: usize,
) {
    let at = ABSOLUTE_POS;
    if at >= count {
        terminate!();
    }
    let (row, column) = (at / columns, at % columns);
    all[places[row] as usize * columns + column] = new[row * stride + column];
}
