//! Gathers matrix rows. Gradients of rows that occur several times are added in order of position.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{Int, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{elements, empty, of_indices, unary, unit_each};
use crate::indices;
use crate::positions::PositionsOfIds;
use crate::tape::Operation;

/// Selects rows of `table`.
pub(crate) fn gather_rows(table: Tensor<2>, ids: Tensor<1, Int>) -> Tensor<2> {
    unary(GatherRows { ids }, table)
}

#[derive(Debug)]
struct GatherRows {
    ids: Tensor<1, Int>,
}

impl Operation<Cube, 1> for GatherRows {
    /// Number of rows in the table.
    type Saved = usize;

    fn forward(&self, [table]: [CubeTensor; 1], _: [bool; 1]) -> (CubeTensor, usize) {
        let rows = table.shape()[0];
        (Cube::float_select(table, 0, of_indices(self.ids.clone())), rows)
    }

    fn backward(self, rows: usize, dy: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let device = self.ids.device();
        let ids: Vec<usize> = self.ids.into_data().iter::<i64>().map(|id| id as usize).collect();
        let PositionsOfIds { positions, starts } = PositionsOfIds::new(&ids, rows);
        // A buffer of length 0 is not allowed.
        let positions = positions.into_iter().chain([0]);
        let [positions, starts] =
            [indices(positions, &device), indices(starts, &device)].map(of_indices);
        let dy = into_contiguous(dy);
        let width = dy.shape()[1];
        let gradient = empty(&dy, [rows, width]);
        let (count, dim) = unit_each(&dy.client, elements(&gradient));
        add_rows::launch(
            &gradient.client,
            count,
            dim,
            dy.clone().into_buffer_arg(),
            positions.into_buffer_arg(),
            starts.into_buffer_arg(),
            gradient.clone().into_buffer_arg(),
            width,
        );
        [Some(gradient)]
    }
}

/// Adds up the rows of `dy` at the positions of each ID, with one unit per element of the table.
#[cube(launch)]
fn add_rows(dy: &[f32], positions: &[i32], starts: &[i32], gradient: &mut [f32], width: usize) {
    if ABSOLUTE_POS >= gradient.len() {
        terminate!();
    }
    let (row, column) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
    let mut sum = 0.0f32;
    let mut at = starts[row] as usize;
    let end = starts[row + 1] as usize;
    while at < end {
        sum += dy[positions[at] as usize * width + column];
        at += 1;
    }
    gradient[ABSOLUTE_POS] = sum;
}
