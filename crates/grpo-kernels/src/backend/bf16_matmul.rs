//! Matrix multiplication with factors in bf16.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};

use super::binary;
use crate::bf16_product::{Left, Matrix, Right, product};
use crate::tape::Operation;

pub(crate) fn bf16_matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    binary(Bf16Matmul, a, b)
}

/// Rounds and packs a weight for many products.
pub(crate) fn bf16_packed(weight: Tensor<2>) -> Right {
    Right::new(&matrix(&with_known_layout(primitive(weight))))
}

/// Returns `x · weight + bias` without autodiff.
pub(crate) fn bf16_linear(x: Tensor<2>, weight: &Right, bias: Option<Tensor<1>>) -> Tensor<2> {
    let x = with_known_layout(primitive(x));
    let x = matrix(&x);
    let bias = bias.map(|bias| primitive(bias).to_contiguous());
    let y = product(&Left::new(&x), weight, bias.as_ref().map(|bias| bias.storage::<f32>()));
    Tensor::from_primitive::<Flex>(tensor(y, [x.rows, weight.columns()]))
}

#[derive(Debug)]
struct Bf16Matmul;

impl Operation<Flex, 2> for Bf16Matmul {
    /// Each factor, if it is needed for the gradient of the other.
    type Saved = [Option<FlexTensor>; 2];

    fn forward(
        &self,
        [a, b]: [FlexTensor; 2],
        [of_a, of_b]: [bool; 2],
    ) -> (FlexTensor, Self::Saved) {
        let [a, b] = [a, b].map(with_known_layout);
        let y = multiplied(&matrix(&a), &matrix(&b));
        (y, [of_b.then_some(a), of_a.then_some(b)])
    }

    fn backward(
        self,
        [a, b]: Self::Saved,
        dy: FlexTensor,
        _: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let dy = with_known_layout(dy);
        let dy = matrix(&dy);
        [
            b.map(|b| multiplied(&dy, &transposed(matrix(&b)))),
            a.map(|a| multiplied(&transposed(matrix(&a)), &dy)),
        ]
    }
}

fn multiplied(a: &Matrix<'_>, b: &Matrix<'_>) -> FlexTensor {
    tensor(product(&Left::new(a), &Right::new(b), None), [a.rows, b.columns])
}

fn tensor(values: Vec<f32>, shape: [usize; 2]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

fn primitive<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    tensor.try_into_primitive::<Flex>().expect("a tensor on the CPU without autodiff")
}

/// Copies a matrix in which neither rows nor columns are contiguous. Models never have one.
fn with_known_layout(x: FlexTensor) -> FlexTensor {
    let strides = x.layout().strides();
    let is_known = strides.contains(&1) && strides.iter().all(|stride| *stride > 0);
    if is_known { x } else { x.to_contiguous() }
}

/// Returns a view of a tensor with a known layout.
fn matrix(x: &FlexTensor) -> Matrix<'_> {
    let layout = x.layout();
    let ([rows, columns], [row_stride, column_stride]) =
        ([0, 1].map(|i| layout.shape()[i]), [0, 1].map(|i| layout.strides()[i].unsigned_abs()));
    let is_transposed = column_stride != 1;
    let stride = if is_transposed { column_stride } else { row_stride };
    let values = &x.storage::<f32>()[layout.start_offset()..];
    Matrix { values, stride, is_transposed, rows, columns }
}

fn transposed(of: Matrix<'_>) -> Matrix<'_> {
    Matrix { is_transposed: !of.is_transposed, rows: of.columns, columns: of.rows, ..of }
}
