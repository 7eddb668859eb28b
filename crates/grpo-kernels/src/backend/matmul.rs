//! Matrix multiplication.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::binary;
use super::gemm::product;
use crate::tape::Operation;

pub(crate) fn matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    binary(Matmul, a, b)
}

#[derive(Debug)]
struct Matmul;

impl Operation<Flex, 2> for Matmul {
    /// Each factor, if it is needed for the gradient of the other.
    type Saved = [Option<FlexTensor>; 2];

    fn forward(
        &self,
        [a, b]: [FlexTensor; 2],
        [of_a, of_b]: [bool; 2],
    ) -> (FlexTensor, Self::Saved) {
        (product(&a, &b), [of_b.then_some(a), of_a.then_some(b)])
    }

    fn backward(
        self,
        [a, b]: Self::Saved,
        dy: FlexTensor,
        _: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        [b.map(|b| product(&dy, &b.transpose(0, 1))), a.map(|a| product(&a.transpose(0, 1), &dy))]
    }
}
