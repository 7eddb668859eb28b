//! Low-rank adapters (Hu et al. 2021, "LoRA"), kept apart from the model that they adapt.
//!
//! The model does not change, so any number of adapters share one copy of it. Burn's own LoRA is a property of
//! a parameter: one adapter a model, and the full matrix `W + s · A · B` made anew in each pass
//! (docs/decisions/0010).

use std::collections::BTreeMap;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};
use grpo_kernels::{batch_invariant_linear, matmul};
use serde::{Deserialize, Serialize};

use crate::precision::{dense, operand};
use crate::{ModelError, Transformer};

/// What a new adapter is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Width between the two matrices of a pair (r).
    pub rank: usize,
    /// The pairs are scaled by `alpha / rank`.
    pub alpha: f64,
    /// Probability of dropping an element of a pair's input, in supervised training.
    #[serde(default)]
    pub dropout: f64,
    /// Names of the linear layers that get a pair, as the family's checkpoints call them (`q_proj`), each the end
    /// of a module's path; empty for all linear layers of the blocks.
    #[serde(default)]
    pub targets: Vec<String>,
    /// The pairs are scaled by `alpha / √rank` (Kalajdzievski 2023, "rsLoRA").
    #[serde(default)]
    pub rslora: bool,
}

impl LoraConfig {
    /// Checks ranges once.
    ///
    /// # Errors
    /// [`ModelError::Lora`] with the key that is out of its range.
    pub fn check(&self) -> Result<(), ModelError> {
        let refuse = |key: &'static str, message: String| Err(ModelError::Lora { key, message });
        if !(1..=65_536).contains(&self.rank) {
            return refuse("rank", format!("{} is out of range; expected 1 to 65536", self.rank));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return refuse(
                "alpha",
                format!("{} is out of range; expected more than 0", self.alpha),
            );
        }
        // As it is used: what is nearly 1 is 1 in f32.
        if !(0.0..1.0).contains(&(self.dropout as f32)) {
            return refuse(
                "dropout",
                format!("{} is out of range; expected 0 or more, and less than 1", self.dropout),
            );
        }
        Ok(())
    }

    fn scale(&self) -> f64 {
        scale(self.alpha, self.rank, self.rslora)
    }
}

/// What the product of a pair is multiplied by.
pub(crate) fn scale(alpha: f64, rank: usize, rslora: bool) -> f64 {
    alpha / if rslora { (rank as f64).sqrt() } else { rank as f64 }
}

/// Pairs of matrices for linear layers of one model.
#[derive(Module, Debug)]
pub struct Adapter {
    pairs: Vec<LoraPair>,
    /// For each linear layer of the model, the place of its pair.
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
    /// Path of the adapted layer, in our names.
    #[module(skip)]
    pub(crate) layer: String,
}

impl LoraPair {
    /// `[n, in]` → `[n, out]`
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let (a, b) = (operand(self.a.val(), &x), operand(self.b.val(), &x));
        matmul(matmul(x, a), b) * self.scale
    }

    /// As [`Self::forward`], off the tape, where no row's result depends on the other rows.
    pub(crate) fn forward_invariant(&self, x: Tensor<2>) -> Tensor<2> {
        let narrow = batch_invariant_linear(x, dense(self.a.val()), None);
        batch_invariant_linear(narrow, dense(self.b.val()), None) * self.scale
    }

    /// `scale · A · B`, `[in, out]`
    pub(crate) fn product(&self) -> Tensor<2> {
        self.a.val().inner().matmul(self.b.val().inner()) * self.scale
    }
}

/// A linear layer that an adapter may have a pair for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adaptable {
    /// Its number in the model.
    pub(crate) number: usize,
    /// Its path in our names.
    pub(crate) layer: String,
    /// Its path in the family's names.
    pub(crate) stored: String,
    /// `[in, out]`
    pub(crate) shape: [usize; 2],
}

impl Adaptable {
    /// Whether `name` is the end of its path in the family's names.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let above = self.stored.strip_suffix(name);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }

