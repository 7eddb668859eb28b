//! Low-rank adapters (Hu et al. 2021, "LoRA"), separate from the base model.
//!
//! The base model does not change, so any number of adapters share one copy of it. Burn's own LoRA
//! is a property of a parameter: one adapter per model, with the full matrix `W + s · A · B`
//! computed in each pass (docs/decisions/0010).

use std::collections::BTreeMap;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use grpo_kernels::{batch_invariant_linear, matmul};
use serde::{Deserialize, Serialize};

use crate::ModelError;
use crate::precision::{dense, operand};

/// Settings of a new adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Inner width of a pair (r).
    pub rank: usize,
    /// Pairs are scaled by `alpha / rank`.
    pub alpha: f64,
    /// Dropout probability of a pair's input in supervised training.
    #[serde(default)]
    pub dropout: f64,
    /// Names of the linear layers that get a pair, as in the family's checkpoints (`q_proj`): ends
    /// of module paths. Empty for all linear layers of the blocks.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Scales pairs by `alpha / √rank` (Kalajdzievski 2023, "rsLoRA").
    #[serde(default)]
    pub rslora: bool,
}

impl LoraConfig {
    /// Checks ranges.
    ///
    /// # Errors
    /// Returns the key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        let refuse = |key, message: String| Err(ModelError::lora(key, message));
        if !(1..=65_536).contains(&self.rank) {
            return refuse("rank", format!("{} is out of range; expected 1 to 65536", self.rank));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return refuse(
                "alpha",
                format!("{} is out of range; expected more than 0", self.alpha),
            );
        }
        // Checked in f32, where values close to 1 are 1.
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

/// Returns the factor of a pair's product.
pub(crate) fn scale(alpha: f64, rank: usize, rslora: bool) -> f64 {
    alpha / if rslora { (rank as f64).sqrt() } else { rank as f64 }
}

/// Pairs of matrices for linear layers of a model.
#[derive(Module, Debug)]
pub struct Adapter {
    pairs: Vec<LoraPair>,
    /// For each linear layer of the model, the index of its pair.
    #[module(skip)]
    places: Vec<Option<usize>>,
}

/// `scale · x · A · B`
#[derive(Module, Debug)]
pub(crate) struct LoraPair {
    /// `[in, rank]`
    pub(crate) a: Param<Tensor<2>>,
    /// `[rank, out]`
    pub(crate) b: Param<Tensor<2>>,
    #[module(skip)]
    pub(crate) scale: f64,
    #[module(skip)]
    pub(crate) dropout: f32,
    /// Path of the adapted layer in our names.
    #[module(skip)]
    pub(crate) layer: String,
}

impl LoraPair {
    /// `[n, in]` → `[n, out]`
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let (a, b) = (operand(self.a.val(), &x), operand(self.b.val(), &x));
        matmul(matmul(x, a), b) * self.scale
    }

    /// As [`Self::forward`] without autodiff; no row depends on other rows.
    pub(crate) fn forward_invariant(&self, x: Tensor<2>) -> Tensor<2> {
        let narrow = batch_invariant_linear(x, dense(self.a.val()), None);
        batch_invariant_linear(narrow, dense(self.b.val()), None) * self.scale
    }

    /// `scale · A · B`, `[in, out]`
    pub(crate) fn product(&self) -> Tensor<2> {
        self.a.val().inner().matmul(self.b.val().inner()) * self.scale
    }
}

/// A linear layer that an adapter may adapt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adaptable {
    /// Its number in the model.
    pub(crate) number: usize,
    /// Path in our names.
    pub(crate) layer: String,
    /// Path in the family's names.
    pub(crate) stored: String,
    /// `[in, out]`
    pub(crate) shape: [usize; 2],
}

impl Adaptable {
    /// Returns whether `name` is the end of its path in the family's names.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let above = self.stored.strip_suffix(name);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }

    /// Returns whether it is in this block, counted from 0.
    pub(crate) fn is_in(&self, block: u64) -> bool {
        self.layer.starts_with(&format!("blocks.{block}."))
    }
}

impl Adapter {
    /// Creates an adapter from pairs with layer numbers.
    pub(crate) fn of(numbered: Vec<(usize, LoraPair)>, layers: usize) -> Self {
        let mut places = vec![None; layers];
        for (place, (number, _)) in numbered.iter().enumerate() {
            places[*number] = Some(place);
        }
        Self { pairs: numbered.into_iter().map(|(_, pair)| pair).collect(), places }
    }

    /// Returns the adapter with every B set to 0.
    pub(crate) fn without_effect(mut self) -> Self {
        for pair in &mut self.pairs {
            pair.b = pair.b.clone().map(|b| b.zeros_like());
        }
        self
    }

    /// Returns the pair of a linear layer, if any.
    pub(crate) fn pair(&self, number: usize) -> Option<&LoraPair> {
        // The head comes last and has none.
        let place = self.places.get(number).copied().flatten()?;
        Some(&self.pairs[place])
    }

    pub(crate) fn pairs(&self) -> &[LoraPair] {
        &self.pairs
    }
}

/// Returns the distinct last components of layer paths.
pub(crate) fn last_names(layers: &[Adaptable]) -> Vec<String> {
    let name = |layer: &Adaptable| layer.stored.rsplit('.').next().unwrap_or_default().to_owned();
    let names: BTreeMap<String, ()> = layers.iter().map(|layer| (name(layer), ())).collect();
    names.into_keys().collect()
}
