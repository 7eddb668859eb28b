//! Linear layers.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::gemm::product as gemm;
use super::half::{rounded, scale_of, scaled};
use super::sums::sum_of_rows;
use super::{binary, ternary};
use crate::batch_invariant::cpu::flex_linear;
use crate::bf16_product::{Left, Matrix, Right, product};
use crate::flex::{matrix, primitive};
use crate::half::Half;
use crate::tape::Operation;

/// Computes a linear layer with factors in `f32` or rounded to 16 bits, or takes its output from
/// `known`.
pub(crate) fn linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    factors: Option<Half>,
    known: Option<Tensor<2>>,
) -> Tensor<2> {
    let by = Linear { factors, known: known.map(primitive) };
    match bias {
        Some(bias) => ternary(by, x, [weight, bias.unsqueeze()]),
        None => binary(by, x, weight),
    }
}

/// Rounds and packs a weight for many products.
pub(crate) fn bf16_packed(weight: Tensor<2>) -> Right {
    Right::new(&view(&with_known_layout(primitive(weight))))
}

/// Returns `x · weight + bias` without autodiff.
pub(crate) fn bf16_packed_linear(
    x: Tensor<2>,
    weight: &Right,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    let x = with_known_layout(primitive(x));
    let x = view(&x);
    let bias = bias.map(|bias| primitive(bias).to_contiguous());
    let y = product(&Left::new(&x), weight, bias.as_ref().map(|bias| bias.storage::<f32>()));
    Tensor::from_primitive::<Flex>(matrix(y, [x.rows, weight.columns()]))
}

#[derive(Debug)]
struct Linear {
    /// What factors are rounded to, unless they are in `f32`.
    factors: Option<Half>,
    /// The output, if it is known.
    known: Option<FlexTensor>,
}

/// The inputs are `x`, the weight, and the bias `[1, out]` if there is one.
impl<const N: usize> Operation<Flex, N> for Linear {
    /// `x` and the weight, if one is needed for the gradient of the other.
    type Saved = [Option<FlexTensor>; 2];

    fn forward(&self, inputs: [FlexTensor; N], tracked: [bool; N]) -> (FlexTensor, Self::Saved) {
        let mut inputs = inputs.into_iter();
        let mut next = || inputs.next();
        let (Some(x), Some(weight), bias) = (next(), next(), next()) else {
            unreachable!("a linear layer has two or three inputs, not {N}")
        };
        let saved = [tracked[1].then(|| x.clone()), tracked[0].then(|| weight.clone())];
        let y = match (&self.known, self.factors) {
            (Some(known), _) => known.clone(),
            (None, None) => flex_linear(x, weight, bias),
            (None, Some(Half::Bf16)) => bf16_product(x, weight, bias),
            (None, Some(Half::F16)) => flex_linear(rounded(x, 1.0), rounded(weight, 1.0), bias),
        };
        (y, saved)
    }

    fn backward(
        self,
        [x, weight]: Self::Saved,
        dy: FlexTensor,
        tracked: [bool; N],
    ) -> [Option<FlexTensor>; N] {
        let [scale, unscale] = match self.factors {
            Some(Half::F16) => scale_of(&dy),
            _ => [1.0, 1.0],
        };
        let factor = |x: FlexTensor, scale: f32| match self.factors {
            Some(Half::F16) => rounded(x, scale),
            _ => x,
        };
        let product = |a: FlexTensor, b: FlexTensor| match self.factors {
            None => gemm(&a, &b),
            Some(Half::Bf16) => bf16_product(a, b, None),
            Some(Half::F16) => scaled(gemm(&a, &b), unscale),
        };
        let of_y = factor(dy.clone(), scale);
        let mut of_x =
            weight.map(|weight| product(of_y.clone(), factor(weight, 1.0).transpose(0, 1)));
        let mut of_weight = x.map(|x| product(factor(x, 1.0).transpose(0, 1), of_y.clone()));
        std::array::from_fn(|input| match input {
            0 => of_x.take(),
            1 => of_weight.take(),
            _ => tracked[input].then(|| {
                let sum = sum_of_rows(&dy.to_contiguous());
                let columns = sum.layout().shape()[0];
                sum.reshape([1, columns].into())
            }),
        })
    }
}

fn bf16_product(a: FlexTensor, b: FlexTensor, bias: Option<FlexTensor>) -> FlexTensor {
    let [a, b] = [a, b].map(with_known_layout);
    let (a, b) = (view(&a), view(&b));
    let bias = bias.map(|bias| bias.to_contiguous());
    let bias = bias.as_ref().map(|bias| bias.storage::<f32>());
    matrix(product(&Left::new(&a), &Right::new(&b), bias), [a.rows, b.columns])
}

/// Copies a matrix in which neither rows nor columns are contiguous. Models never have one.
fn with_known_layout(x: FlexTensor) -> FlexTensor {
    let strides = x.layout().strides();
    let is_known = strides.contains(&1) && strides.iter().all(|stride| *stride > 0);
    if is_known { x } else { x.to_contiguous() }
}

/// Returns a view of a tensor with a known layout.
fn view(x: &FlexTensor) -> Matrix<'_> {
    let layout = x.layout();
    let ([rows, columns], [row_stride, column_stride]) =
        ([0, 1].map(|i| layout.shape()[i]), [0, 1].map(|i| layout.strides()[i].unsigned_abs()));
    let is_transposed = column_stride != 1;
    let stride = if is_transposed { column_stride } else { row_stride };
    let values = &x.storage::<f32>()[layout.start_offset()..];
    Matrix { values, stride, is_transposed, rows, columns }
}
