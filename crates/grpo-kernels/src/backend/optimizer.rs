//! In-place optimizer operations. None of them supports autodiff.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use multiversion::multiversion;
use rayon::prelude::*;

use crate::adamw::settings::Factors;
use crate::simd::{CHUNK, LANES};

pub(crate) fn adamw_step<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    [first, second]: [Tensor<D>; 2],
    by: &Factors,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let gradient = primitive(gradient);
    let mut written = [parameter, first, second].map(primitive);
    step(&mut written, &gradient, by);
    let [parameter, first, second] = written.map(Tensor::from_primitive::<Flex>);
    (parameter, [first, second])
}

pub(crate) fn squared_norm<const D: usize>(x: Tensor<D>) -> f64 {
    let x = primitive(x);
    let of_chunks: Vec<f64> = x.storage::<f32>().par_chunks(CHUNK).map(sum_of_squares).collect();
    of_chunks.into_iter().sum()
}

fn step(written: &mut [FlexTensor; 3], gradient: &FlexTensor, by: &Factors) {
    let [parameter, first, second] = written.each_mut().map(FlexTensor::storage_mut::<f32>);
    let moments = first.par_chunks_mut(CHUNK).zip(second.par_chunks_mut(CHUNK));
    parameter
        .par_chunks_mut(CHUNK)
        .zip(gradient.storage::<f32>().par_chunks(CHUNK))
        .zip(moments)
        .for_each(|((parameter, gradient), (first, second))| {
            step_chunk(parameter, gradient, first, second, by);
        });
}

fn primitive<const D: usize>(x: Tensor<D>) -> FlexTensor {
    let x = x
        .try_into_primitive::<Flex>()
        .expect("the tensor is on the CPU backend and not tracked by autodiff");
    x.to_contiguous()
}

#[multiversion(targets = "simd")]
fn step_chunk(
    parameter: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    by: &Factors,
) {
    let moments = first.iter_mut().zip(second);
    for ((parameter, &gradient), (m, v)) in parameter.iter_mut().zip(gradient).zip(moments) {
        let gradient = gradient * by.gradient;
        *m = by.first[0] * *m + by.first[1] * gradient;
        *v = by.second[0] * *v + by.second[1] * (gradient * gradient);
        let root = v.sqrt() * by.inverse_root + by.epsilon;
        *parameter = by.decay * *parameter - by.rate * (*m / root);
    }
}

#[multiversion(targets = "simd")]
fn sum_of_squares(x: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    let rest = chunks.remainder().iter().map(|&x| f64::from(x) * f64::from(x));
    lanes.into_iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdamW, adamw_step};
    use burn::tensor::Device;

    fn storages(tensors: [Tensor<2>; 3]) -> [*const f32; 3] {
        tensors.map(|tensor| primitive(tensor).storage::<f32>().as_ptr())
    }

    #[test]
    fn what_nobody_else_holds_is_written_in_place() {
        let tensor = |value: f32| Tensor::<2>::full([3, 5], value, &Device::flex());
        let (parameter, first, second) = (tensor(1.0), tensor(0.0), tensor(0.0));
        let before = storages([parameter.clone(), first.clone(), second.clone()]);
        let step = AdamW {
            learning_rate: 0.1,
            betas: [0.9, 0.99],
            epsilon: 1e-8,
            weight_decay: 0.0,
            step: 1,
            gradient_scale: 1.0,
        };
        let (parameter, [first, second]) =
            adamw_step(parameter, tensor(2.0), [first, second], &step);
        assert_eq!(storages([parameter.clone(), first.clone(), second.clone()]), before);

        let held = parameter.clone();
        let value = parameter.to_data();
        let (parameter, [first, second]) =
            adamw_step(parameter, tensor(2.0), [first, second], &step);
        let after = storages([parameter, first, second]);
        assert_ne!(after[0], before[0]);
        assert_eq!(after[1..], before[1..]);
        assert_eq!(held.into_data(), value);
    }
}
