//! Matrix products with factors in 16 bits.
//!
//! They are multiplied on tensor cores if the device has them for the format. Otherwise, rounded
//! factors are kept and multiplied in `f32`. Both are exact for each product.

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;

use super::binary;
use super::half::{round, round_scaled_to_f16, scale};
use super::matmul::{gradients, product};
use crate::half::Half;
use crate::tape::Operation;

pub(crate) fn half_matmul(a: Tensor<2>, b: Tensor<2>, format: Half) -> Tensor<2> {
    binary(HalfMatmul(format), a, b)
}

#[derive(Debug)]
struct HalfMatmul(Half);

impl Operation<Cube, 2> for HalfMatmul {
    /// Each rounded factor, if it is needed for the gradient of the other.
    type Saved = [Option<CubeTensor>; 2];

    fn forward(
        &self,
        factors: [CubeTensor; 2],
        [of_a, of_b]: [bool; 2],
    ) -> (CubeTensor, Self::Saved) {
        let [a, b] = factors.map(|factor| round(factor, self.0));
        (product(&a, &b), [of_b.then_some(a), of_a.then_some(b)])
    }

    fn backward(
        self,
        factors: Self::Saved,
        dy: CubeTensor,
        _: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        match self.0 {
            Half::Bf16 => gradients(factors, &round(dy, self.0)),
            Half::F16 => {
                let (dy, unscale) = round_scaled_to_f16(dy);
                gradients(factors, &dy).map(|of| of.map(|gradient| scale(gradient, &unscale)))
            }
        }
    }
}
