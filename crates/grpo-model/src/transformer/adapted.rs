//! What an adapter changes outside the linear layers of the blocks, and merging.

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor};

use super::Transformer;
use crate::block::Block;
use crate::description::HeadKind;
use crate::layers::Linear;
use crate::lora::{Adaptable, Adapter, LoraPair, off_tape};
use crate::names::{HEAD, TOKENS};
use crate::precision::dense;
use crate::{Conditions, LanguageModel, TokenBatch};

impl Transformer {
    /// Returns the token embedding and the output layer, which an adapter changes if they are named.
    /// Their numbers follow those of [`Self::adaptable_layers`].
    pub(crate) fn adaptable_ends(&self) -> Vec<Adaptable> {
        let of = &self.description;
        let ends = [
            (TOKENS, Some([of.vocabulary, of.width])),
            (HEAD, self.predicts_tokens().then_some([of.width, of.vocabulary])),
        ];
        let first = self.adaptable_layers().len();
        let adaptable = |(number, (layer, shape)): (usize, (&str, Option<[usize; 2]>))| {
            let stored = self.names().module(layer);
            shape.map(|shape| Adaptable { number, layer: layer.to_owned(), stored, shape })
        };
        let named = ends.into_iter().filter(|(layer, _)| *layer != HEAD || self.names().has_head());
        named.enumerate().map(|(i, end)| (first + i, end)).filter_map(adaptable).collect()
    }

    /// Checks that the embedding does not change if conditions also read it.
    ///
    /// # Errors
    /// Returns a description of the problem.
    pub(crate) fn check_ends(&self, adapter: &Adapter) -> Result<(), String> {
        let is_read = self.description.conditions != Conditions::default();
        match is_read && adapter.changes_input() {
            true => {
                Err("adapters cannot change the embeddings of a model with conditions".to_owned())
            }
            false => Ok(()),
        }
    }

    fn predicts_tokens(&self) -> bool {
        matches!(self.description.head, HeadKind::Own | HeadKind::Tied)
    }

    /// Returns whether the token embedding is also the output layer.
    pub(crate) fn ties_head(&self) -> bool {
        self.description.head == HeadKind::Tied
    }

    /// Returns the weight of the output layer, `[width, vocabulary]`.
    pub(crate) fn head_weight(&self) -> Tensor<2> {
        match &self.head {
            Some(head) => dense(head.weight.val()),
            None => self.token_embedding.as_head().weight,
        }
    }

    /// Returns the weight that a pair changes, `[in, out]`.
    pub(crate) fn weight_of(&self, pair: &LoraPair) -> Tensor<2> {
        match pair.layer.as_str() {
            TOKENS => self.token_embedding.table(),
            HEAD => self.head_weight(),
            layer => {
                let mut linears = self.blocks.iter().flat_map(Block::linears);
                let linear = linears.find(|linear| linear.path == layer);
                linear.expect("a pair belongs to a layer of the model").weight.val()
            }
        }
    }

    /// Returns the rows of the token embedding for a batch, as changed by the adapter.
    pub(super) fn embedded(&self, tokens: &TokenBatch, adapter: Option<&Adapter>) -> Tensor<2> {
        let table = &self.token_embedding;
        let rows = table.forward(tokens.flat_ids(&table.device()));
        match adapter.and_then(Adapter::of_tokens) {
            Some(pair) => {
                let ids = (0..tokens.tokens()).map(|row| tokens.id(row) as usize);
                pair.embedded(rows, table.table(), ids)
            }
            None => rows,
        }
    }

    /// Gives the model an output layer of its own, with the same values.
    pub(crate) fn untied(mut self) -> Self {
        if self.ties_head() {
            let weight = self.head_weight();
            self.set_head(weight);
        }
        self
    }

    fn set_head(&mut self, weight: Tensor<2>) {
        match &mut self.head {
            Some(head) => head.weight = Param::from_tensor(weight),
            None => {
                self.head = Some(Linear::without_number(HEAD, weight));
                self.description.head = HeadKind::Own;
            }
        }
    }

