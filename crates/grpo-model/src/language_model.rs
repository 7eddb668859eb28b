//! The language model interface shared by sampling, scoring and training.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Gradients, Tensor};
use grpo_data::Prefix;
use grpo_kernels::PackedWeight;
use grpo_logprob::Head;

use crate::precision::parameter_count;
use crate::{
    CacheSlot, Dropout, KnownActivations, KvCache, ProductPrecision, TokenBatch, WeightPrecision,
    WeightsDigest, parameters, weights_digest,
};

/// A transformer that predicts tokens: the next token in causal families, and the token at a masked
/// position in bidirectional families.
///
/// Hidden states and logits are computed separately, because logits are often needed for only a few
/// positions.
pub trait LanguageModel: Module + Sync + 'static {
    /// Returns whether the model supports an optional setting. Callers must check this first: the
    /// methods of a model without support ignore the setting. The default is no support.
    fn supports(&self, setting: ModelSetting) -> bool {
        let _ = setting;
        false
    }

    /// Computes the hidden state after the final norm for each token in the batch.
    ///
    /// Conditions that precede a sequence are visible to all its tokens but have no row in the
    /// result, `[tokens, width]`.
    fn hidden(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<2>;

    /// Like [`LanguageModel::hidden`] without dropout, but takes activations from `known`, which must
    /// have been recorded with the same weights for the same tokens. The default implementation
    /// computes them.
    fn hidden_from(&self, known: &KnownActivations, tokens: &TokenBatch) -> Tensor<2> {
        let _ = known;
        self.hidden(tokens, &mut Dropout::off())
    }

    /// Like [`LanguageModel::hidden`] without dropout, but reads and extends the cached sequences
    /// in `slots`. On the CPU, the result for a sequence does not depend on the rest of the batch,
    /// bit for bit.
    ///
    /// # Panics
    /// Panics if parameters are tracked by autodiff. Use a [`Frozen`] model instead.
    fn extend(&self, tokens: &TokenBatch, cache: &mut KvCache, slots: &[CacheSlot]) -> Tensor<2>;

    /// Like [`LanguageModel::hidden`], but recomputes the blocks in the backward pass (activation
    /// checkpointing; Chen et al. 2016), if the model supports [`ModelSetting::Checkpointing`].
    fn checkpointed(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Forward<Self> {
        Forward::kept(self.hidden(tokens, dropout))
    }

    /// Runs the forward pass, using [`LanguageModel::checkpointed`] if `checkpointing` is set.
    fn forward(
        &self,
        tokens: &TokenBatch,
        dropout: &mut Dropout,
        checkpointing: bool,
    ) -> Forward<Self> {
        match checkpointing {
            true => self.checkpointed(tokens, dropout),
            false => Forward::kept(self.hidden(tokens, dropout)),
        }
    }

    /// Returns the output layer, as needed by [`grpo_logprob::score`].
    fn head(&self) -> Head;

    /// Computes logits from hidden states: `[n, width]` → `[n, vocabulary]`.
    fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.head().logits(hidden)
    }

    /// Returns the model without autodiff. Block matrices are rounded to `precision` if the model
    /// supports [`ModelSetting::WeightPrecision`].
    #[must_use]
    fn with_weights_in(self, precision: WeightPrecision) -> Self {
        let _ = precision;
        self
    }

    /// Returns the model with another precision of products, if it supports
    /// [`ModelSetting::ProductPrecision`]. The weights stay
    /// the same, and so does the precision when the model is copied, trained or merged.
    #[must_use]
    fn with_product_precision(self, precision: ProductPrecision) -> Self {
        let _ = precision;
        self
    }

    /// Returns a model without autodiff that computes the same with less work per token.
    #[must_use]
    fn for_sampling(self) -> Self {
        self
    }

    /// Prepares the weights of a model without autodiff for sampling. They must not change
    /// afterwards.
    #[must_use]
    fn prepared(self) -> Self {
        self
    }

    /// Computes logits for sampling: `[n, width]` → `[n, vocabulary]`. On the CPU, each row is
    /// independent of the other rows, bit for bit.
    fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.head().invariant_logits(hidden)
    }

    /// Returns an equivalent model without autodiff that has the same set of parameters as
    /// `policy`, if possible. For example, a plain model becomes an adapted one whose adapter has
    /// no effect.
    #[must_use]
    fn with_parameters_of(self, policy: &Self) -> Self {
        let _ = policy;
        self
    }

    /// Returns the number of logits.
    fn vocabulary_size(&self) -> usize;

    /// Returns the context length in tokens.
    fn context_length(&self) -> usize;

    /// Checks that the model can read these conditions.
    ///
    /// # Errors
    /// Returns a description of the problem.
    fn check_prefix(&self, prefix: &Prefix) -> Result<(), String> {
        match prefix.is_empty() {
            true => Ok(()),
            false => Err("the model takes no conditions".to_owned()),
        }
    }

    /// Returns the number of parameters that a forward pass reads, whether trained or not.
    fn parameters(&self) -> usize {
        parameter_count(self)
    }

    /// Returns the hash of the parameters that are neither trained nor exposed to visitors, if any.
    fn base_digest(&self) -> Option<WeightsDigest> {
        None
    }

    /// Returns the device that holds the parameters.
    fn device(&self) -> Device {
        self.devices().into_iter().next().expect("the model has parameters")
    }
}

