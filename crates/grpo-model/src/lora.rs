//! Low-rank adapters (Hu et al. 2021, "LoRA").
//!
//! An adapter is separate from its base model and leaves it unchanged, so many adapters can share a
//! single copy of the base. Burn's built-in LoRA works differently: it is attached to the parameter
//! itself. That allows only one adapter per model, and each forward pass computes the full matrix
//! `W + s · A · B` (see docs/decisions/0010).

use std::collections::{BTreeMap, BTreeSet};

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use grpo_data::Ranges;
use grpo_kernels::{batch_invariant_linear, gather_rows, indices, linear, matmul};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ModelError;
use crate::names::{HEAD, TOKENS};
use crate::precision::{dense, off_tape, on_tape_of, operand};
use crate::saved::Saved;

/// Configuration of a new adapter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Inner dimension r of a pair.
    #[schemars(range(min = 1, max = 65536), extend("x-basic" = true))]
    pub rank: usize,
    /// The product of a pair is scaled by `alpha / rank`.
    #[schemars(extend("exclusiveMinimum" = 0, "x-basic" = true))]
    pub alpha: f64,
    /// Dropout on the input of a pair, in `grpo pretrain` only; `grpo train` stores it in the
    /// adapter and drops nothing.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// Linear layers with a pair, by the end of their name in the family's checkpoints: `["q_proj",
    /// "v_proj"]`. Also the token embedding (`embed_tokens`) and the output layer (`lm_head`).
    /// Default: all linear layers of the blocks.
    #[serde(default)]
    #[schemars(extend("x-basic" = true))]
    pub targets: Vec<String>,
    /// Scale by `alpha / √rank` instead.
    #[serde(default)]
    pub rslora: bool,
    /// Also train the length of each column of the adapted weights (DoRA; Liu et al. 2024).
    #[serde(default)]
    pub dora: bool,
    /// Modules that are trained in full and stored in the adapter, by the end of their name, such as
    /// `["lm_head", "embed_tokens"]`.
    #[serde(default)]
    pub modules_to_save: Vec<String>,
}

impl LoraConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// Returns an error that names the setting if a value is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        self.check_ranges("lora").map_err(|fault| ModelError::Unfit(fault.to_string()))?;
        let refuse = |key, message: String| Err(ModelError::lora(key, message));
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return refuse(
                "alpha",
                format!("{} is out of range; expected more than 0", self.alpha),
            );
        }
        // Check the f32 value, because numbers slightly below 1 round to 1.
        if !(0.0..1.0).contains(&(self.dropout as f32)) {
            return refuse(
                "dropout",
                format!("{} is out of range; expected 0 or more and less than 1", self.dropout),
            );
        }
        Ok(())
    }

    pub(crate) fn scale(&self) -> f64 {
        scale(self.alpha, self.rank, self.rslora)
    }
}

/// Returns the factor applied to `A · B`.
pub(crate) fn scale(alpha: f64, rank: usize, rslora: bool) -> f64 {
    alpha / if rslora { (rank as f64).sqrt() } else { rank as f64 }
}

/// A LoRA adapter: a pair of low-rank matrices for each adapted layer, and tensors of the base that it
/// replaces.
#[derive(Module, Debug)]
pub struct Adapter {
    pairs: Vec<LoraPair>,
    pub(crate) saved: Saved,
    /// For each linear layer of the blocks, the index of its pair in `pairs`.
    #[module(skip)]
    places: Vec<Option<usize>>,
}

/// The low-rank matrices of one layer, which compute `scale · x · A · B`.
#[derive(Module, Debug)]
pub(crate) struct LoraPair {
    /// Shape `[in, rank]`.
    pub(crate) a: Param<Tensor<2>>,
    /// Shape `[rank, out]`.
    pub(crate) b: Param<Tensor<2>>,
    /// With DoRA, the length of each column of the changed weight, `[out]`.
    pub(crate) magnitude: Option<Param<Tensor<1>>>,
    #[module(skip)]
    pub(crate) scale: f64,
    #[module(skip)]
    pub(crate) dropout: f32,
    /// Path of the adapted layer in this crate's naming scheme.
    #[module(skip)]
    pub(crate) layer: String,
    /// [`Self::gain`], computed once. Only in adapters that cannot be changed.
    #[module(skip)]
    pub(crate) known_gain: Option<Tensor<1>>,
}

