//! The [`LanguageModel`] implementation for policies.

use burn::module::Module;
use burn::tensor::Tensor;
use grpo_data::Prefix;
use grpo_kernels::is_cpu;
use grpo_logprob::Head;

use crate::language_model::{Forward, LanguageModel};
use crate::precision::parameter_count;
use crate::{
    Adapted, CacheSlot, Dropout, KnownActivations, KvCache, Policy, ProductPrecision, TokenBatch,
    WeightPrecision, WeightsDigest, checkpointing, weights_digest,
};

impl LanguageModel for Policy {
    fn hidden(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<2> {
        let (model, adapter) = self.parts();
        model.run(tokens, None, adapter, dropout, &self.device())
    }

    fn hidden_from(&self, known: &KnownActivations, tokens: &TokenBatch) -> Tensor<2> {
        let (model, adapter) = self.parts();
        model.run_from(known, tokens, adapter, &self.device())
    }

    fn extend(&self, tokens: &TokenBatch, cache: &mut KvCache, slots: &[CacheSlot]) -> Tensor<2> {
        let (model, adapter) = self.parts();
        let cache = Some((cache, slots));
        model.run(tokens, cache, adapter, &mut Dropout::off(), &self.device())
    }

    fn checkpointed(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Forward<Self> {
        checkpointing::forward(self, tokens, dropout)
    }

    fn head(&self) -> Head {
        self.parts().0.head_on(&self.device())
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

    /// On a GPU, merges the adapter into a base that computes in `f32`: its small matrices would
    /// otherwise be four more kernels per layer and token.
    fn for_sampling(self) -> Self {
        match self {
            Self::Adapted(Adapted { base, adapter })
                if !is_cpu(&LanguageModel::device(&base)) && base.is_in_f32() =>
            {
                Self::Whole(base.merged(&adapter))
            }
            Self::Whole(model) => Self::Whole(model.for_sampling()),
            Self::Adapted(Adapted { base, adapter }) => {
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
        self.parts().0.invariant_logits(hidden)
    }

    /// Attaches an adapter with the policy's A and a B of 0 to a plain model.
    fn with_parameters_of(self, policy: &Self) -> Self {
        match (self, policy) {
            (Self::Whole(model), Self::Adapted(policy))
                if model.description() == policy.base().description() =>
            {
                let adapter = policy.adapter().clone().valid().without_effect();
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
