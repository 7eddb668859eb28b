//! Sums, written where the first term lies.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Tensor, TensorData};
use multiversion::multiversion;
use rayon::prelude::*;

use crate::simd::{CHUNK, ROWS};

pub(crate) fn add(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    let sum = <Dispatch as FusedSums>::fused_add(x.into_dispatch(), y.into_dispatch());
    Tensor::from_dispatch(sum)
}

pub(crate) fn add_bias(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    let sum = <Dispatch as FusedSums>::fused_add_bias(x.into_dispatch(), bias.into_dispatch());
    Tensor::from_dispatch(sum)
}

/// What a backend computes.
pub(crate) trait SumKernels: Backend {
    /// `x + y`.
    fn add_kernel(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `bias` added to each row of `x`.
    fn add_bias_kernel(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
    /// The sum of the rows of `x`.
    fn sum_of_rows_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedSums: Backend {
    /// See [`SumKernels::add_kernel`].
    fn fused_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self>;
    /// See [`SumKernels::add_bias_kernel`].
    fn fused_add_bias(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl FusedSums for Flex {
    fn fused_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::add_kernel(x, y)
    }
    fn fused_add_bias(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::add_bias_kernel(x, bias)
    }
}

impl<B: Backend + SumKernels, S: CheckpointStrategy> FusedSums for Autodiff<B, S> {
    fn fused_add(x: FloatTensor<Self>, y: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [x.node(), y.node()];
        let sum = B::add_kernel(x.into_primitive(), y.into_primitive());
        match Add.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((), sum),
            OpsKind::UnTracked(prep) => prep.finish(sum),
        }
    }

    fn fused_add_bias(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [x.node(), bias.node()];
        let sum = B::add_bias_kernel(x.into_primitive(), bias.into_primitive());
        match AddBias.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((), sum),
            OpsKind::UnTracked(prep) => prep.finish(sum),
        }
    }
}

#[derive(Debug)]
struct Add;

impl<B: SumKernels> Backward<B, 2> for Add {
    type State = ();

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        for parent in ops.parents.into_iter().flatten() {
            grads.register::<B>(parent.id, dy.clone());
        }
    }
}

#[derive(Debug)]
struct AddBias;

impl<B: SumKernels> Backward<B, 2> for AddBias {
    type State = ();

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        let [of_x, of_bias] = ops.parents;
        if let Some(parent) = of_bias {
            grads.register::<B>(parent.id, B::sum_of_rows_kernel(dy.clone()));
        }
        if let Some(parent) = of_x {
            grads.register::<B>(parent.id, dy);
        }
    }
}

impl SumKernels for Flex {
    fn add_kernel(x: FlexTensor, y: FlexTensor) -> FlexTensor {
        let (mut x, y) = (super::dense(x), y.to_contiguous());
        x.storage_mut::<f32>()
            .par_chunks_mut(CHUNK)
            .zip(y.storage::<f32>().par_chunks(CHUNK))
            .for_each(|(x, y)| add_to(x, y));
        x
    }

    fn add_bias_kernel(x: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let (mut x, bias) = (super::dense(x), bias.to_contiguous());
        let bias = bias.storage::<f32>();
        let rows = (CHUNK / bias.len().max(1)).max(1);
        x.storage_mut::<f32>()
            .par_chunks_mut(rows * bias.len().max(1))
            .for_each(|rows| rows.chunks_mut(bias.len().max(1)).for_each(|row| add_to(row, bias)));
        x
    }

    fn sum_of_rows_kernel(x: FlexTensor) -> FlexTensor {
        let x = x.to_contiguous();
        let columns = x.layout().shape()[1];
        let partial: Vec<Vec<f32>> = x
            .storage::<f32>()
            .par_chunks(ROWS * columns.max(1))
            .map(|rows| {
                let mut sum = vec![0.0; columns];
                rows.chunks(columns.max(1)).for_each(|row| add_to(&mut sum, row));
                sum
            })
            .collect();
        let mut sum = vec![0.0; columns];
        partial.iter().for_each(|part| add_to(&mut sum, part));
        FlexTensor::from_data(TensorData::new(sum, [columns]))
    }
}

#[multiversion(targets = "simd")]
fn add_to(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}
