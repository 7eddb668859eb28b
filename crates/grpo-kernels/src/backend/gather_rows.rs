//! Rows of a matrix by their numbers: threads over the rows that are written.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use crate::gather_rows::{PlacesOfIds, add_rows};

/// The numbers of the rows, all of them in the table.
type Ids = Arc<[usize]>;

/// Rows that one task writes.
const ROWS: usize = 8;

pub(crate) fn gather_rows(table: Tensor<2>, ids: Ids) -> Tensor<2> {
    let table = table.into_dispatch();
    Tensor::from_dispatch(<Dispatch as FusedGather>::fused_gather_rows(table, ids))
}

/// What a backend computes.
pub(crate) trait GatherKernels: Backend {
    fn gather_rows_kernel(table: FloatTensor<Self>, ids: &Ids) -> FloatTensor<Self>;
    /// Gradient of a table with so many rows.
    fn gather_rows_kernel_backward(
        dy: FloatTensor<Self>,
        ids: &Ids,
        rows: usize,
    ) -> FloatTensor<Self>;
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedGather: Backend {
    fn fused_gather_rows(table: FloatTensor<Self>, ids: Ids) -> FloatTensor<Self>;
}

impl FusedGather for Flex {
    fn fused_gather_rows(table: FloatTensor<Self>, ids: Ids) -> FloatTensor<Self> {
        Self::gather_rows_kernel(table, &ids)
    }
}

impl<B: Backend + GatherKernels, S: CheckpointStrategy> FusedGather for Autodiff<B, S> {
    fn fused_gather_rows(table: FloatTensor<Self>, ids: Ids) -> FloatTensor<Self> {
        let node = table.node();
        let table = table.into_primitive();
        let rows = table.shape()[0];
        let y = B::gather_rows_kernel(table, &ids);
        match GatherRows.prepare::<S>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((ids, rows), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}

#[derive(Debug)]
struct GatherRows;

impl<B: GatherKernels> Backward<B, 1> for GatherRows {
    type State = (Ids, usize);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        let (ids, rows) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::gather_rows_kernel_backward(dy, &ids, rows));
        }
    }
}

impl GatherKernels for Flex {
    fn gather_rows_kernel(table: FlexTensor, ids: &Ids) -> FlexTensor {
        let table = table.to_contiguous();
        let width = table.shape()[1];
        let source = table.storage::<f32>();
        let mut out = vec![0.0; ids.len() * width];
        let tasks = out.par_chunks_mut((ROWS * width).max(1)).zip(ids.par_chunks(ROWS));
        tasks.for_each(|(out, ids)| {
            for (out, id) in out.chunks_exact_mut(width).zip(ids) {
                out.copy_from_slice(&source[id * width..(id + 1) * width]);
            }
        });
        FlexTensor::from_data(TensorData::new(out, [ids.len(), width]))
    }

    fn gather_rows_kernel_backward(dy: FlexTensor, ids: &Ids, rows: usize) -> FlexTensor {
        let dy = dy.to_contiguous();
        let width = dy.shape()[1];
        let upstream = dy.storage::<f32>();
        let places = PlacesOfIds::new(ids, rows);
        let mut out = vec![0.0; rows * width];
        let tasks = out.par_chunks_mut((ROWS * width).max(1)).enumerate();
        tasks.for_each(|(task, sums)| {
            for (row, sum) in sums.chunks_exact_mut(width).enumerate() {
                add_rows(upstream, places.of(task * ROWS + row), sum);
            }
        });
        FlexTensor::from_data(TensorData::new(out, [rows, width]))
    }
}