    /// Merges the matrices for the output layer into a model without autodiff.
    pub(crate) fn with_head_of(mut self, adapter: &Adapter) -> Self {
        if let Some(pair) = adapter.of_head() {
            let weight = pair.changed(self.head_weight());
            self.set_head(weight);
        }
        self
    }

    /// Returns whether the weights of the blocks are in f32.
    pub(crate) fn has_f32_blocks(&self) -> bool {
        let mut linears = self.blocks.iter().flat_map(Block::linears);
        linears.all(|linear| linear.weight.val().dtype() == DType::F32)
    }

    /// Merges `adapter` into a model without autodiff that can then only sample.
    pub(crate) fn merged_for_sampling(self, adapter: &Adapter) -> Self {
        let mut merged = self.with_merged_ends(adapter);
        for linear in merged.blocks.iter_mut().flat_map(Block::linears_mut) {
            if let Some(pair) = adapter.pair(linear.number) {
                linear.merge_for_sampling(pair);
            }
        }
        merged
    }

    /// Merges what is not in the linear layers of the blocks.
    fn with_merged_ends(self, adapter: &Adapter) -> Self {
        let of_tokens = adapter.of_tokens();
        let base = self.with_saved(&adapter.saved);
        // A tied output layer stays the same if the embedding changes, as in PEFT.
        let base = if of_tokens.is_some() { base.untied() } else { base };
        let mut merged = base.with_head_of(adapter);
        if let Some(pair) = of_tokens {
            let table = pair.changed(merged.token_embedding.table());
            merged.token_embedding.set_table(table);
        }
        merged
    }

    /// Merges `adapter` into the weights, i.e. computes `W + s · A · B` for each adapted layer, with the
    /// lengths of DoRA if it has them. The result is in f32 and has no autodiff. Its output layer is no
    /// longer tied to the token embedding if the adapter changes one of them.
    pub fn merged(&self, adapter: &Adapter) -> Self {
        let base =
            if LanguageModel::device(self).is_autodiff() { self.valid() } else { self.clone() };
        let is_on_tape = adapter.devices().iter().any(burn::tensor::Device::is_autodiff);
        let off_tape_adapter;
        let adapter = if is_on_tape {
            off_tape_adapter = adapter.valid();
            &off_tape_adapter
        } else {
            adapter
        };
        let mut merged = base.with_merged_ends(adapter);
        for linear in merged.blocks.iter_mut().flat_map(Block::linears_mut) {
            let weight = dense(linear.weight.val());
            let changed = match adapter.pair(linear.number) {
                Some(pair) => pair.changed(weight),
                None => weight,
            };
            linear.weight = Param::from_tensor(changed);
        }
        merged
    }

    /// Returns whether `adapter` computes something else than this model, apart from rounding.
    pub fn is_changed_by(&self, adapter: &Adapter) -> bool {
        let is_zero = |tensor: Tensor<2>| {
            off_tape(tensor).abs().max().into_data().iter::<f32>().all(|most| most == 0.0)
        };
        let has_effect = |pair: &LoraPair| {
            let adds = pair.scale != 0.0 && !is_zero(pair.a.val()) && !is_zero(pair.b.val());
            // PEFT computes the lengths of a new adapter in another order.
            let is_scaled = || {
                let gain = pair.gain(self.weight_of(pair)).map(off_tape);
                let gains = gain.map(|gain| gain.into_data().iter::<f32>().collect::<Vec<_>>());
                gains.is_some_and(|gains| gains.iter().any(|gain| (gain - 1.0).abs() > 1e-5))
            };
            adds || is_scaled()
        };
        let is_other = |(path, value): (&str, Tensor<1>)| {
            let of_base = self.value_of(path).expect("the adapter belongs to the model");
            of_base.into_data() != value.into_data()
        };
        adapter.pairs().iter().any(has_effect) || adapter.saved.values().any(is_other)
    }
}
