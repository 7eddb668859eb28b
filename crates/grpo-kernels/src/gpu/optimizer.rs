//! Optimizer operations for many tensors in one launch. None of them supports autodiff.

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::{elements, empty, owned, primitive, unit_each};
use crate::adamw::settings::Factors;

/// Largest number of parameters that are updated in one launch.
const UPDATES: usize = 16;
/// Largest number of tensors whose squares are added in one launch.
const SQUARED: usize = 32;

/// Returns how many items with this number of buffers fit into a launch, which needs two more at most.
fn per_launch(client: &Client, buffers: usize, most: usize) -> usize {
    let bindings = client.properties().hardware.max_bindings as usize;
    (bindings.saturating_sub(2) / buffers).clamp(1, most)
}

/// AdamW updates that wait for a launch.
#[derive(Debug, Default)]
pub(crate) struct AdamWQueue(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    gradient: CubeTensor,
    /// Parameter and moments, in memory that nothing else reads.
    updated: [CubeTensor; 3],
    by: Factors,
}

impl AdamWQueue {
    /// Adds an update. The returned tensors have their new values after [`Self::launch`], or after the
    /// queue is dropped. Tensors that have other owners are copied.
    pub(crate) fn add<const D: usize>(
        &mut self,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        [first, second]: [Tensor<D>; 2],
        by: Factors,
    ) -> (Tensor<D>, [Tensor<D>; 2]) {
        let gradient = primitive(gradient);
        let most = per_launch(&gradient.client, 4, UPDATES);
        let updated = [parameter, first, second].map(owned);
        if elements(&gradient) > 0 {
            self.0.push(Waiting { gradient, updated: updated.clone(), by });
        }
        if self.0.len() == most {
            self.launch();
        }
        let [parameter, first, second] = updated.map(Tensor::from_primitive::<Cube>);
        (parameter, [first, second])
    }

    /// Launches the updates that wait.
    fn launch(&mut self) {
        let Some(first) = self.0.first() else { return };
        let client = first.gradient.client.clone();
        let total = self.0.iter().map(|waiting| elements(&waiting.gradient)).sum();
        let (count, dim) = unit_each(&client, total);
        let updates = self.0.drain(..).map(|Waiting { gradient, updated, by }| {
            let count = elements(&gradient);
            let [parameter, first, second] = updated.map(CubeTensor::into_buffer_arg);
            UpdateLaunch::new(
                gradient.into_buffer_arg(),
                parameter,
                first,
                second,
                count,
                by.gradient,
                by.first[0],
                by.first[1],
                by.second[0],
                by.second[1],
                by.decay,
                by.rate,
                by.inverse_root,
                by.epsilon,
            )
        });
        adamw::launch(&client, count, dim, updates.collect());
    }
}

impl Drop for AdamWQueue {
    fn drop(&mut self) {
        self.launch();
    }
}

/// Smallest number of squares that a unit adds up, unless there are fewer.
const PER_UNIT: usize = 64;
/// Largest number of units for a tensor, because the host adds up their sums.
const MAX_UNITS: usize = 1 << 16;

/// Returns numbers whose sum is `Σ x²` over all tensors. There must be at least one. Each unit adds
/// up some of the squares in `f32`, and the rounding errors of its sum.
pub(crate) fn sums_of_squares(tensors: Vec<Tensor<1>>) -> Tensor<1> {
    let tensors: Vec<CubeTensor> = tensors.into_iter().map(primitive).collect();
    let units = |x: &CubeTensor| elements(x).div_ceil(PER_UNIT).min(MAX_UNITS);
    let sums = empty(&tensors[0], [2 * tensors.iter().map(units).sum::<usize>()]);
    let client = sums.client.clone();
    let mut first = 0;
    let tensors: Vec<CubeTensor> = tensors.into_iter().filter(|x| elements(x) > 0).collect();
    for tensors in tensors.chunks(per_launch(&client, 1, SQUARED)) {
        let launched: usize = tensors.iter().map(units).sum();
        let (cubes, dim) = unit_each(&client, launched);
        let squared = tensors
            .iter()
            .map(|x| SquaredLaunch::new(x.clone().into_buffer_arg(), units(x), elements(x)));
        let to = sums.clone().into_buffer_arg();
        add_squares::launch(&client, cubes, dim, squared.collect(), to, first);
        first += launched;
    }
    Tensor::from_primitive::<Cube>(sums)
}

/// A parameter and the factors of [`Factors`].
#[derive(CubeType, CubeLaunch)]
struct Update {
    gradient: Box<[f32]>,
    parameter: Box<[f32]>,
    first: Box<[f32]>,
    second: Box<[f32]>,
    count: usize,
    by_gradient: f32,
    first_old: f32,
    first_new: f32,
    second_old: f32,
    second_new: f32,
    decay: f32,
    rate: f32,
    inverse_root: f32,
    epsilon: f32,
}

/// Updates one element of a parameter with each unit.
#[cube(launch)]
fn adamw(updates: &mut Sequence<Update>) {
    let mut begin = 0usize;
    #[unroll]
    for index in 0..updates.len() {
        let it = &mut updates[index];
        let end = begin + it.count;
        if ABSOLUTE_POS >= begin && ABSOLUTE_POS < end {
            let at = ABSOLUTE_POS - begin;
            let gradient = it.gradient[at] * it.by_gradient;
            let m = it.first_old * it.first[at] + it.first_new * gradient;
            let v = it.second_old * it.second[at] + it.second_new * (gradient * gradient);
            let root = v.sqrt() * it.inverse_root + it.epsilon;
            it.parameter[at] = it.decay * it.parameter[at] - it.rate * (m / root);
            it.first[at] = m;
            it.second[at] = v;
        }
        begin = end;
    }
}

/// A tensor, and the number of units that add up its squares.
#[derive(CubeType, CubeLaunch)]
struct Squared {
    x: Box<[f32]>,
    units: usize,
    count: usize,
}

/// Writes the sum of squares and the sum of its rounding errors for each unit, the first of which is
/// unit `first` of all tensors (Knuth 1997, section 4.2.2, theorem B).
#[cube(launch)]
fn add_squares(tensors: &Sequence<Squared>, sums: &mut [f32], first: usize) {
    let mut begin = 0usize;
    #[unroll]
    for index in 0..tensors.len() {
        let it = &tensors[index];
        let end = begin + it.units;
        if ABSOLUTE_POS >= begin && ABSOLUTE_POS < end {
            let mut sum = 0.0f32;
            let mut errors = 0.0f32;
            let mut at = ABSOLUTE_POS - begin;
            while at < it.count {
                let square = it.x[at] * it.x[at];
                let new_sum = sum + square;
                let of_square = new_sum - sum;
                errors += (sum - (new_sum - of_square)) + (square - of_square);
                sum = new_sum;
                at += it.units;
            }
            let to = 2 * (first + ABSOLUTE_POS);
            sums[to] = sum;
            sums[to + 1] = errors;
        }
        begin = end;
    }
}
