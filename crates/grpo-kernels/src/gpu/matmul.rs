//! Matrix products in full `f32`, or of factors in 16 bits with sums in `f32`.
//!
//! By default, Burn multiplies `f32` matrices on tensor cores after rounding them to `tf32`, which
//! keeps 10 of 23 bits. Log-probabilities of sampling and training would then differ by about 1e-3
//! instead of 1e-5.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::binary;
use super::block_product::block_product;
use super::linear::linear_rows;
use super::sums::sum_of_parts;
use crate::tape::Operation;

/// Returns `a · b` for the last two dimensions. The others must be equal.
pub(crate) fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    binary(Matmul, a, b)
}

#[derive(Debug)]
struct Matmul;

impl Operation<Cube, 2> for Matmul {
    /// Each factor, if it is needed for the gradient of the other.
    type Saved = [Option<CubeTensor>; 2];

    fn forward(
        &self,
        [a, b]: [CubeTensor; 2],
        [of_a, of_b]: [bool; 2],
    ) -> (CubeTensor, Self::Saved) {
        (product(&a, &b), [of_b.then_some(a), of_a.then_some(b)])
    }

    fn backward(
        self,
        factors: Self::Saved,
        dy: CubeTensor,
        _: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        gradients(factors, &dy)
    }
}

/// Returns the gradients of the factors of `a · b`, each of which needs the other factor.
pub(super) fn gradients(
    [a, b]: [Option<CubeTensor>; 2],
    dy: &CubeTensor,
) -> [Option<CubeTensor>; 2] {
    [b.map(|b| product(dy, &transposed(b))), a.map(|a| product(&transposed(a), dy))]
}

/// Returns a view with the last two dimensions swapped.
pub(super) fn transposed(x: CubeTensor) -> CubeTensor {
    let dimensions = x.shape().num_dims();
    Cube::float_swap_dims(x, dimensions - 2, dimensions - 1)
}

/// Returns `a · b` for `a` of shape `[…, m, k]` and `b` of shape `[…, k, n]`, either of which may
/// be a transposed view. So may be the result, which is in `f32`. The factors have the same type:
/// `f32`, `bf16` or `f16`.
///
/// The order of the sums depends on the shapes.
pub fn product(a: &CubeTensor, b: &CubeTensor) -> CubeTensor {
    assert_eq!(a.dtype, b.dtype, "factors");
    narrow(a, b).or_else(|| in_parts(a, b)).unwrap_or_else(|| block_product(a, b))
}

/// Most rows or columns of a narrow product, such as those of an adapter.
const NARROW: usize = 64;

/// Computes a product with few rows or columns with the kernel for linear layers, which divides the
/// inner dimension among units.
fn narrow(a: &CubeTensor, b: &CubeTensor) -> Option<CubeTensor> {
    let (&[m, k], &[_, n]) = (&a.shape()[..], &b.shape()[..]) else { return None };
    // There is nothing to divide.
    if k < NARROW {
        return None;
    }
    match a.meta.strides()[..] {
        _ if m <= NARROW => linear_rows(a, b, None),
        _ if n > NARROW => None,
        // `bᵀ · aᵀ`, in which only the small factor has to be copied.
        [1, _] => linear_rows(&transposed(b.clone()), &transposed(a.clone()), None).map(transposed),
        _ => linear_rows(a, b, None),
    }
}

/// Rows and columns of the part of a product that a cube computes.
const TILE: usize = 64;
/// Number of cubes that occupy a GPU.
const CUBES: usize = 256;
/// Shortest part of the inner dimension that is worth a sum of parts.
const SHORTEST: usize = 256;

/// Computes a product of a long inner dimension and few elements, such as the gradient of a weight.
/// Parts of the inner dimension are multiplied side by side, and added in order.
fn in_parts(a: &CubeTensor, b: &CubeTensor) -> Option<CubeTensor> {
    let (&[m, k], &[_, n]) = (&a.shape()[..], &b.shape()[..]) else { return None };
    let cubes = m.div_ceil(TILE) * n.div_ceil(TILE);
    let most = CUBES.checked_div(cubes)?.min(k / SHORTEST);
    let parts = (2..=most).rev().find(|&parts| k.is_multiple_of(parts))?;
    let inner = k / parts;
    let [of_a, of_b] = [a, b].map(|x| [x.meta.strides()[0], x.meta.strides()[1]]);
    let of_a = viewed(a, [parts, m, inner], [inner * of_a[1], of_a[0], of_a[1]]);
    let of_b = viewed(b, [parts, inner, n], [inner * of_b[0], of_b[0], of_b[1]]);
    let products = block_product(&of_a, &of_b);
    let sums = sum_of_parts(viewed(&products, [parts, m * n], [m * n, 1]));
    Some(viewed(&sums, [m, n], [n, 1]))
}

/// Returns the same memory with another shape.
fn viewed<const D: usize>(x: &CubeTensor, shape: [usize; D], strides: [usize; D]) -> CubeTensor {
    let (client, handle, device) = (x.client.clone(), x.handle.clone(), x.device.clone());
    CubeTensor::new(client, handle, Metadata::new(shape, strides), device, x.dtype)
}