/// A setting that a [`LanguageModel`] may not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelSetting {
    /// See [`LanguageModel::checkpointed`].
    Checkpointing,
    /// See [`LanguageModel::with_product_precision`].
    ProductPrecision,
    /// See [`LanguageModel::with_weights_in`].
    WeightPrecision,
}

/// The result of a forward pass: hidden states with autodiff, and a way to backpropagate from them.
pub struct Forward<M> {
    /// Hidden states, `[tokens, width]`.
    pub hidden: Tensor<2>,
    back: Option<Back<M>>,
}

/// Given the gradients of the last graph segment, computes the gradients of earlier segments.
type Back<M> = Box<dyn FnOnce(&M, &Gradients) -> Vec<GradientsParams>>;

impl<M: LanguageModel> Forward<M> {
    /// Wraps a forward pass that kept all activations.
    pub fn kept(hidden: Tensor<2>) -> Self {
        Self { hidden, back: None }
    }

    pub(crate) fn recomputed(hidden: Tensor<2>, back: Back<M>) -> Self {
        Self { hidden, back: Some(back) }
    }

    /// Returns the gradients of a loss computed from `hidden`. They come in parts that must be
    /// summed: a parameter that is used twice, such as a tied output layer, appears in two of them.
    pub fn backward(self, loss: Tensor<1>, model: &M) -> Vec<GradientsParams> {
        let last = loss.backward();
        let mut parts = self.back.map_or_else(Vec::new, |back| back(model, &last));
        parts.push(GradientsParams::from_grads(last, model));
        parts
    }
}

/// Returns whether [`Frozen::prepared`] copies the matrices of a model in `f32` on this CPU.
pub fn sampling_copies_weights() -> bool {
    PackedWeight::is_a_copy()
}

/// A frozen model with weights prepared for sampling. It can only sample, because a changed model
/// would go on using the prepared weights.
#[derive(Debug)]
pub struct Prepared<M>(M);

impl<M: LanguageModel> Prepared<M> {
    /// See [`LanguageModel::extend`].
    pub fn extend(
        &self,
        tokens: &TokenBatch,
        cache: &mut KvCache,
        slots: &[CacheSlot],
    ) -> Tensor<2> {
        self.0.extend(tokens, cache, slots)
    }

    /// See [`LanguageModel::invariant_logits`].
    pub fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.invariant_logits(hidden)
    }

    /// See [`LanguageModel::vocabulary_size`].
    pub fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }
}

