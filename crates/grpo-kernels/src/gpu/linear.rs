//! Linear layers for sampling, which multiply few rows by large weights.
//!
//! A cube computes [`ROWS`](tile::ROWS) rows of [`COLUMNS`](tile::COLUMNS) columns. Each of its units
//! multiplies one of [`SLICES`](tile::SLICES) slices of the inner dimension by
//! [`WIDTH`](tile::WIDTH) columns, and the sums of the slices are added in order. So the order of the
//! sums does not depend on the number of rows, nor on what is computed in the same launch.

mod tile;

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, FloatDType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::block_product::{block_product, element};
use super::reduce::UNITS;
use super::sums::add_bias;
use super::{empty, primitive, untracked};
use crate::four_bits::dense;
use tile::{OutputActivation, WIDTH, multiply_gated, multiply_jointly, multiply_rows};

/// Largest number of cubes in the second dimension.
const MOST_CUBES: usize = 65_535;

/// A weight and a bias.
pub(crate) type Layer = (Tensor<2>, Option<Tensor<1>>);

/// Computes `x · W + b` in `f32` without autodiff. Each row is independent of the others. Factors in
/// 16 bits are read as they are, other weights are converted to `f32`.
pub(crate) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let weight = if is_half(&weight) { weight } else { dense(weight) };
    let (x, weight) = (untracked(x), untracked(weight));
    if let Some(y) = linear_rows(&x, &weight, bias.clone().map(primitive)) {
        return Tensor::from_primitive::<Cube>(y);
    }
    // Not in parts, whose number would depend on the number of rows.
    let [x, weight] = [x, weight].map(|factor| Cube::float_cast(factor, FloatDType::F32));
    let y = Tensor::from_primitive::<Cube>(block_product(&x, &weight));
    match bias {
        Some(bias) => add_bias(y, bias),
        None => y,
    }
}

/// Computes `x · W + b` in `f32` for factors in `f32`, `bf16` or `f16`, or returns `None` if the
/// matrices cannot be read in vectors.
pub(super) fn linear_rows(
    x: &CubeTensor,
    weight: &CubeTensor,
    bias: Option<CubeTensor>,
) -> Option<CubeTensor> {
    activated_rows(x, weight, bias, OutputActivation::Identity)
}

/// Computes `gelu(x · W + b)`, or returns `None` if the matrices cannot be read in vectors.
pub(crate) fn linear_gelu(x: Tensor<2>, (weight, bias): Layer, tanh: bool) -> Option<Tensor<2>> {
    let weight = readable(weight)?;
    let gelu = if tanh { OutputActivation::GeluTanh } else { OutputActivation::Gelu };
    let y = activated_rows(&untracked(x), &weight, bias.map(primitive), gelu)?;
    Some(Tensor::from_primitive::<Cube>(y))
}

fn activated_rows(
    x: &CubeTensor,
    weight: &CubeTensor,
    bias: Option<CubeTensor>,
    activation: OutputActivation,
) -> Option<CubeTensor> {
    let Factors { x, transposed } = Factors::new(x, [weight])?;
    let (rows, inner, columns) = (x.shape()[0], x.shape()[1], weight.shape()[1]);
    let y = empty(&x, [rows, columns]);
    let has_bias = bias.is_some();
    // Without a bias, the kernel needs a buffer of `f32` that it does not read.
    let bias = bias.unwrap_or_else(|| y.clone());
    let types = [element(x.dtype), element(weight.dtype)];
    multiply_rows::launch(
        &y.client,
        cube_count(columns.div_ceil(tile::COLUMNS), rows),
        CubeDim::new_1d(UNITS as u32),
        x.into_buffer_arg(),
        weight.clone().into_buffer_arg(),
        bias.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rows,
        inner / WIDTH,
        columns,
        has_bias,
        activation,
        transposed,
        types,
    );
    Some(y)
}

