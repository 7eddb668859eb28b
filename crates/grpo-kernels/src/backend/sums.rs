//! In-place addition.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
use multiversion::multiversion;
use rayon::prelude::*;

use super::{binary, dense, sum_in_order};
use crate::simd::{CHUNK, ROWS};
use crate::tape::Operation;

pub(crate) fn add(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    binary(Add, x, y)
}

#[derive(Debug)]
struct Add;

impl Operation<Flex, 2> for Add {
    type Saved = ();

    fn forward(&self, [x, y]: [FlexTensor; 2], _: [bool; 2]) -> (FlexTensor, ()) {
        let (mut x, y) = (dense(x), y.to_contiguous());
        x.storage_mut::<f32>()
            .par_chunks_mut(CHUNK)
            .zip(y.storage::<f32>().par_chunks(CHUNK))
            .for_each(|(x, y)| add_to(x, y));
        (x, ())
    }

    fn backward(self, (): (), dy: FlexTensor, [of_x, of_y]: [bool; 2]) -> [Option<FlexTensor>; 2] {
        [of_x.then(|| dy.clone()), of_y.then_some(dy)]
    }
}

/// Returns the sum of all rows, `[columns]`.
pub(super) fn sum_of_rows(x: &FlexTensor) -> FlexTensor {
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
    FlexTensor::from_data(TensorData::new(sum_in_order(partial, columns), [columns]))
}

#[multiversion(targets = "simd")]
fn add_to(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<const N: usize>(shape: [usize; N]) -> FlexTensor {
        FlexTensor::from_data(TensorData::new(vec![1f32; shape.iter().product()], shape))
    }

    #[test]
    fn an_unshared_term_is_updated_in_place() {
        let x = tensor([64, 8]);
        let place = x.storage::<f32>().as_ptr();
        let (x, ()) = Add.forward([x, tensor([64, 8])], [true; 2]);
        assert_eq!(x.storage::<f32>().as_ptr(), place);
        assert!(x.storage::<f32>().iter().all(|&sum| sum == 2.0));
    }
}
