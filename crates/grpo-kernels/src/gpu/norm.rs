//! Layer norm and RMS norm, with one cube per row.

mod kernels;

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::sums::{ROWS, sum_of_parts};
use super::{binary, cube_each, elements, empty, empty_like, primitive, ternary, unit_each};
use crate::tape::Operation;
use kernels::{add_and_normalise, norm_backward, norm_forward, parameter_gradients};

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

pub(crate) fn add_layer_norm(
    terms: [Tensor<2>; 2],
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f32,
) -> [Tensor<2>; 2] {
    normalised_sum(terms, [gamma, beta].map(primitive).each_ref(), epsilon, true)
}

pub(crate) fn add_rms_norm(
    terms: [Tensor<2>; 2],
    gamma: Tensor<1>,
    epsilon: f32,
) -> [Tensor<2>; 2] {
    let gamma = primitive(gamma);
    normalised_sum(terms, [&gamma, &gamma], epsilon, false)
}

/// Returns the sum without autodiff, and its norm.
fn normalised_sum(
    terms: [Tensor<2>; 2],
    [gamma, beta]: [&CubeTensor; 2],
    epsilon: f32,
    centred: bool,
) -> [Tensor<2>; 2] {
    let [x, y] = terms.map(primitive);
    let (sum, normal) = (empty_like(&x), empty_like(&x));
    let (rows, features) = (x.shape()[0], elements(gamma));
    if elements(&x) > 0 {
        let (count, dim) = cube_each(&x.client, rows);
        add_and_normalise::launch(
            &sum.client,
            count,
            dim,
            x.into_buffer_arg(),
            y.into_buffer_arg(),
            gamma.clone().into_buffer_arg(),
            beta.clone().into_buffer_arg(),
            sum.clone().into_buffer_arg(),
            normal.clone().into_buffer_arg(),
            rows,
            features,
            epsilon,
            centred,
        );
    }
    [sum, normal].map(Tensor::from_primitive::<Cube>)
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