/// Computes three layers of the same input next to each other, or returns `None` if the matrices
/// cannot be read in vectors.
pub(crate) fn joined_linear(x: Tensor<2>, layers: [Layer; 3]) -> Option<Tensor<2>> {
    let [(w0, b0), (w1, b1), (w2, b2)] = layers;
    let weights = [readable(w0)?, readable(w1)?, readable(w2)?];
    let Factors { x, transposed } = Factors::new(&untracked(x), weights.each_ref())?;
    let biases = [b0, b1, b2].map(|bias| bias.map(primitive));
    let has_bias = biases.each_ref().map(Option::is_some);
    if has_bias.iter().any(|&has| has != has_bias[0]) {
        return None;
    }
    let columns = weights.each_ref().map(|weight| weight.shape()[1]);
    let (rows, inner) = (x.shape()[0], x.shape()[1]);
    let y = empty(&x, [rows, columns.iter().sum()]);
    let [b0, b1, b2] = biases.map(|bias| bias.unwrap_or_else(|| y.clone()).into_buffer_arg());
    let types = [element(x.dtype), element(weights[0].dtype)];
    let [w0, w1, w2] = weights.map(CubeTensor::into_buffer_arg);
    multiply_jointly::launch(
        &y.client,
        cube_count(columns.iter().map(|columns| columns.div_ceil(tile::COLUMNS)).sum(), rows),
        CubeDim::new_1d(UNITS as u32),
        x.into_buffer_arg(),
        w0,
        w1,
        w2,
        b0,
        b1,
        b2,
        y.clone().into_buffer_arg(),
        rows,
        inner / WIDTH,
        columns[0],
        columns[1],
        columns[2],
        has_bias[0],
        transposed,
        types,
    );
    Some(Tensor::from_primitive::<Cube>(y))
}

/// Computes `swiglu(x · W + b, x · V + c)`, or returns `None` if the matrices cannot be read in
/// vectors.
pub(crate) fn gated_linear(
    x: Tensor<2>,
    (gate, gate_bias): Layer,
    (up, up_bias): Layer,
) -> Option<Tensor<2>> {
    let (gate, up) = (readable(gate)?, readable(up)?);
    if gate.shape() != up.shape() || gate_bias.is_some() != up_bias.is_some() {
        return None;
    }
    let Factors { x, transposed } = Factors::new(&untracked(x), [&gate, &up])?;
    let (rows, inner, columns) = (x.shape()[0], x.shape()[1], gate.shape()[1]);
    let y = empty(&x, [rows, columns]);
    let has_bias = gate_bias.is_some();
    let [gate_bias, up_bias] =
        [gate_bias, up_bias].map(|bias| bias.map_or_else(|| y.clone(), primitive));
    let types = [element(x.dtype), element(gate.dtype)];
    multiply_gated::launch(
        &y.client,
        cube_count(columns.div_ceil(tile::COLUMNS), rows),
        CubeDim::new_1d(UNITS as u32),
        x.into_buffer_arg(),
        gate.into_buffer_arg(),
        up.into_buffer_arg(),
        gate_bias.into_buffer_arg(),
        up_bias.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        rows,
        inner / WIDTH,
        columns,
        has_bias,
        transposed,
        types,
    );
    Some(Tensor::from_primitive::<Cube>(y))
}

/// Factors that can be read in vectors.
struct Factors {
    /// In row-major order.
    x: CubeTensor,
    /// Whether the weights are views of transposed matrices.
    transposed: bool,
}

impl Factors {
    fn new<const N: usize>(x: &CubeTensor, weights: [&CubeTensor; N]) -> Option<Self> {
        let (rows, inner) = (x.shape()[0], x.shape()[1]);
        if rows == 0 || inner == 0 || rows > MOST_CUBES * tile::ROWS {
            return None;
        }
        let transposed = is_transposed(weights[0])?;
        for weight in weights {
            let columns = weight.shape()[1];
            let of_quads =
                inner.is_multiple_of(WIDTH) && (transposed || columns.is_multiple_of(WIDTH));
            let alike = weight.dtype == weights[0].dtype && is_transposed(weight)? == transposed;
            if !(alike && of_quads && columns > 0 && is_aligned(weight)) {
                return None;
            }
        }
        let x = into_contiguous(x.clone());
        is_aligned(&x).then_some(Self { x, transposed })
    }
}

/// Returns whether a matrix is the view of a transposed one, or `None` if it is a part of another.
fn is_transposed(weight: &CubeTensor) -> Option<bool> {
    let (inner, columns) = (weight.shape()[0], weight.shape()[1]);
    match weight.meta.strides()[..] {
        [stride, 1] if stride == columns => Some(false),
        [1, stride] if stride == inner => Some(true),
        _ => None,
    }
}

/// Returns whether the tensor starts at a quad.
fn is_aligned(x: &CubeTensor) -> bool {
    let start = x.handle.offset_start.unwrap_or(0);
    start.is_multiple_of((WIDTH * x.dtype.size()) as u64)
}

fn is_half(weight: &Tensor<2>) -> bool {
    matches!(weight.dtype(), DType::BF16 | DType::F16)
}

/// Returns a weight that kernels can read as it is.
fn readable(weight: Tensor<2>) -> Option<CubeTensor> {
    let readable = is_half(&weight) || weight.dtype() == DType::F32;
    readable.then(|| untracked(weight))
}

/// Returns the number of cubes for some tiles of columns.
fn cube_count(tiles: usize, rows: usize) -> CubeCount {
    CubeCount::Static(tiles as u32, rows.div_ceil(tile::ROWS) as u32, 1)
}
