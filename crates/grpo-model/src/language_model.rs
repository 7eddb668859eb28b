//! What sampling, scoring and training need of a language model.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Gradients, Tensor};
use grpo_logprob::Head;

use crate::{
    CacheSlot, Dropout, KvCache, TokenBatch, WeightPrecision, WeightsDigest, parameters,
    weights_digest,
};

/// A transformer that gives probabilities of tokens: of the next one (the causal families), or of the one that stands at
/// a masked position (the bidirectional ones).
///
/// Hidden states and logits are separate steps, so that logits are made only for the positions that count
/// and never need to be held for all.
pub trait LanguageModel: Module + Sync {
    /// Hidden states after the last norm, for each token of the batch.
    ///
    /// # Shapes
    /// - prefix: `[sequences, vectors, width]`, embeddings in front of each sequence, which all of its tokens see
    ///   (conditions); their own states are left out of the result
    /// - result: `[tokens, width]`
    fn hidden(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        dropout: &mut Dropout,
    ) -> Tensor<2>;

    /// As [`LanguageModel::hidden`] without dropout, for sequences that continue those in `slots` of the cache, which grow by
    /// them. On the CPU what comes out for a sequence does not depend on the other sequences, to the last bit.
    ///
    /// # Panics
    /// Where the parameters are on the tape: take a [`Frozen`] model.
    fn extend(
        &self,
        tokens: &TokenBatch,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
        slots: &[CacheSlot],
    ) -> Tensor<2>;

    /// As [`LanguageModel::hidden`], for a backward pass that computes each block once more instead of keeping what is
    /// in it (activation checkpointing; Chen et al. 2016). A model that has no blocks keeps everything.
    fn checkpointed(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Forward<Self> {
        Forward::kept(self.hidden(tokens, None, dropout))
    }

    /// [`LanguageModel::checkpointed`] where that is asked for, and else a pass of which all is kept.
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

    /// The last layer: what [`grpo_logprob::score`] needs besides hidden states.
    fn head(&self) -> Head;

    /// Logits of hidden states: `[n, width]` → `[n, vocabulary]`.
    fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.head().logits(hidden)
    }

    /// The same model, off the tape, with the matrices of its blocks rounded to `precision`. One that has no other way
    /// to hold them stays as it is.
    #[must_use]
    fn with_weights_in(self, precision: WeightPrecision) -> Self {
        let _ = precision;
        self
    }

    /// The same function with the parameters that `policy` has, off the tape, where it can be written so: a model is
    /// an adapter on it that changes nothing. Else as it is.
    #[must_use]
    fn with_parameters_of(self, policy: &Self) -> Self {
        let _ = policy;
        self
    }

    /// Tokens that it has logits for.
    fn vocabulary_size(&self) -> usize;

    /// The longest sequence that it can see, in tokens.
    fn context_length(&self) -> usize;

    /// Numbers that a pass reads: all parameters, trained or not.
    fn parameters(&self) -> usize {
        self.num_params()
    }

    /// Hash of the parameters that nobody trains and no visitor sees; `None` where there are none.
    fn base_digest(&self) -> Option<WeightsDigest> {
        None
    }

    /// Where its parameters live.
    fn device(&self) -> Device {
        self.devices().into_iter().next().expect("a model has parameters")
    }
}

/// Hidden states on the tape, and the way back from a loss to the parameters.
pub struct Forward<M> {
    /// `[tokens, width]`
    pub hidden: Tensor<2>,
    back: Option<Back<M>>,
}

/// From the gradients of the last part of the tape to those of the parts before it.
type Back<M> = Box<dyn FnOnce(&M, &Gradients) -> Vec<GradientsParams>>;

impl<M: LanguageModel> Forward<M> {
    /// All of the tape was kept.
    pub fn kept(hidden: Tensor<2>) -> Self {
        Self { hidden, back: None }
    }

    pub(crate) fn recomputed(hidden: Tensor<2>, back: Back<M>) -> Self {
        Self { hidden, back: Some(back) }
    }

    /// The gradients of a loss that was made of `hidden`, in parts to be added up: a parameter that is used in
    /// two places (a tied head) is in two of them.
    pub fn backward(self, loss: Tensor<1>, model: &M) -> Vec<GradientsParams> {
        let last = loss.backward();
        let mut parts = self.back.map_or_else(Vec::new, |back| back(model, &last));
        parts.push(GradientsParams::from_grads(last, model));
        parts
    }
}

/// A model that cannot be trained: its parameters are off the tape, and no method gives out what would put
/// them back.
///
/// References, and a policy while it samples, have this type, so that a gradient cannot reach them by mistake.
#[derive(Clone, Debug)]
pub struct Frozen<M>(M);

impl<M: LanguageModel> Frozen<M> {
    /// A snapshot of `model` as it is now; later training does not change it.
    pub fn snapshot(model: &M) -> Self {
        Self::snapshot_in(model, WeightPrecision::F32)
    }

    /// A snapshot whose matrices are held in `precision` ([`LanguageModel::with_weights_in`]): what it computes is not what
    /// `model` computes, unless that is f32.
    pub fn snapshot_in(model: &M, precision: WeightPrecision) -> Self {
        Self(model.valid().with_weights_in(precision))
    }

    /// For this crate alone: what is given out could be put back on the tape.
    pub(crate) fn model(&self) -> &M {
        &self.0
    }

    pub(crate) fn into_model(self) -> M {
        self.0
    }

    /// `model`, which is off the tape.
    pub(crate) fn of_model(model: M) -> Self {
        Self(model)
    }

    /// Hash of its parameters as they are here ([`crate::weights_digest`]).
    pub fn digest(&self) -> WeightsDigest {
        weights_digest(&self.0)
    }

    /// How many of its tensors a gradient could reach: none, or a broken invariant.
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

    /// See [`LanguageModel::head`]; its tensors are off the tape too.
    pub fn head(&self) -> Head {
        self.0.head()
    }

    /// See [`LanguageModel::logits`].
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.logits(hidden)
    }

    /// Logits to draw from: `[n, width]` → `[n, vocabulary]`. On the CPU no row depends on the other rows, to the last bit.
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

    /// Where its parameters live; never an autodiff device.
    pub fn device(&self) -> Device {
        self.0.device().inner()
    }
}
