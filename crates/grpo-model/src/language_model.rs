//! The interface of language models for sampling, scoring and training.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Gradients, Tensor};
use grpo_logprob::Head;

use crate::{
    CacheSlot, Dropout, KvCache, TokenBatch, WeightPrecision, WeightsDigest, parameters,
    weights_digest,
};

/// A transformer that predicts tokens: the next one (causal families), or the one at a masked
/// position (bidirectional families).
///
/// Hidden states and logits are separate, so that logits are computed only for the positions that
/// need them.
pub trait LanguageModel: Module + Sync {
    /// Computes hidden states after the last norm for each token of the batch.
    ///
    /// # Shapes
    /// - prefix: `[sequences, vectors, width]`, embeddings in front of each sequence that all its tokens see (conditions); their
    ///   hidden states are not part of the result
    /// - result: `[tokens, width]`
    fn hidden(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        dropout: &mut Dropout,
    ) -> Tensor<2>;

    /// As [`LanguageModel::hidden`] without dropout, for sequences that continue and extend those
    /// in `slots` of the cache. On the CPU the result of a sequence does not depend on other
    /// sequences, bit for bit.
    ///
    /// # Panics
    /// Panics if parameters have autodiff; use a [`Frozen`] model.
    fn extend(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
        slots: &[CacheSlot],
    ) -> Tensor<2>;

    /// As [`LanguageModel::hidden`], with blocks recomputed in the backward pass (activation
    /// checkpointing; Chen et al. 2016). A model without blocks keeps everything.
    fn checkpointed(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Forward<Self> {
        Forward::kept(self.hidden(tokens, None, dropout))
    }

    /// Calls [`LanguageModel::checkpointed`] if requested, else keeps all activations.
    fn forward(
        &self,
        tokens: &TokenBatch,
        dropout: &mut Dropout,
        checkpointing: bool,
    ) -> Forward<Self> {
        match checkpointing {
            true => self.checkpointed(tokens, dropout),
            false => Forward::kept(self.hidden(tokens, None, dropout)),
        }
    }

    /// Returns the output layer for [`grpo_logprob::score`].
    fn head(&self) -> Head;

    /// Computes logits of hidden states: `[n, width]` → `[n, vocabulary]`.
    fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.head().logits(hidden)
    }

    /// Returns the model without autodiff, with block matrices rounded to `precision` if the model
    /// supports that.
    #[must_use]
    fn with_weights_in(self, precision: WeightPrecision) -> Self {
        let _ = precision;
        self
    }

    /// Returns the same function without autodiff and with the parameters of `policy`, if possible:
    /// a model equals an adapter on it without effect.
    #[must_use]
    fn with_parameters_of(self, policy: &Self) -> Self {
        let _ = policy;
        self
    }

    /// Returns the number of logits.
    fn vocabulary_size(&self) -> usize;

    /// Returns the context length in tokens.
    fn context_length(&self) -> usize;

    /// Returns the number of parameters that a pass reads, trained or not.
    fn parameters(&self) -> usize {
        self.num_params()
    }

    /// Returns the hash of parameters that are never trained or visited, if any.
    fn base_digest(&self) -> Option<WeightsDigest> {
        None
    }

    /// Returns the device of its parameters.
    fn device(&self) -> Device {
        self.devices().into_iter().next().expect("the model has parameters")
    }
}

/// Hidden states with autodiff, and the backward pass to the parameters.
pub struct Forward<M> {
    /// `[tokens, width]`
    pub hidden: Tensor<2>,
    back: Option<Back<M>>,
}

/// Computes the gradients of earlier graph parts from those of the last.
type Back<M> = Box<dyn FnOnce(&M, &Gradients) -> Vec<GradientsParams>>;

impl<M: LanguageModel> Forward<M> {
    /// A forward pass that kept all activations.
    pub fn kept(hidden: Tensor<2>) -> Self {
        Self { hidden, back: None }
    }

    pub(crate) fn recomputed(hidden: Tensor<2>, back: Back<M>) -> Self {
        Self { hidden, back: Some(back) }
    }

    /// Returns the gradients of a loss computed from `hidden`, in parts to be added: a parameter
    /// used twice (a tied head) is in two of them.
    pub fn backward(self, loss: Tensor<1>, model: &M) -> Vec<GradientsParams> {
        let last = loss.backward();
        let mut parts = self.back.map_or_else(Vec::new, |back| back(model, &last));
        parts.push(GradientsParams::from_grads(last, model));
        parts
    }
}

/// A model that cannot be trained: its parameters have no autodiff, and no method returns the model
/// itself.
///
/// References and sampling policies have this type, so that no gradient can reach them by mistake.
#[derive(Clone, Debug)]
pub struct Frozen<M>(M);

impl<M: LanguageModel> Frozen<M> {
    /// Takes a snapshot of `model` that later training does not change.
    pub fn snapshot(model: &M) -> Self {
        Self::snapshot_in(model, WeightPrecision::F32)
    }

    /// Takes a snapshot with matrices in `precision` ([`LanguageModel::with_weights_in`]). Unless
    /// that is f32, its results differ from those of `model`.
    pub fn snapshot_in(model: &M, precision: WeightPrecision) -> Self {
        Self(model.valid().with_weights_in(precision))
    }

    /// Visible in this crate only, because callers could enable autodiff.
    pub(crate) fn model(&self) -> &M {
        &self.0
    }

    pub(crate) fn into_model(self) -> M {
        self.0
    }

    /// Wraps `model`, which has no autodiff.
    pub(crate) fn of_model(model: M) -> Self {
        Self(model)
    }

    /// Returns the hash of its parameters ([`crate::weights_digest`]).
    pub fn digest(&self) -> WeightsDigest {
        weights_digest(&self.0)
    }

    /// Returns the number of tensors with autodiff, which must be 0.
    pub fn parameters_on_tape(&self) -> usize {
        parameters(&self.0).iter().filter(|parameter| parameter.is_on_tape).count()
    }

    /// See [`LanguageModel::hidden`].
    pub fn hidden(&self, tokens: &TokenBatch, prefix: Option<Tensor<3>>) -> Tensor<2> {
        self.0.hidden(tokens, prefix, &mut Dropout::off())
    }

    /// See [`LanguageModel::extend`].
    pub fn extend(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
        slots: &[CacheSlot],
    ) -> Tensor<2> {
        self.0.extend(tokens, prefix, cache, slots)
    }

    /// See [`LanguageModel::head`]; its tensors have no autodiff.
    pub fn head(&self) -> Head {
        self.0.head()
    }

    /// See [`LanguageModel::logits`].
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.logits(hidden)
    }

    /// Computes logits for sampling: `[n, width]` → `[n, vocabulary]`. On the CPU no row depends on
    /// other rows, bit for bit.
    pub fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.head().invariant_logits(hidden)
    }

    /// See [`LanguageModel::vocabulary_size`].
    pub fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    /// See [`LanguageModel::parameters`].
    pub fn parameters(&self) -> usize {
        self.0.parameters()
    }

    /// See [`LanguageModel::context_length`].
    pub fn context_length(&self) -> usize {
        self.0.context_length()
    }

    /// Returns the device of its parameters, never an autodiff device.
    pub fn device(&self) -> Device {
        self.0.device().inner()
    }
}
