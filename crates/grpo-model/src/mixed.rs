//! Interpolation between a frozen model and a policy.

use std::collections::VecDeque;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use crate::{Frozen, LanguageModel, ModelError, Parameter, parameters};

impl<M: LanguageModel> Frozen<M> {
    /// Returns `mix · policy + (1 − mix) · self`, computed for each parameter (TR-DPO; Gorbatovski
    /// et al. 2024, equation 7).
    ///
    /// If `mix` is 1, the result is a bit-identical snapshot of the policy. It shares the policy's
    /// memory until the policy changes.
    ///
    /// Two adapters are mixed matrix by matrix. If `self` has no adapter but the policy does,
    /// `self` is treated as an adapted model with the policy's A and a B of 0. This doesn't change
    /// its output, and it means that mixing interpolates the products `A · B`.
    ///
    /// # Errors
    /// Returns an error if the two models have different parameter shapes.
    pub fn mixed(self, policy: &M, mix: f64) -> Result<Self, ModelError> {
        if mix == 1.0 {
            return Ok(Self::snapshot(policy));
        }
        let policy = policy.valid();
        let own = self.into_model().with_parameters_of(&policy);
        let (reference, trained) = (shapes(&own), shapes(&policy));
        if reference != trained {
            let words =
                |shapes: &[Vec<usize>]| shortened(&format!("{} tensors: {shapes:?}", shapes.len()));
            return Err(ModelError::Unfit(format!(
                "cannot mix the policy into the reference: the reference has parameters of shapes {}, but the policy has {}; start from a reference with the same trained parameters",
                words(&reference),
                words(&trained)
            )));
        }
        let policy = parameters(&policy).iter().map(Parameter::value).collect();
        Ok(Self::of_model(own.map(&mut Mixer { policy, mix })))
    }
}

/// Truncates a list of shapes for use in an error message.
fn shortened(words: &str) -> String {
    const MOST: usize = 80;
    if words.len() <= MOST { words.to_owned() } else { format!("{}…", &words[..MOST]) }
}

fn shapes<M: Module>(model: &M) -> Vec<Vec<usize>> {
    parameters(model).into_iter().map(|parameter| parameter.shape).collect()
}

struct Mixer {
    /// Remaining policy parameters, in module order.
    policy: VecDeque<Tensor<1>>,
    mix: f64,
}

impl ModuleMapper for Mixer {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let policy = self.policy.pop_front().expect("policy and reference have the same shapes");
        let mix = self.mix;
        param.map(|own| {
            let shape = own.dims();
            own * (1.0 - mix) + policy.reshape(shape) * mix
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::{Adapted, Adapter, LoraConfig, ModelConfig, Policy, TokenBatch, Transformer};

    fn model(seed: u64, width: usize) -> Transformer {
        let config = ModelConfig::from_json(&format!(
            r#"{{"model_type": "gpt2", "vocab_size": 7, "n_positions": 12, "n_layer": 1,
                "n_head": 2, "n_embd": {width}, "tie_word_embeddings": false}}"#
        ));
        let config = config.unwrap();
        Transformer::random(&config, seed, &Device::flex().autodiff()).unwrap()
    }

    fn adapted(base: &Transformer, seed: u64) -> Policy {
        let lora = LoraConfig { rank: 2, alpha: 4.0, ..LoraConfig::default() };
        let adapter = Adapter::random(&lora, base, seed, &base.device()).unwrap();
        // A new adapter has B = 0, so change its parameters.
        let mut policy = Policy::Adapted(Adapted::new(base, adapter));
        struct Shift;
        impl ModuleMapper for Shift {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                param.map(|value| (value + 0.125).detach().require_grad())
            }
        }
        policy = policy.map(&mut Shift);
        policy
    }

    fn numbers<M: LanguageModel>(model: &M) -> Vec<f32> {
        let read =
            |parameter: &Parameter| parameter.value().into_data().iter().collect::<Vec<f32>>();
        parameters(model).iter().flat_map(read).collect()
    }

    fn hidden(model: &Frozen<Policy>) -> Vec<f32> {
        let tokens = TokenBatch::from_iter([[1, 2, 3, 4, 5].as_slice()]);
        model.hidden(&tokens).into_data().iter().collect()
    }

    #[test]
    fn parameters_are_mixed_one_by_one() {
        let (policy, reference) = (Policy::Whole(model(1, 8)), Policy::Whole(model(2, 8)));
        for mix in [0.25, 0.6, 1.0] {
            let mixed = Frozen::snapshot(&reference).mixed(&policy, mix).unwrap();
            assert_eq!(mixed.parameters_on_tape(), 0);
            let got = numbers(&mixed.into_model());
            for ((got, a), b) in got.iter().zip(numbers(&policy)).zip(numbers(&reference)) {
                let expected = mix * f64::from(a) + (1.0 - mix) * f64::from(b);
                // Up to four f32 roundings, none larger than half an ulp of `scale`.
                let scale = f64::from(a).abs() + f64::from(b).abs();
                let bound = 4.0 * scale * f64::from(f32::EPSILON) / 2.0;
                assert!((f64::from(*got) - expected).abs() <= bound, "{got} {expected}");
                assert!(mix < 1.0 || got.to_bits() == a.to_bits());
            }
        }
    }

    #[test]
    fn a_base_follows_the_products_of_an_adapter() {
        let base = model(1, 8);
        let policy = adapted(&base, 3);
        let Policy::Adapted(adapted_policy) = &policy else { unreachable!() };
        let reference = || Frozen::snapshot(&Policy::Whole(adapted_policy.base().clone()));
        assert_ne!(hidden(&reference()), hidden(&Frozen::snapshot(&policy)));
        // An adapter without effect doesn't change the output.
        let same = Frozen::of_model(reference().into_model().with_parameters_of(&policy.valid()));
        assert_eq!(hidden(&same), hidden(&reference()));
        let whole = reference().mixed(&policy, 1.0).unwrap();
        assert_eq!(hidden(&whole), hidden(&Frozen::snapshot(&policy)));
        // A comes from the policy unchanged, B is scaled by 0.25.
        let quarter = reference().mixed(&policy, 0.25).unwrap().into_model();
        let (got, full) = (pairs(&quarter), pairs(&policy.valid()));
        assert!(!got.is_empty());
        for ((a, b), (full_a, full_b)) in got.iter().zip(&full) {
            for (got, full) in a.iter().zip(full_a) {
                assert!((got - full).abs() < 1e-7);
            }
            for (got, full) in b.iter().zip(full_b) {
                assert!((got - 0.25 * full).abs() < 1e-7);
            }
        }
    }

    fn pairs(policy: &Policy) -> Vec<(Vec<f32>, Vec<f32>)> {
        let (_, adapter) = policy.parts();
        let read = |tensor: Tensor<2>| tensor.into_data().iter::<f32>().collect();
        adapter
            .unwrap()
            .pairs()
            .iter()
            .map(|pair| (read(pair.a.val()), read(pair.b.val())))
            .collect()
    }

    #[test]
    fn other_parameters_are_refused() {
        let (policy, wider) = (Policy::Whole(model(1, 8)), Policy::Whole(model(1, 16)));
        let error = Frozen::snapshot(&wider).mixed(&policy, 0.5).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("cannot mix the policy into the reference: the reference has parameters of shapes 17 tensors: "),
            "{message}"
        );
        let adapter = adapted(&model(1, 8), 1);
        assert!(Frozen::snapshot(&adapter).mixed(&policy, 0.5).is_err());
    }
}
