//! Gathers matrix rows in parallel.

use std::sync::Arc;

use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{Tensor, TensorData};
use multiversion::multiversion;

use super::unary;
use crate::chunks::write_chunks;
use crate::positions::PositionsOfIds;
use crate::tape::Operation;

/// Number of output rows per task.
const ROWS: usize = 8;

/// Selects rows of `table`. All `ids` must be valid row indices.
pub(crate) fn gather_rows(table: Tensor<2>, ids: Arc<[usize]>) -> Tensor<2> {
    unary(GatherRows { ids }, table)
}

#[derive(Debug)]
struct GatherRows {
    ids: Arc<[usize]>,
}

impl Operation<Flex, 1> for GatherRows {
    /// Number of rows in the table.
    type Saved = usize;

    fn forward(&self, [table]: [FlexTensor; 1], _: [bool; 1]) -> (FlexTensor, usize) {
        let table = table.to_contiguous();
        let width = table.shape()[1];
        let source = table.storage::<f32>();
        let [out] = write_chunks(self.ids.len() * width, ROWS * width, |task, [out]| {
            let ids = &self.ids[task * ROWS..];
            for (out, id) in out.chunks_exact_mut(width).zip(ids) {
                out.copy_from_slice(&source[id * width..(id + 1) * width]);
            }
        });
        let out = FlexTensor::from_data(TensorData::new(out, [self.ids.len(), width]));
        (out, table.shape()[0])
    }

    fn backward(self, rows: usize, dy: FlexTensor, _: [bool; 1]) -> [Option<FlexTensor>; 1] {
        let dy = dy.to_contiguous();
        let width = dy.shape()[1];
        let upstream = dy.storage::<f32>();
        let positions = PositionsOfIds::new(&self.ids, rows);
        let [out] = write_chunks(rows * width, ROWS * width, |task, [sums]| {
            for (row, sum) in sums.chunks_exact_mut(width).enumerate() {
                add_rows(upstream, positions.of(task * ROWS + row), sum);
            }
        });
        [Some(FlexTensor::from_data(TensorData::new(out, [rows, width])))]
    }
}

/// Adds the rows of `dy` at `positions` to `sum`.
#[multiversion(targets = "simd")]
fn add_rows(dy: &[f32], positions: &[usize], sum: &mut [f32]) {
    let width = sum.len();
    for position in positions {
        for (sum, dy) in sum.iter_mut().zip(&dy[position * width..(position + 1) * width]) {
            *sum += dy;
        }
    }
}
