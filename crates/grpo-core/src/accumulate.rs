//! Gradient accumulation over micro-batches.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

/// Adds the gradients of `more` to `sum`.
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

struct Adding {
    sum: GradientsParams,
    more: GradientsParams,
    to: GradientsParams,
}

impl ModuleVisitor for Adding {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let both = (self.sum.remove::<D>(param.id), self.more.remove::<D>(param.id));
        let total = match both {
            // `a` is uniquely owned, so the addition happens in place.
            (Some(a), Some(b)) => a + b,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return,
        };
        self.to.register(param.id, total);
    }
}
