//! Kernels for norms. A cube computes a row.

use cubecl::prelude::*;

use super::super::reduce::{UNITS, sum_of_units};
use super::super::sums::ROWS;

#[cube(launch)]
pub(super) fn norm_forward(
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
    normalise_row(x, gamma, beta, y, start, features, epsilon, centred, &mut shared);
}

/// Computes `sum = x + y` and its norm.
#[cube(launch)]
pub(super) fn add_and_normalise(
    x: &[f32],
    y: &[f32],
    gamma: &[f32],
    beta: &[f32],
    sum: &mut [f32],
    normal: &mut [f32],
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
    // Each unit reads only what it has written itself.
    let mut column = UNIT_POS as usize;
    while column < features {
        sum[start + column] = x[start + column] + y[start + column];
        column += UNITS;
    }
    normalise_row(&*sum, gamma, beta, normal, start, features, epsilon, centred, &mut shared);
}

/// Writes the norm of the row of `x` that begins at `start`.
#[cube]
fn normalise_row(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
    start: usize,
    features: usize,
    epsilon: f32,
    #[comptime] centred: bool,
    shared: &mut Shared<[f32]>,
) {
    let (mean, inverse) = mean_and_inverse_deviation(x, start, features, epsilon, centred, shared);
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
pub(super) fn norm_backward(
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
pub(super) fn parameter_gradients(
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
