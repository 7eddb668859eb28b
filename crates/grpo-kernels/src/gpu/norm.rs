//! Layer norm and RMS norm, with one cube per row.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::reduce::{UNITS, sum_of_units};
use super::sums::{ROWS, sum_of_parts};
use super::{binary, cube_each, elements, empty, empty_like, ternary, unit_each};
use crate::tape::Operation;

pub(crate) fn layer_norm(
    x: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f32,
) -> Tensor<2> {
    ternary(LayerNorm { epsilon }, x, [gamma, beta])
}

pub(crate) fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f32) -> Tensor<2> {
    binary(RmsNorm { epsilon }, x, gamma)
}

#[derive(Debug)]
struct LayerNorm {
    epsilon: f32,
}

impl Operation<Cube, 3> for LayerNorm {
    /// `x` and `gamma`.
    type Saved = [CubeTensor; 2];

    fn forward(&self, inputs: [CubeTensor; 3], _: [bool; 3]) -> (CubeTensor, Self::Saved) {
        let [x, gamma, beta] = inputs.map(into_contiguous);
        let y = forward(&x, [&gamma, &beta], self.epsilon, true);
        (y, [x, gamma])
    }

    fn backward(
        self,
        saved: Self::Saved,
        dy: CubeTensor,
        [_, of_gamma, of_beta]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        backward(saved, dy, self.epsilon, true, of_gamma || of_beta)
    }
}

#[derive(Debug)]
struct RmsNorm {
    epsilon: f32,
}

impl Operation<Cube, 2> for RmsNorm {
    /// `x` and `gamma`.
    type Saved = [CubeTensor; 2];

    fn forward(&self, inputs: [CubeTensor; 2], _: [bool; 2]) -> (CubeTensor, Self::Saved) {
        let [x, gamma] = inputs.map(into_contiguous);
        let y = forward(&x, [&gamma, &gamma], self.epsilon, false);
        (y, [x, gamma])
    }

    fn backward(
        self,
        saved: Self::Saved,
        dy: CubeTensor,
        [_, of_gamma]: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        let [dx, dgamma, _] = backward(saved, dy, self.epsilon, false, of_gamma);
        [dx, dgamma]
    }
}

/// Normalises rows. Only a `centred` norm subtracts the mean and adds `beta`.
fn forward(
    x: &CubeTensor,
    [gamma, beta]: [&CubeTensor; 2],
    epsilon: f32,
    centred: bool,
) -> CubeTensor {
    let y = empty_like(x);
    let features = elements(gamma);
    let rows = x.shape()[0];
    if elements(x) > 0 {
        let (count, dim) = cube_each(&x.client, rows);
        norm_forward::launch(
            &x.client,
            count,
            dim,
            x.clone().into_buffer_arg(),
            gamma.clone().into_buffer_arg(),
            beta.clone().into_buffer_arg(),
            y.clone().into_buffer_arg(),
            rows,
            features,
            epsilon,
            centred,
        );
    }
    y
}

/// Returns the gradients of `x`, and of `gamma` and `beta` if `parameters` is set.
fn backward(
    [x, gamma]: [CubeTensor; 2],
    dy: CubeTensor,
    epsilon: f32,
    centred: bool,
    parameters: bool,
) -> [Option<CubeTensor>; 3] {
    let dy = into_contiguous(dy);
    let (rows, features) = (x.shape()[0], elements(&gamma));
    let (dx, statistics) = (empty_like(&x), empty(&x, [rows, 2]));
    if elements(&x) > 0 {
        let (count, dim) = cube_each(&x.client, rows);
        norm_backward::launch(
            &x.client,
            count,
            dim,
            x.clone().into_buffer_arg(),
            gamma.clone().into_buffer_arg(),
            dy.clone().into_buffer_arg(),
            dx.clone().into_buffer_arg(),
            statistics.clone().into_buffer_arg(),
            rows,
            features,
            epsilon,
            centred,
        );
    }
    if !parameters {
        return [Some(dx), None, None];
    }
    let parts = rows.div_ceil(ROWS);
    let partial = [(); 2].map(|()| empty(&x, [parts, features]));
    if elements(&x) > 0 {
        let (count, dim) = unit_each(&x.client, parts * features);
        let [of_gamma, of_beta] = partial.each_ref();
        parameter_gradients::launch(
            &x.client,
            count,
            dim,
            x.clone().into_buffer_arg(),
            dy.into_buffer_arg(),
            statistics.into_buffer_arg(),
            of_gamma.clone().into_buffer_arg(),
            of_beta.clone().into_buffer_arg(),
            rows,
            features,
        );
    }
    let [dgamma, dbeta] = partial.map(sum_of_parts);
    [Some(dx), Some(dgamma), Some(dbeta)]
}

