//! The [`LanguageModel`] implementation for policies.

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_data::Prefix;
use grpo_kernels::is_cpu;
use grpo_logprob::Head;

use crate::language_model::{Forward, LanguageModel};
use crate::precision::parameter_count;
use crate::{
    Adapted, Adapter, CacheSlot, Dropout, KnownActivations, KvCache, ModelSetting, Policy,
    ProductPrecision, TokenBatch, WeightPrecision, WeightsDigest, checkpointing, weights_digest,
};

impl LanguageModel for Policy {
    fn supports(&self, _: ModelSetting) -> bool {
        true
    }

    fn hidden(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<2> {
        let (model, adapter) = self.effective();
        model.run(tokens, None, adapter, dropout, &self.device())
    }

    fn hidden_from(&self, known: &KnownActivations, tokens: &TokenBatch) -> Tensor<2> {
        let (model, adapter) = self.effective();
        model.run_from(known, tokens, adapter, &self.device())
    }

    fn extend(&self, tokens: &TokenBatch, cache: &mut KvCache, slots: &[CacheSlot]) -> Tensor<2> {
        let (model, adapter) = self.effective();
        let cache = Some((cache, slots));
        model.run(tokens, cache, adapter, &mut Dropout::off(), &self.device())
    }

    fn checkpointed(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Forward<Self> {
        checkpointing::forward(self, tokens, dropout)
    }

    fn head(&self) -> Head {
        let (model, adapter) = self.effective();
        let head = model.head_on(&self.device());
        match adapter.and_then(Adapter::of_head) {
            Some(pair) => Head { weight: pair.changed(head.weight), ..head },
            None => head,
        }
    }

    /// Rounds the base of an adapted model. The adapter stays in f32.
    fn with_weights_in(self, precision: WeightPrecision) -> Self {
        match self {
            Self::Whole(model) => Self::Whole(model.with_weights_in(precision)),
            Self::Adapted(Adapted { base, adapter }) => {
                Self::Adapted(Adapted { base: base.with_weights_in(precision), adapter })
            }
        }
    }

    /// Sets the precision of the base of an adapted model. The products of the adapter, which are
    /// small, stay in f32.
    fn with_product_precision(self, precision: ProductPrecision) -> Self {
        match self {
            Self::Whole(model) => Self::Whole(model.with_product_precision(precision)),
            Self::Adapted(Adapted { base, adapter }) => {
                Self::Adapted(Adapted { base: base.with_product_precision(precision), adapter })
            }
        }
    }

    /// On a GPU, merges the adapter into a base in f32: its small matrices would otherwise be four more
    /// kernels per layer and token. A base in fewer bits is meant to save memory, so it is not copied.
    fn for_sampling(self) -> Self {
        match self {
            Self::Adapted(Adapted { base, adapter })
                if !is_cpu(&LanguageModel::device(&base)) && base.has_f32_blocks() =>
            {
                Self::Whole(base.merged_for_sampling(&adapter).for_sampling())
            }
            Self::Whole(model) => Self::Whole(model.for_sampling()),
            Self::Adapted(Adapted { base, adapter }) => {
                let base = base.with_saved(&adapter.saved).with_head_of(&adapter);
                let mut adapter = adapter.without_saved_and_head();
                for pair in adapter.pairs_mut() {
                    pair.known_gain = pair.gain(base.weight_of(pair));
                }
                Self::Adapted(Adapted { base: base.for_sampling(), adapter })
            }
        }
    }

    fn prepared(self) -> Self {
        match self {
            Self::Whole(model) => Self::Whole(model.prepared()),
            Self::Adapted(Adapted { base, adapter }) => {
                Self::Adapted(Adapted { base: base.prepared(), adapter })
            }
        }
    }

    fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        let (model, adapter) = self.effective();
        match adapter.and_then(Adapter::of_head) {
            Some(_) => self.head().invariant_logits(hidden),
            None => model.invariant_logits(hidden),
        }
    }

    /// Attaches an adapter with the policy's A, a B of 0 and the model's own tensors to a plain model.
    fn with_parameters_of(self, policy: &Self) -> Self {
        match (self, policy) {
            (Self::Whole(model), Self::Adapted(policy))
                if model.description() == policy.base().description() =>
            {
                let adapter = policy.adapter().clone().valid().without_effect(&model);
                Self::Adapted(Adapted { base: model, adapter })
            }
            (same, _) => same,
        }
    }

    fn parameters(&self) -> usize {
        let (model, adapter) = self.parts();
        parameter_count(model) + adapter.map_or(0, Module::num_params)
    }

    fn base_digest(&self) -> Option<WeightsDigest> {
        match self {
            Self::Whole(_) => None,
            // Equals the hash of a reference model without the adapter.
            Self::Adapted(adapted) => Some(weights_digest(&Self::Whole(adapted.base().clone()))),
        }
    }

    fn vocabulary_size(&self) -> usize {
        self.parts().0.description().vocabulary
    }

    fn check_prefix(&self, prefix: &Prefix) -> Result<(), String> {
        self.parts().0.check_prefix(prefix)
    }

    fn context_length(&self) -> usize {
        self.parts().0.description().context
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{ModuleMapper, Param};
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::{Frozen, LoraConfig, ModelConfig, Prepared, Transformer};

    const QWEN3: &str = r#"{"model_type": "qwen3", "vocab_size": 11, "hidden_size": 16,
        "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 16,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu",
        "tie_word_embeddings": true}"#;

    /// Makes the adapter large enough to matter.
    struct Shift;
    impl ModuleMapper for Shift {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|value| value + 0.05)
        }
    }

    fn sampled(model: &Prepared<Policy>) -> Vec<f64> {
        let mut cache = KvCache::new();
        let slot = cache.open();
        let hidden =
            model.extend(&TokenBatch::from_iter([[1, 7, 3].as_slice()]), &mut cache, &[slot]);
        hidden.into_data().iter::<f64>().collect()
    }

    /// Only GPUs merge, but what they merge can be computed on a CPU.
    #[test]
    fn a_merged_adapter_samples_like_a_separate_one() {
        let config = ModelConfig::from_json(QWEN3).unwrap();
        let lora = LoraConfig { rank: 2, alpha: 4.0, ..LoraConfig::default() };
        // The merged adapter gets input that is rounded to 8 or 11 bits, if products are in 16 bits.
        for (products, tolerance) in [
            (ProductPrecision::F32, 1e-5),
            (ProductPrecision::Bf16, 2_f64.powi(-8)),
            (ProductPrecision::F16, 2_f64.powi(-11)),
        ] {
            {
                let base = Transformer::random(&config, 1, &Device::flex()).unwrap();
                let base = base.with_product_precision(products);
                assert!(base.has_f32_blocks());
                let adapter = Adapter::random(&lora, &base, 2, &base.device()).unwrap();
                let adapter = adapter.map(&mut Shift);
                let policy = Policy::Adapted(Adapted::new(&base, adapter.clone()));
                let separate = sampled(&Frozen::snapshot(&policy).prepared());
                let merged = base.clone().merged_for_sampling(&adapter).for_sampling();
                let merged = sampled(&Frozen::of_model(Policy::Whole(merged)).prepared());
                let without = sampled(&Frozen::snapshot(&Policy::Whole(base)).prepared());
                let largest = |of: &[f64]| of.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
                let apart = |other: &[f64]| -> f64 {
                    largest(&separate.iter().zip(other).map(|(a, b)| a - b).collect::<Vec<_>>())
                };
                assert!(apart(&merged) < tolerance * largest(&separate), "{products:?}");
                assert!(apart(&without) > 0.1 * largest(&separate), "the adapter does nothing");
            }
        }
    }
}
