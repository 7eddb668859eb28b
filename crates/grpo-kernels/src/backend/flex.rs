//! The operations on Burn's CPU backend: slices of `f32`, cut into chunks of a fixed size for the threads.

use burn::backend::flex::FlexTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::TensorData;
use rayon::prelude::*;

use super::{Activation, Kernels};
use crate::simd::{CHUNK, ROWS};
use crate::{
    Visible, attention_softmax as softmax_rows, gelu as gelu_slice, gelu_tanh as gelu_tanh_slice,
    layer_norm as layer_norm_rows, rms_norm as rms_norm_rows, swiglu as swiglu_slice,
};

impl Kernels for Flex {
    fn activation_kernel(x: FlexTensor, which: Activation) -> FlexTensor {
        let forward = match which {
            Activation::Gelu => gelu_slice::forward,
            Activation::GeluTanh => gelu_tanh_slice::forward,
        };
        let x = x.to_contiguous();
        let source = x.storage::<f32>();
        let mut out = vec![0.0; source.len()];
        out.par_chunks_mut(CHUNK).zip(source.par_chunks(CHUNK)).for_each(|(y, x)| forward(x, y));
        like(&x, out)
    }

    fn activation_kernel_backward(x: FlexTensor, dy: FlexTensor, which: Activation) -> FlexTensor {
        let backward = match which {
            Activation::Gelu => gelu_slice::backward,
            Activation::GeluTanh => gelu_tanh_slice::backward,
        };
        let (x, dy) = (x.to_contiguous(), dy.to_contiguous());
        let (source, upstream) = (x.storage::<f32>(), dy.storage::<f32>());
        let mut out = vec![0.0; source.len()];
        out.par_chunks_mut(CHUNK)
            .zip(source.par_chunks(CHUNK).zip(upstream.par_chunks(CHUNK)))
            .for_each(|(dx, (x, dy))| backward(x, dy, dx));
        like(&x, out)
    }

    fn swiglu_kernel(gate: FlexTensor, up: FlexTensor) -> FlexTensor {
        let (gate, up) = (gate.to_contiguous(), up.to_contiguous());
        let (gates, ups) = (gate.storage::<f32>(), up.storage::<f32>());
        let mut out = vec![0.0; gates.len()];
        out.par_chunks_mut(CHUNK)
            .zip(gates.par_chunks(CHUNK).zip(ups.par_chunks(CHUNK)))
            .for_each(|(y, (gate, up))| swiglu_slice::forward(gate, up, y));
        like(&gate, out)
    }

    fn swiglu_kernel_backward(gate: FlexTensor, up: FlexTensor, dy: FlexTensor) -> [FlexTensor; 2] {
        let (gate, up, dy) = (gate.to_contiguous(), up.to_contiguous(), dy.to_contiguous());
        let (gates, ups, upstream) =
            (gate.storage::<f32>(), up.storage::<f32>(), dy.storage::<f32>());
        let (mut dgate, mut dup) = (vec![0.0; gates.len()], vec![0.0; gates.len()]);
        let inputs = (gates.par_chunks(CHUNK), ups.par_chunks(CHUNK), upstream.par_chunks(CHUNK));
        (dgate.par_chunks_mut(CHUNK), dup.par_chunks_mut(CHUNK), inputs).into_par_iter().for_each(
            |(dgate, dup, (gate, up, dy))| {
                swiglu_slice::backward(gate, up, dy, dgate, dup);
            },
        );
        [like(&gate, dgate), like(&gate, dup)]
    }

    fn softmax_kernel(x: FlexTensor, scale: f32, visible: &Visible) -> FlexTensor {
        let x = x.to_contiguous();
        let heads = Heads::new(&x, visible);
        let source = x.storage::<f32>();
        let mut out = vec![0.0; source.len()];
        out.par_chunks_mut(heads.size)
            .zip(source.par_chunks(heads.size))
            .enumerate()
            .for_each(|(head, (y, x))| softmax_rows::forward(x, y, heads.columns(head), scale));
        like(&x, out)
    }

    fn softmax_kernel_backward(
        y: FlexTensor,
        dy: FlexTensor,
        scale: f32,
        visible: &Visible,
    ) -> FlexTensor {
        let (y, dy) = (y.to_contiguous(), dy.to_contiguous());
        let heads = Heads::new(&y, visible);
        let (output, upstream) = (y.storage::<f32>(), dy.storage::<f32>());
        let mut out = vec![0.0; output.len()];
        out.par_chunks_mut(heads.size)
            .zip(output.par_chunks(heads.size).zip(upstream.par_chunks(heads.size)))
            .enumerate()
            .for_each(|(head, (dx, (y, dy)))| {
                softmax_rows::backward(y, dy, dx, heads.columns(head), scale);
            });
        like(&y, out)
    }