/// A model that cannot be trained. Its parameters are not tracked by autodiff, and the inner model
/// is inaccessible.
///
/// Reference policies and sampling policies have this type, so no gradient can reach them by
/// mistake.
#[derive(Clone, Debug)]
pub struct Frozen<M>(M);

impl<M: LanguageModel> Frozen<M> {
    /// Takes a snapshot of `model`, which is not affected by further training.
    pub fn snapshot(model: &M) -> Self {
        Self::snapshot_in(model, WeightPrecision::F32)
    }

    /// Takes a snapshot with matrices stored in `precision` (see
    /// [`LanguageModel::with_weights_in`]). Results differ from those of `model` unless the
    /// precision is f32.
    pub fn snapshot_in(model: &M, precision: WeightPrecision) -> Self {
        Self(model.valid().with_weights_in(precision))
    }

    /// See [`LanguageModel::with_product_precision`].
    #[must_use]
    pub fn with_product_precision(self, precision: ProductPrecision) -> Self {
        Self(self.0.with_product_precision(precision))
    }

    /// Prepares sampling of many tokens. Copies the weights on processors where they are packed
    /// ([`sampling_copies_weights`]). On a GPU, an adapter is merged into a copy of the weights.
    pub fn prepared(&self) -> Prepared<M> {
        Prepared(self.0.clone().for_sampling().prepared())
    }

    /// Prepares sampling of a few tokens, which is not worth packing the weights. The results are
    /// those of [`Self::prepared`].
    pub fn unpacked(&self) -> Prepared<M> {
        Prepared(self.0.clone().for_sampling())
    }

    /// Not public, because callers could enable autodiff.
    pub(crate) fn model(&self) -> &M {
        &self.0
    }

    pub(crate) fn into_model(self) -> M {
        self.0
    }

    /// Wraps a model that has no autodiff.
    pub(crate) fn of_model(model: M) -> Self {
        Self(model)
    }

    /// Returns the hash of the parameters. See [`crate::weights_digest`].
    pub fn digest(&self) -> WeightsDigest {
        weights_digest(&self.0)
    }

    /// Returns the number of parameters tracked by autodiff, which should always be 0.
    pub fn parameters_on_tape(&self) -> usize {
        parameters(&self.0).iter().filter(|parameter| parameter.is_on_tape).count()
    }

    /// See [`LanguageModel::hidden`].
    pub fn hidden(&self, tokens: &TokenBatch) -> Tensor<2> {
        self.0.hidden(tokens, &mut Dropout::off())
    }

    /// See [`LanguageModel::extend`].
    pub fn extend(
        &self,
        tokens: &TokenBatch,
        cache: &mut KvCache,
        slots: &[CacheSlot],
    ) -> Tensor<2> {
        self.0.extend(tokens, cache, slots)
    }

    /// See [`LanguageModel::head`]. Its tensors are not tracked by autodiff.
    pub fn head(&self) -> Head {
        self.0.head()
    }

    /// See [`LanguageModel::logits`].
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.logits(hidden)
    }

    /// See [`LanguageModel::invariant_logits`].
    pub fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.invariant_logits(hidden)
    }

    /// See [`LanguageModel::vocabulary_size`].
    pub fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    /// See [`LanguageModel::parameters`].
    pub fn parameters(&self) -> usize {
        self.0.parameters()
    }

    /// See [`LanguageModel::check_prefix`].
    ///
    /// # Errors
    /// Returns a description of the problem.
    pub fn check_prefix(&self, prefix: &Prefix) -> Result<(), String> {
        self.0.check_prefix(prefix)
    }

    /// See [`LanguageModel::context_length`].
    pub fn context_length(&self) -> usize {
        self.0.context_length()
    }

    /// Returns the device that holds the parameters. It is never an autodiff device.
    pub fn device(&self) -> Device {
        self.0.device().inner()
    }
}
