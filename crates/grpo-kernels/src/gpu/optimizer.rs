//! Optimizer operations. None of them supports autodiff.

use burn::backend::Cube;
use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::{elements, empty, empty_like, primitive, unit_each};
use crate::adamw::settings::Factors;

pub(crate) fn adamw_step<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    [first, second]: [Tensor<D>; 2],
    by: &Factors,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let inputs = [gradient, parameter, first, second].map(primitive);
    let outputs = [(); 3].map(|()| empty_like(&inputs[0]));
    let client = inputs[0].client.clone();
    let (count, dim) = unit_each(&client, elements(&inputs[0]));
    let [gradient, parameter, first, second] = inputs.map(|input| input.into_buffer_arg());
    let [new_parameter, new_first, new_second] =
        outputs.each_ref().map(|output| output.clone().into_buffer_arg());
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
    adamw::launch(
        &client,
        count,
        dim,
        gradient,
        parameter,
        first,
        second,
        new_parameter,
        new_first,
        new_second,
        by,
    );
    let [parameter, first, second] = outputs.map(Tensor::from_primitive::<Cube>);
    (parameter, [first, second])
}

/// Smallest number of squares that a unit adds up, unless there are fewer.
const PER_UNIT: usize = 64;
/// Largest number of units, because the host adds up their sums.
const MAX_UNITS: usize = 1 << 16;

/// Returns numbers whose sum is `Σ x²`. Each unit adds up some of the squares in `f32`, and the
/// rounding errors of its sum.
pub(crate) fn sums_of_squares<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let x = primitive(x);
    let units = elements(&x).div_ceil(PER_UNIT).min(MAX_UNITS);
    let sums = empty(&x, [2 * units]);
    if units > 0 {
        let (count, dim) = unit_each(&x.client, units);
        let (from, to) = (x.clone().into_buffer_arg(), sums.clone().into_buffer_arg());
        add_squares::launch(&x.client, count, dim, from, to, elements(&x));
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
fn adamw(
    gradient: &[f32],
    parameter: &[f32],
    first: &[f32],
    second: &[f32],
    new_parameter: &mut [f32],
    new_first: &mut [f32],
    new_second: &mut [f32],
    by: By,
) {
    let at = ABSOLUTE_POS;
    if at >= new_parameter.len() {
        terminate!();
    }
    let gradient = gradient[at] * by.gradient;
    let m = by.first_old * first[at] + by.first_new * gradient;
    let v = by.second_old * second[at] + by.second_new * (gradient * gradient);
    let root = v.sqrt() * by.inverse_root + by.epsilon;
    new_parameter[at] = by.decay * parameter[at] - by.rate * (m / root);
    new_first[at] = m;
    new_second[at] = v;
}

/// Writes the sum of squares and the sum of its rounding errors for each unit (Knuth 1997, section
/// 4.2.2, theorem B).
#[cube(launch)]
fn add_squares(x: &[f32], sums: &mut [f32], count: usize) {
    let units = sums.len() / 2;
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
    sums[2 * ABSOLUTE_POS] = sum;
    sums[2 * ABSOLUTE_POS + 1] = errors;
}