impl LoraPair {
    /// Computes `[n, in]` → `[n, out]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let (a, b) = (operand(self.a.val(), &x), operand(self.b.val(), &x));
        linear(linear(x, a, None), b, None) * self.scale
    }

    /// Like [`Self::forward`], but without autodiff. Each row is independent of the other rows.
    pub(crate) fn forward_invariant(&self, x: Tensor<2>) -> Tensor<2> {
        let narrow = batch_invariant_linear(x, dense(self.a.val()), None);
        batch_invariant_linear(narrow, dense(self.b.val()), None) * self.scale
    }

    /// Returns the rows of the changed `table` at `ids`, given its own rows `[n, out]`. Each row is
    /// independent of the other rows.
    pub(crate) fn embedded(
        &self,
        rows: Tensor<2>,
        table: Tensor<2>,
        ids: impl IntoIterator<Item = usize>,
    ) -> Tensor<2> {
        let narrow = gather_rows(self.a.val(), indices(ids, &self.a.lazy_device()));
        let added = match narrow.is_autodiff() {
            true => linear(narrow, self.b.val(), None),
            false => batch_invariant_linear(narrow, self.b.val(), None),
        } * self.scale;
        let rows = on_tape_of(&added, dense(rows)) + added;
        match self.gain(table) {
            Some(gain) => rows * gain.unsqueeze(),
            None => rows,
        }
    }

    /// Returns `scale · A · B`. The shape is `[in, out]`.
    pub(crate) fn product(&self) -> Tensor<2> {
        let [a, b] = [&self.a, &self.b].map(|matrix| off_tape(matrix.val()));
        matmul(a, b) * self.scale
    }

    /// Returns the changed weight, `[in, out]`, on the tape if the pair is.
    pub(crate) fn changed(&self, weight: Tensor<2>) -> Tensor<2> {
        let weight = dense(weight);
        let product = matmul(self.a.val(), self.b.val()) * self.scale;
        let changed = on_tape_of(&product, weight.clone()) + product;
        match self.gain(weight) {
            Some(gain) => changed * gain.unsqueeze(),
            None => changed,
        }
    }
}

/// A layer that can be adapted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adaptable {
    /// Index among the linear layers of the blocks, or behind them for other layers.
    pub(crate) number: usize,
    /// Path in this crate's naming scheme.
    pub(crate) layer: String,
    /// Path in the checkpoint.
    pub(crate) stored: String,
    /// Shape `[in, out]`.
    pub(crate) shape: [usize; 2],
}

impl Adaptable {
    /// Returns whether `name` matches the end of the layer's path in the checkpoint.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let above = self.stored.strip_suffix(name);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }

    /// Returns whether the layer belongs to the block with this zero-based index.
    pub(crate) fn is_in(&self, block: u64) -> bool {
        self.layer.starts_with(&format!("blocks.{block}."))
    }
}

impl Adapter {
    /// Creates an adapter from pairs, their layer indices and replaced tensors. `layers` is the number
    /// of linear layers of the blocks.
    pub(crate) fn new(numbered: Vec<(usize, LoraPair)>, saved: Saved, layers: usize) -> Self {
        let mut places = vec![None; layers];
        for (place, (number, _)) in numbered.iter().enumerate() {
            if let Some(of_layer) = places.get_mut(*number) {
                *of_layer = Some(place);
            }
        }
        let pairs = numbered.into_iter().map(|(_, pair)| pair).collect();
        Self { pairs, saved, places }
    }

    /// Returns whether the input of the first block depends on trained parameters.
    pub(crate) fn changes_input(&self) -> bool {
        self.of_tokens().is_some() || self.saved.has_tables()
    }

    /// Returns the matrices for a linear layer of a block if the layer is adapted.
    pub(crate) fn pair(&self, number: usize) -> Option<&LoraPair> {
        let place = self.places.get(number).copied().flatten()?;
        Some(&self.pairs[place])
    }

    pub(crate) fn pairs(&self) -> &[LoraPair] {
        &self.pairs
    }

    pub(crate) fn pairs_mut(&mut self) -> &mut [LoraPair] {
        &mut self.pairs
    }

    /// Returns the matrices for the token embedding, `[vocabulary, rank]` and `[rank, width]`.
    pub(crate) fn of_tokens(&self) -> Option<&LoraPair> {
        self.pairs.iter().find(|pair| pair.layer == TOKENS)
    }

    /// Returns the matrices for the output layer.
    pub(crate) fn of_head(&self) -> Option<&LoraPair> {
        self.pairs.iter().find(|pair| pair.layer == HEAD)
    }

    /// Removes what a base has that [`crate::Transformer::with_saved`] and
    /// [`crate::Transformer::with_head_of`] have changed.
    pub(crate) fn without_saved_and_head(mut self) -> Self {
        self.saved = Saved::default();
        if self.pairs.last().is_some_and(|pair| pair.layer == HEAD) {
            self.pairs.pop();
        }
        self
    }

    /// Returns the PEFT setting that makes this more than low-rank matrices of linear layers of the
    /// blocks, which is all that some other programs read.
    pub fn beyond_lora(&self) -> Option<&'static str> {
        if self.pairs.iter().any(|pair| pair.magnitude.is_some()) {
            return Some("use_dora");
        }
        if let Some(pair) = [self.of_tokens(), self.of_head()].into_iter().flatten().next() {
            return Some(if pair.layer == HEAD { "lm_head" } else { "embed_tokens" });
        }
        self.saved.setting()
    }
}

/// Returns the distinct names of layers for messages, in alphabetical order: the final components of
/// their paths, with the one before if it is only a number.
pub(crate) fn shown_names(layers: &[Adaptable]) -> Vec<String> {
    let name = |layer: &Adaptable| {
        let mut parts = layer.stored.rsplit('.');
        let last = parts.next().unwrap_or_default();
        match parts.next().filter(|_| last.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(before) => format!("{before}.{last}"),
            None => last.to_owned(),
        }
    };
    layers.iter().map(name).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the distinct final components of the layer paths, in alphabetical order.
pub(crate) fn last_names(layers: &[Adaptable]) -> Vec<String> {
    let name = |layer: &Adaptable| layer.stored.rsplit('.').next().unwrap_or_default().to_owned();
    let names: BTreeMap<String, ()> = layers.iter().map(|layer| (name(layer), ())).collect();
    names.into_keys().collect()
}
