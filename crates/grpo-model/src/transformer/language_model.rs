//! The [`LanguageModel`] implementation for transformers.

use burn::module::Param;
use burn::tensor::Tensor;
use grpo_data::Prefix;
use grpo_kernels::is_cpu;
use grpo_logprob::Head;

use super::Transformer;
use crate::block::Block;
use crate::description::HeadKind;
use crate::layers::Linear;
use crate::precision::dense;
use crate::{
    CacheSlot, Dropout, KnownActivations, KvCache, LanguageModel, ModelSetting, ProductPrecision,
    TokenBatch, WeightPrecision,
};

impl LanguageModel for Transformer {
    fn supports(&self, _: ModelSetting) -> bool {
        true
    }

    fn hidden(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<2> {
        self.run(tokens, None, None, dropout, &self.device())
    }

    fn hidden_from(&self, known: &KnownActivations, tokens: &TokenBatch) -> Tensor<2> {
        self.run_from(known, tokens, None, &self.device())
    }

    fn extend(&self, tokens: &TokenBatch, cache: &mut KvCache, slots: &[CacheSlot]) -> Tensor<2> {
        let cache = Some((cache, slots));
        self.run(tokens, cache, None, &mut Dropout::off(), &self.device())
    }

    fn head(&self) -> Head {
        self.head_on(&self.device())
    }

    fn with_weights_in(mut self, precision: WeightPrecision) -> Self {
        if precision == WeightPrecision::F32 {
            return self;
        }
        for linear in self.blocks.iter_mut().flat_map(Block::linears_mut) {
            linear.weight = Param::from_tensor(precision.hold(dense(linear.weight.val())));
        }
        self
    }

    /// Affects the linear layers of the blocks. Embeddings and the output layer stay in f32.
    fn with_product_precision(mut self, precision: ProductPrecision) -> Self {
        let linears = self.blocks.iter_mut().flat_map(Block::linears_mut);
        linears.for_each(|linear| linear.set_product_precision(precision));
        self
    }

    /// Packs weights for products in 16 bits, which would otherwise be packed for each token. On a GPU,
    /// packs all weights of the blocks, which copies none in f32: only packed ones share launches.
    fn for_sampling(mut self) -> Self {
        let on_gpu = !is_cpu(&LanguageModel::device(&self));
        let linears = self.blocks.iter_mut().flat_map(Block::linears_mut);
        linears.filter(|linear| on_gpu || !linear.has_f32_products()).for_each(Linear::pack);
        self
    }

    fn prepared(mut self) -> Self {
        let of_blocks = self.blocks.iter_mut().flat_map(Block::linears_mut);
        of_blocks.chain(&mut self.head).for_each(Linear::pack);
        if self.description.head == HeadKind::Tied {
            self.token_embedding.pack_head();
        }
        self
    }

    fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.head {
            Some(head) => head.product_of_rows(hidden, true),
            None => self.token_embedding.invariant_logits(hidden),
        }
    }

    fn vocabulary_size(&self) -> usize {
        self.description.vocabulary
    }

    fn context_length(&self) -> usize {
        self.description.context
    }

    fn check_prefix(&self, prefix: &Prefix) -> Result<(), String> {
        self.description.conditions.check(prefix, self.description.vocabulary)
    }
}