#[cube(launch)]
fn norm_forward(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
    rows: usize,
    features: usize,
    epsilon: f32,
    #[comptime] centred: bool,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let start = row * features;
    let (mean, inverse) =
        mean_and_inverse_deviation(x, start, features, epsilon, centred, &mut shared);
    let mut column = UNIT_POS as usize;
    while column < features {
        let normal = (x[start + column] - mean) * inverse * gamma[column];
        if centred {
            y[start + column] = normal + beta[column];
        } else {
            y[start + column] = normal;
        }
        column += UNITS;
    }
}

/// Computes `dx = inverse · (g − mean(g) − n · mean(g ∘ n))` with `n = (x − mean)·inverse` and
/// `g = dy ∘ γ`, where a norm that is not centred has means of 0. `statistics` gets mean and inverse
/// deviation of each row.
#[cube(launch)]
fn norm_backward(
    x: &[f32],
    gamma: &[f32],
    dy: &[f32],
    dx: &mut [f32],
    statistics: &mut [f32],
    rows: usize,
    features: usize,
    epsilon: f32,
    #[comptime] centred: bool,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = Shared::<[f32]>::new_slice(UNITS);
    let start = row * features;
    let (mean, inverse) =
        mean_and_inverse_deviation(x, start, features, epsilon, centred, &mut shared);
    let mut of_g = 0.0f32;
    let mut of_gn = 0.0f32;
    let mut column = UNIT_POS as usize;
    while column < features {
        let g = dy[start + column] * gamma[column];
        of_g += g;
        of_gn += g * (x[start + column] - mean);
        column += UNITS;
    }
    let scale = 1.0f32 / features as f32;
    let mut mean_g = 0.0f32;
    if centred {
        mean_g = sum_of_units(of_g, &mut shared) * scale;
    }
    let mean_gn = sum_of_units(of_gn, &mut shared) * inverse * scale;
    let mut column = UNIT_POS as usize;
    while column < features {
        let normal = (x[start + column] - mean) * inverse;
        let g = dy[start + column] * gamma[column];
        dx[start + column] = inverse * (g - mean_g - normal * mean_gn);
        column += UNITS;
    }
    if UNIT_POS == 0 {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

/// Returns mean and inverse standard deviation of a row, or 0 and the inverse root mean square.
#[cube]
fn mean_and_inverse_deviation(
    x: &[f32],
    start: usize,
    features: usize,
    epsilon: f32,
    #[comptime] centred: bool,
    shared: &mut Shared<[f32]>,
) -> (f32, f32) {
    let scale = 1.0f32 / features as f32;
    let mut mean = 0.0f32;
    if centred {
        let mut sum = 0.0f32;
        let mut column = UNIT_POS as usize;
        while column < features {
            sum += x[start + column];
            column += UNITS;
        }
        mean = sum_of_units(sum, shared) * scale;
    }
    // Uses two passes, because E[x²] − E[x]² suffers from cancellation if the mean is large.
    let mut squares = 0.0f32;
    let mut column = UNIT_POS as usize;
    while column < features {
        let centred = x[start + column] - mean;
        squares += centred * centred;
        column += UNITS;
    }
    let variance = sum_of_units(squares, shared) * scale;
    (mean, 1.0f32 / (variance + epsilon).sqrt())
}

/// Adds up `dy ∘ n` and `dy` over [`ROWS`] rows, with one unit per part and column.
#[cube(launch)]
fn parameter_gradients(
    x: &[f32],
    dy: &[f32],
    statistics: &[f32],
    of_gamma: &mut [f32],
    of_beta: &mut [f32],
    rows: usize,
    features: usize,
) {
    if ABSOLUTE_POS >= of_gamma.len() {
        terminate!();
    }
    let (part, column) = (ABSOLUTE_POS / features, ABSOLUTE_POS % features);
    let mut gamma = 0.0f32;
    let mut beta = 0.0f32;
    let mut row = part * ROWS;
    let end = (row + ROWS).min(rows);
    while row < end {
        let upstream = dy[row * features + column];
        let (mean, inverse) = (statistics[2 * row], statistics[2 * row + 1]);
        gamma += upstream * ((x[row * features + column] - mean) * inverse);
        beta += upstream;
        row += 1;
    }
    of_gamma[ABSOLUTE_POS] = gamma;
    of_beta[ABSOLUTE_POS] = beta;
}
