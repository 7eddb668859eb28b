//! What sampling, scoring and training need of a causal language model.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use grpo_logprob::Head;

use crate::Dropout;

/// A left-to-right transformer.
///
/// Hidden states and logits are separate steps, so that logits are made only for the positions that count
/// and never need to be held for all.
pub trait CausalLm: Module {
    /// Hidden states after the last norm, for each token.
    ///
    /// # Shapes
    /// - ids: `[batch, tokens]`; rows padded on the right give right states up to their own end, since no
    ///   token sees a later one
    /// - prefix: `[batch, vectors, width]`, embeddings that every token sees (conditions); their own states
    ///   are left out of the result
    /// - result: `[batch · tokens, width]`
    fn hidden(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<Tensor<3>>,
        dropout: &mut Dropout,
    ) -> Tensor<2>;

    /// As [`CausalLm::hidden`] without dropout, for tokens that follow those in `cache`, which grows by them.
    fn extend(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
    ) -> Tensor<2>;

    /// The last layer: what [`grpo_logprob::score`] needs besides hidden states.
    fn head(&self) -> Head;

    /// Logits of hidden states: `[n, width]` → `[n, vocabulary]`.
    fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.head().logits(hidden)
    }

    /// Tokens that it has logits for.
    fn vocabulary_size(&self) -> usize;

    /// The longest sequence that it can see, in tokens.
    fn context_length(&self) -> usize;

    /// Where its parameters live.
    fn device(&self) -> Device {
        self.devices().into_iter().next().expect("a model has parameters")
    }
}

/// A model that cannot be trained: its parameters are off the tape, and no method gives out what would put
/// them back.
///
/// References, and a policy while it samples, have this type, so that a gradient cannot reach them by mistake.
#[derive(Clone, Debug)]
pub struct Frozen<M>(M);

impl<M: CausalLm> Frozen<M> {
    /// A snapshot of `model` as it is now; later training does not change it.
    pub fn snapshot(model: &M) -> Self {
        Self(model.valid())
    }

    /// See [`CausalLm::hidden`].
    pub fn hidden(&self, ids: Tensor<2, Int>, prefix: Option<Tensor<3>>) -> Tensor<2> {
        self.0.hidden(ids, prefix, &mut Dropout::off())
    }

    /// See [`CausalLm::extend`].
    pub fn extend(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<Tensor<3>>,
        cache: &mut KvCache,
    ) -> Tensor<2> {
        self.0.extend(ids, prefix, cache)
    }

    /// See [`CausalLm::head`]; its tensors are off the tape too.
    pub fn head(&self) -> Head {
        self.0.head()
    }

    /// See [`CausalLm::logits`].
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.0.logits(hidden)
    }

    /// See [`CausalLm::vocabulary_size`].
    pub fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    /// See [`CausalLm::context_length`].
    pub fn context_length(&self) -> usize {
        self.0.context_length()
    }

    /// Where its parameters live; never an autodiff device.
    pub fn device(&self) -> Device {
        self.0.device().inner()
    }
}

/// Keys and values of the tokens seen so far, of each layer.
#[derive(Clone, Debug, Default)]
pub struct KvCache {
    /// `[batch, heads, positions, head width]` of each layer; empty before the first token.
    pub(crate) layers: Vec<(Tensor<4>, Tensor<4>)>,
    /// Vectors of a prefix at the front, which have no position of their own.
    pub(crate) prefix: usize,
}

impl KvCache {
    /// A cache that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Positions seen, the prefix among them.
    pub fn positions(&self) -> usize {
        self.layers.first().map_or(0, |(keys, _)| keys.dims()[2])
    }

    /// Keeps the rows of the batch named by `rows`, in that order.
    ///
    /// # Shapes
    /// - rows: `[kept]`
    pub fn select(&mut self, rows: Tensor<1, Int>) {
        for (keys, values) in &mut self.layers {
            *keys = keys.clone().select(0, rows.clone());
            *values = values.clone().select(0, rows.clone());
        }
    }

    /// Adds new keys and values to those of `layer`, and gives all of them.
    pub(crate) fn append(
        &mut self,
        layer: usize,
        keys: Tensor<4>,
        values: Tensor<4>,
    ) -> (Tensor<4>, Tensor<4>) {
        if layer == self.layers.len() {
            self.layers.push((keys, values));
        } else {
            let (old_keys, old_values) = self.layers[layer].clone();
            self.layers[layer] =
                (Tensor::cat(vec![old_keys, keys], 2), Tensor::cat(vec![old_values, values], 2));
        }
        self.layers[layer].clone()
    }
}
