//! A frozen model that follows one in training.

use std::collections::VecDeque;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::{CausalLm, Frozen};

/// Two models that have no parameters in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the reference cannot follow the policy: it has parameters of the shapes {reference}, and the policy {policy}; begin with a reference that is made of what is trained"
)]
pub struct OtherParameters {
    /// Shapes of the frozen one's.
    pub reference: String,
    /// Shapes of the trained one's.
    pub policy: String,
}

impl<M: CausalLm> Frozen<M> {
    /// `mix · policy + (1 − mix) · self`, parameter by parameter (TR-DPO; Gorbatovski et al. 2024, equation 7). With a
    /// `mix` of 1 it is a snapshot of `policy`, bit for bit, which shares its memory until the policy moves.
    ///
    /// A model without an adapter follows an adapter on it as one that has the policy's A and a B of 0, which computes
    /// the same: what comes out is then the mix of the products `A · B` too. Two adapters are mixed matrix by matrix.
    ///
    /// # Errors
    /// Other parameters than the policy's.
    pub fn mixed(self, policy: &M, mix: f64) -> Result<Self, OtherParameters> {
        if mix == 1.0 {
            return Ok(Self::snapshot(policy));
        }
        let policy = policy.valid();
        let own = self.into_inner().with_parameters_of(&policy);
        let (reference, trained) = (shapes(&own), shapes(&policy));
        if reference != trained {
            let words = |shapes: &[Vec<usize>]| format!("{} tensors: {shapes:?}", shapes.len());
            return Err(OtherParameters {
                reference: shortened(&words(&reference)),
                policy: shortened(&words(&trained)),
            });
        }
        let mut values = Values(VecDeque::new());
        policy.visit(&mut values);
        Ok(Self::of_inner(own.map(&mut Mixer { policy: values, mix })))
    }
}

/// Shapes of a large model are many.
fn shortened(words: &str) -> String {
    const MOST: usize = 80;
    if words.len() <= MOST { words.to_owned() } else { format!("{}…", &words[..MOST]) }
}

fn shapes<M: Module>(model: &M) -> Vec<Vec<usize>> {
    struct Shapes(Vec<Vec<usize>>);
    impl ModuleVisitor for Shapes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().dims().to_vec());
        }
    }
    let mut shapes = Shapes(Vec::new());
    model.visit(&mut shapes);
    shapes.0
}

/// Parameters in the order in which a module shows them; each a view of what is there.
struct Values(VecDeque<Tensor<1>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let elements = value.shape().num_elements();
        self.0.push_back(value.reshape([elements]));
    }
}

struct Mixer {
    policy: Values,
    mix: f64,
}

impl ModuleMapper for Mixer {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let policy = self.policy.0.pop_front().expect("both have the same shapes");
        let mix = self.mix;
        param.map(|own| {
            let shape = own.dims();
            own * (1.0 - mix) + policy.reshape(shape) * mix
        })
    }
}