    /// Whether it is in the block of this number, from 0.
    pub(crate) fn is_in(&self, block: u64) -> bool {
        self.layer.starts_with(&format!("blocks.{block}."))
    }
}

impl Adapter {
    /// A new adapter that changes nothing yet: A is uniform within ±1/√in (PyTorch's initialisation of a linear
    /// layer, as in PEFT), B is 0. Equal seeds give equal adapters.
    ///
    /// # Errors
    /// A setting out of its range, a target that no layer has, or a rank that a layer cannot have.
    pub fn random(
        config: &LoraConfig,
        model: &Transformer,
        seed: u64,
        device: &Device,
    ) -> Result<Self, ModelError> {
        config.check()?;
        let layers = model.adaptable_layers();
        for target in &config.targets {
            if !layers.iter().any(|layer| layer.is_named(target)) {
                return Err(ModelError::UnknownTarget {
                    target: target.clone(),
                    known: last_names(&layers),
                });
            }
        }
        let chosen = |layer: &&Adaptable| {
            config.targets.is_empty() || config.targets.iter().any(|name| layer.is_named(name))
        };
        let is_too_small = |layer: &&Adaptable| layer.shape.iter().any(|&size| size < config.rank);
        if let Some(layer) = layers.iter().filter(chosen).find(is_too_small) {
            let message = format!(
                "{} is more than the rank that {} can have, which is {} × {}",
                config.rank, layer.stored, layer.shape[0], layer.shape[1]
            );
            return Err(ModelError::Lora { key: "rank", message });
        }
        let rng = CounterRng::new(seed, Purpose::Initialisation);
        let pairs = layers
            .iter()
            .filter(chosen)
            .map(|layer| {
                let [input, output] = layer.shape;
                let bound = (input as f64).powf(-0.5);
                // The last word keeps these numbers apart from those of a model's own parameters.
                let counter = |i: u64| [i as u32, layer.number as u32, (i >> 32) as u32, 1];
                let value = |i: u64| rng.uniform(counter(i)) * 2.0 - 1.0;
                let a: Vec<f32> =
                    (0..(input * config.rank) as u64).map(|i| (bound * value(i)) as f32).collect();
                let a = TensorData::new(a, [input, config.rank]);
                let pair = LoraPair {
                    a: Param::from_tensor(Tensor::from_data(a, device)),
                    b: Param::from_tensor(Tensor::zeros([config.rank, output], device)),
                    scale: config.scale(),
                    dropout: config.dropout as f32,
                    layer: layer.layer.clone(),
                };
                (layer.number, pair)
            })
            .collect();
        Ok(Self::of(pairs, layers.len()))
    }

    /// An adapter of these pairs, with the numbers of their layers.
    pub(crate) fn of(numbered: Vec<(usize, LoraPair)>, layers: usize) -> Self {
        let mut places = vec![None; layers];
        for (place, (number, _)) in numbered.iter().enumerate() {
            places[*number] = Some(place);
        }
        Self { pairs: numbered.into_iter().map(|(_, pair)| pair).collect(), places }
    }

    /// The same with every B of 0.
    pub(crate) fn without_effect(mut self) -> Self {
        for pair in &mut self.pairs {
            pair.b = pair.b.clone().map(|b| b.zeros_like());
        }
        self
    }

    /// The pair of a linear layer, where there is one.
    pub(crate) fn pair(&self, number: usize) -> Option<&LoraPair> {
        // The head comes last and has none.
        let place = self.places.get(number).copied().flatten()?;
        Some(&self.pairs[place])
    }

    pub(crate) fn pairs(&self) -> &[LoraPair] {
        &self.pairs
    }
}

/// The ends of the paths of layers, each once.
pub(crate) fn last_names(layers: &[Adaptable]) -> Vec<String> {
    let name = |layer: &Adaptable| layer.stored.rsplit('.').next().unwrap_or_default().to_owned();
    let names: BTreeMap<String, ()> = layers.iter().map(|layer| (name(layer), ())).collect();
    names.into_keys().collect()
}
