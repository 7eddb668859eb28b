//! Optimizer operations. None of them supports autodiff.

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{elements, empty, owned, primitive, unit_each};
use crate::adamw::settings::Factors;

/// Performs the update in place, except on tensors that have other owners.
pub(crate) fn adamw_step<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    [first, second]: [Tensor<D>; 2],
    by: &Factors,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let gradient = primitive(gradient);
    let updated = [parameter, first, second].map(owned);
    let (count, dim) = unit_each(&gradient.client, elements(&gradient));
    let [parameter, first, second] = updated.each_ref().map(|x| x.clone().into_buffer_arg());
    let by = ByLaunch::new(
        by.gradient,
        by.first[0],
        by.first[1],
        by.second[0],
        by.second[1],
        by.decay,
        by.rate,
        by.inverse_root,
        by.epsilon,
    );
    let client = gradient.client.clone();
    adamw::launch(&client, count, dim, gradient.into_buffer_arg(), parameter, first, second, by);
    let [parameter, first, second] = updated.map(Tensor::from_primitive::<Cube>);
    (parameter, [first, second])
}

/// Smallest number of squares that a unit adds up, unless there are fewer.
const PER_UNIT: usize = 64;
/// Largest number of units, because the host adds up their sums.
const MAX_UNITS: usize = 1 << 16;

/// Returns numbers whose sum is `Σ x²` over all tensors. There must be at least one. Each unit adds
/// up some of the squares in `f32`, and the rounding errors of its sum.
pub(crate) fn sums_of_squares(tensors: Vec<Tensor<1>>) -> Tensor<1> {
    let tensors: Vec<CubeTensor> = tensors.into_iter().map(primitive).collect();
    let units = |x: &CubeTensor| elements(x).div_ceil(PER_UNIT).min(MAX_UNITS);
    let sums = empty(&tensors[0], [2 * tensors.iter().map(units).sum::<usize>()]);
    let mut first = 0;
    for x in tensors {
        let (units, count) = (units(&x), elements(&x));
        if units > 0 {
            let (cubes, dim) = unit_each(&x.client, units);
            let (client, to) = (x.client.clone(), sums.clone().into_buffer_arg());
            add_squares::launch(&client, cubes, dim, x.into_buffer_arg(), to, first, units, count);
        }
        first += units;
    }
    Tensor::from_primitive::<Cube>(sums)
}

/// The factors of [`Factors`].
#[derive(CubeType, CubeLaunch)]
struct By {
    gradient: f32,
    first_old: f32,
    first_new: f32,
    second_old: f32,
    second_new: f32,
    decay: f32,
    rate: f32,
    inverse_root: f32,
    epsilon: f32,
}

#[cube(launch)]
fn adamw(gradient: &[f32], parameter: &mut [f32], first: &mut [f32], second: &mut [f32], by: By) {
    let at = ABSOLUTE_POS;
    if at >= parameter.len() {
        terminate!();
    }
    let gradient = gradient[at] * by.gradient;
    let m = by.first_old * first[at] + by.first_new * gradient;
    let v = by.second_old * second[at] + by.second_new * (gradient * gradient);
    let root = v.sqrt() * by.inverse_root + by.epsilon;
    parameter[at] = by.decay * parameter[at] - by.rate * (m / root);
    first[at] = m;
    second[at] = v;
}

/// Writes the sum of squares and the sum of its rounding errors for each of `units` units, the first
/// of which is unit `first` of all tensors (Knuth 1997, section 4.2.2, theorem B).
#[cube(launch)]
fn add_squares(x: &[f32], sums: &mut [f32], first: usize, units: usize, count: usize) {
    if ABSOLUTE_POS >= units {
        terminate!();
    }
    let mut sum = 0.0f32;
    let mut errors = 0.0f32;
    let mut at = ABSOLUTE_POS;
    while at < count {
        let square = x[at] * x[at];
        let new_sum = sum + square;
        let of_square = new_sum - sum;
        errors += (sum - (new_sum - of_square)) + (square - of_square);
        sum = new_sum;
        at += units;
    }
    let index = 2 * (first + ABSOLUTE_POS);
    sums[index] = sum;
    sums[index + 1] = errors;
}
