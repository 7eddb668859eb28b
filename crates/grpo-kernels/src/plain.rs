//! Implementations based on Burn's primitives. Tests use them as the reference for the fused
//! versions, and other backends run them directly.

use std::ops::Range;

use burn::tensor::activation::{sigmoid, softmax};
use burn::tensor::{Bool, Device, FloatDType, Int, Tensor, TensorData};

use crate::adamw::settings::{AdamW, Factors};
use crate::four_bits::dense;
use crate::half::Half;
use crate::rotary::tables::RotaryTables;
use crate::visible::Visible;

/// Returns `a · b`. See [`crate::matmul`].
pub fn matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    a.matmul(b)
}

/// Returns `a · b` with both factors rounded to 16 bits. Gradients are not rounded. See
/// [`crate::half_linear`].
pub fn half_matmul(a: Tensor<2>, b: Tensor<2>, format: Half) -> Tensor<2> {
    rounded(a, format).matmul(rounded(b, format))
}

/// Rounds to 16 bits. The result is in `f32`.
pub fn rounded(x: Tensor<2>, format: Half) -> Tensor<2> {
    let format = match format {
        Half::Bf16 => FloatDType::BF16,
        Half::F16 => FloatDType::F16,
    };
    x.cast(format).cast(FloatDType::F32)
}

/// Returns `x · W + b` with the weight converted to `f32`. The backend determines the summation
/// order, which may depend on the number of rows. See [`crate::batch_invariant_linear`].
pub fn batch_invariant_linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    let y = x.matmul(dense(weight));
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}

/// Returns `x + y`. See [`crate::add`].
pub fn add(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    x + y
}

/// Adds `bias` to each row of `x`. See [`crate::add_bias`].
pub fn add_bias(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    x + bias.unsqueeze()
}

/// Returns `x · Φ(x)`, where Φ is the exact normal CDF. See [`crate::gelu`].
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    // Burn's erf-based GELU uses the derivative of the tanh approximation.
    let cdf = ((x.clone() * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * cdf
}

/// Returns `x · ½ (1 + tanh(√(2/π) (x + 0.044715 x³)))`. See [`crate::gelu_tanh`].
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    // Beyond ±10 the gate is 0 or 1 in every float type, but its derivative would be 0 · ∞.
    let near = x.clone().clamp(-10.0, 10.0);
    let cubic = near.clone() + near.clone().square() * near * 0.044_715;
    let gate = ((cubic * (2.0 / std::f64::consts::PI).sqrt()).tanh() + 1.0) * 0.5;
    x * gate
}

/// Returns `gate · σ(gate) · up`. See [`crate::swiglu`].
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    gate.clone() * sigmoid(gate) * up
}

/// Computes the softmax over the visible keys of each query. See [`crate::attention_softmax`].
pub fn attention_softmax(scores: Tensor<4>, scale: f64, visible: &Visible) -> Tensor<4> {
    let hidden = hidden(scores.dims(), visible, &scores.device());
    let scores = scores * scale;
    softmax(
        match hidden {
            Some(hidden) => scores.mask_fill(hidden, f32::NEG_INFINITY),
            None => scores,
        },
        3,
    )
}

/// Returns a mask of the invisible keys, `[batch or 1, 1, queries, keys]`.
fn hidden(shape: [usize; 4], visible: &Visible, device: &Device) -> Option<Tensor<4, Bool>> {
    let [batch, _, queries, keys] = shape;
    if visible.tokens.is_none() {
        let mask =
            || Tensor::<2, Bool>::tril_mask([queries, keys], (keys - queries) as i64, device);
        return visible.causal.then(|| mask().unsqueeze());
    }
    let columns = visible.columns(shape);
    let bound = |of: fn(&Range<usize>) -> usize| -> Tensor<4, Int> {
        let bounds: Vec<i64> = columns.iter().map(|range| of(range) as i64).collect();
        let bounds = TensorData::new(bounds, [batch, 1, queries, 1]);
        Tensor::<4, Int>::from_data(bounds, device).expand([batch, 1, queries, keys])
    };
    let column: Tensor<1, Int> = Tensor::arange(0..keys as i64, device);
    let column = column.unsqueeze::<4>().expand([batch, 1, queries, keys]);
    let before = column.clone().lower(bound(|range| range.start));
    Some(before.bool_or(column.greater_equal(bound(|range| range.end))))
}

/// Normalises each row to mean 0 and variance 1, then applies a scale and a shift. See
/// [`crate::layer_norm`].
pub fn layer_norm(x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<2> {
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().square().mean_dim(1);
    let normal = centred / (variance + epsilon).sqrt();
    normal * gamma.unsqueeze() + beta.unsqueeze()
}

/// Divides each row by its root mean square, then applies a scale. See [`crate::rms_norm`].
pub fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f64) -> Tensor<2> {
    let mean_square = x.clone().square().mean_dim(1);
    x / (mean_square + epsilon).sqrt() * gamma.unsqueeze()
}

/// Performs an AdamW update. See [`crate::adamw_step`].
pub fn adamw_step<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    [first, second]: [Tensor<D>; 2],
    step: &AdamW,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let by = Factors::new(step);
    let gradient = gradient * by.gradient;
    let first = first * by.first[0] + gradient.clone() * by.first[1];
    let second = second * by.second[0] + gradient.square() * by.second[1];
    let root = second.clone().sqrt() * by.inverse_root + by.epsilon;
    let parameter = parameter * by.decay - first.clone() / root * by.rate;
    (parameter, [first, second])
}

/// Returns `Σ x²`, computed on the host in f64. See [`crate::squared_norm`].
pub fn squared_norm<const D: usize>(x: Tensor<D>) -> f64 {
    x.into_data().iter::<f64>().map(|x| x * x).sum()
}

/// Selects rows of a table. See [`crate::gather_rows`].
pub fn gather_rows(table: Tensor<2>, ids: Tensor<1, Int>) -> Tensor<2> {
    table.select(0, ids)
}

/// Rotates each pair by its angle. See [`crate::rotary`].
pub fn rotary(x: Tensor<2>, tables: &RotaryTables) -> Tensor<2> {
    let ([rows, columns], [_, half]) = (x.dims(), tables.cos.dims());
    let table = |table: &Tensor<2>| {
        let table = table.clone().reshape([rows, 1, half]);
        if x.is_autodiff() { Tensor::from_inner(table) } else { table }
    };
    let (cos, sin) = (table(&tables.cos), table(&tables.sin));
    let heads: Tensor<3> = x.clone().reshape([rows, columns / (2 * half), 2 * half]);
    let (first, second) = (heads.clone().narrow(2, 0, half), heads.narrow(2, half, half));
    let turned = first.clone() * cos.clone() - second.clone() * sin.clone();
    let other = second * cos + first * sin;
    Tensor::cat(vec![turned, other], 2).reshape([rows, columns])
}