    fn layer_norm_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        epsilon: f32,
    ) -> FlexTensor {
        let (x, gamma, beta) = (x.to_contiguous(), gamma.to_contiguous(), beta.to_contiguous());
        let (source, gamma, beta) = (x.storage::<f32>(), gamma.storage(), beta.storage());
        let mut out = vec![0.0; source.len()];
        let chunk = rows_chunk(gamma.len());
        out.par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk))
            .for_each(|(y, x)| layer_norm_rows::forward(x, gamma, beta, epsilon, y));
        like(&x, out)
    }

    fn layer_norm_kernel_backward(
        x: FlexTensor,
        gamma: FlexTensor,
        dy: FlexTensor,
        epsilon: f32,
        parameters: bool,
    ) -> (FlexTensor, Option<[FlexTensor; 2]>) {
        let (x, gamma, dy) = (x.to_contiguous(), gamma.to_contiguous(), dy.to_contiguous());
        let (source, scale, upstream) =
            (x.storage::<f32>(), gamma.storage::<f32>(), dy.storage::<f32>());
        let mut dx = vec![0.0; source.len()];
        let size = if parameters { scale.len() } else { 0 };
        let chunk = rows_chunk(scale.len());
        let partial: Vec<(Vec<f32>, Vec<f32>)> = dx
            .par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk).zip(upstream.par_chunks(chunk)))
            .map(|(dx, (x, dy))| {
                let (mut dgamma, mut dbeta) = (vec![0.0; size], vec![0.0; size]);
                let wanted = parameters.then_some((&mut dgamma[..], &mut dbeta[..]));
                layer_norm_rows::backward(x, scale, dy, epsilon, dx, wanted);
                (dgamma, dbeta)
            })
            .collect();
        let gradients = parameters.then(|| {
            let (dgamma, dbeta): (Vec<_>, Vec<_>) = partial.into_iter().unzip();
            [like(&gamma, in_order(dgamma, size)), like(&gamma, in_order(dbeta, size))]
        });
        (like(&x, dx), gradients)
    }

    fn rms_norm_kernel(x: FlexTensor, gamma: FlexTensor, epsilon: f32) -> FlexTensor {
        let (x, gamma) = (x.to_contiguous(), gamma.to_contiguous());
        let (source, gamma) = (x.storage::<f32>(), gamma.storage());
        let mut out = vec![0.0; source.len()];
        let chunk = rows_chunk(gamma.len());
        out.par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk))
            .for_each(|(y, x)| rms_norm_rows::forward(x, gamma, epsilon, y));
        like(&x, out)
    }

    fn rms_norm_kernel_backward(
        x: FlexTensor,
        gamma: FlexTensor,
        dy: FlexTensor,
        epsilon: f32,
        parameters: bool,
    ) -> (FlexTensor, Option<FlexTensor>) {
        let (x, gamma, dy) = (x.to_contiguous(), gamma.to_contiguous(), dy.to_contiguous());
        let (source, scale, upstream) =
            (x.storage::<f32>(), gamma.storage::<f32>(), dy.storage::<f32>());
        let mut dx = vec![0.0; source.len()];
        let size = if parameters { scale.len() } else { 0 };
        let chunk = rows_chunk(scale.len());
        let partial: Vec<Vec<f32>> = dx
            .par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk).zip(upstream.par_chunks(chunk)))
            .map(|(dx, (x, dy))| {
                let mut dgamma = vec![0.0; size];
                let wanted = parameters.then_some(&mut dgamma[..]);
                rms_norm_rows::backward(x, scale, dy, epsilon, dx, wanted);
                dgamma
            })
            .collect();
        (like(&x, dx), parameters.then(|| like(&gamma, in_order(partial, size))))
    }
}

/// The heads of attention scores, one after the other in memory.
struct Heads {
    /// Scores of a head.
    size: usize,
    heads: usize,
    queries: usize,
    /// What each query of each row of the batch sees.
    columns: Vec<std::ops::Range<usize>>,
}

impl Heads {
    fn new(scores: &FlexTensor, visible: &Visible) -> Self {
        let shape = scores.shape();
        let [batch, heads, queries, keys] = [shape[0], shape[1], shape[2], shape[3]];
        let columns = visible.columns([batch, heads, queries, keys]);
        Self { size: (queries * keys).max(1), heads, queries, columns }
    }

    /// What the queries of a head see.
    fn columns(&self, head: usize) -> &[std::ops::Range<usize>] {
        let row = head / self.heads;
        &self.columns[row * self.queries..(row + 1) * self.queries]
    }
}

fn rows_chunk(features: usize) -> usize {
    (features * ROWS).max(1)
}

/// The sum of partial sums, always in the same order.
fn in_order(partial: Vec<Vec<f32>>, size: usize) -> Vec<f32> {
    let mut total = vec![0.0; size];
    for part in &partial {
        for (total, part) in total.iter_mut().zip(part) {
            *total += part;
        }
    }
    total
}

fn like(shape_of: &FlexTensor, values: Vec<f32>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape_of.shape()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<const D: usize>(shape: [usize; D]) -> FlexTensor {
        let n: usize = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| (i * 7919 % 100) as f32 * 0.03 - 1.4).collect();
        FlexTensor::from_data(TensorData::new(values, shape))
    }

    /// Frozen weights have no gradient to compute, and that of `x` is the same without it.
    #[test]
    fn gradients_of_parameters_are_computed_where_they_are_wanted() {
        let (x, gamma, dy) = (tensor([300, 7]), tensor([7]), tensor([300, 7]));
        let rms = |parameters| {
            Flex::rms_norm_kernel_backward(x.clone(), gamma.clone(), dy.clone(), 1e-5, parameters)
        };
        assert!(rms(true).1.is_some());
        assert!(rms(false).1.is_none());
        assert_eq!(rms(true).0.storage::<f32>(), rms(false).0.storage::<f32>());
        let layer = |parameters| {
            Flex::layer_norm_kernel_backward(x.clone(), gamma.clone(), dy.clone(), 1e-5, parameters)
        };
        assert!(layer(true).1.is_some());
        assert!(layer(false).1.is_none());
        assert_eq!(layer(true).0.storage::<f32>(), layer(false).0.storage::<f32>());
    }
}
