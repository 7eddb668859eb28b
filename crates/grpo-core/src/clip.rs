//! Gradients of a whole model: adding up and clipping by one norm.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// Scales all gradients of `model` by `min(1, max_norm / ‖g‖)`, where `‖g‖` is the norm of all of them
/// together, and gives `‖g‖` as it was (metric `grad_norm`). `max_norm` may be infinite.
///
/// Burn's own clipping is of each tensor by itself, which bends the direction of the step.
pub fn clip_by_global_norm<M: Module>(
    model: &M,
    gradients: GradientsParams,
    max_norm: f64,
) -> (GradientsParams, f64) {
    let mut squares = Squares { gradients: &gradients, sum: 0.0 };
    model.visit(&mut squares);
    let norm = squares.sum.sqrt();
    if norm <= max_norm {
        return (gradients, norm);
    }
    let mut scaled =
        Scaled { from: gradients, to: GradientsParams::new(), factor: max_norm / norm };
    model.visit(&mut scaled);
    (scaled.to, norm)
}

/// Adds the gradients of one more micro-batch.
pub fn accumulate<M: Module>(
    model: &M,
    sum: Option<GradientsParams>,
    more: GradientsParams,
) -> GradientsParams {
    let Some(sum) = sum else { return more };
    let mut adding = Adding { sum, more, to: GradientsParams::new() };
    model.visit(&mut adding);
    adding.to
}

struct Squares<'a> {
    gradients: &'a GradientsParams,
    sum: f64,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            // Summed on the host in f64: in f32 the sum over millions of squares loses its small ones.
            let data = gradient.into_data();
            self.sum += data.iter::<f64>().map(|g| g * g).sum::<f64>();
        }
    }
}

struct Scaled {
    from: GradientsParams,
    to: GradientsParams,
    factor: f64,
}

impl ModuleVisitor for Scaled {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.from.remove::<D>(param.id) {
            self.to.register(param.id, gradient * self.factor);
        }
    }
}

struct Adding {
    sum: GradientsParams,
    more: GradientsParams,
    to: GradientsParams,
}

impl ModuleVisitor for Adding {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let both = (self.sum.remove::<D>(param.id), self.more.remove::<D>(param.id));
        let total = match both {
            (Some(a), Some(b)) => a + b,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return,
        };
        self.to.register(param.id, total);
    }
}
