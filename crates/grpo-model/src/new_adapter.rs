//! Adapter initialisation.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};

use crate::lora::{Adaptable, LoraPair, last_names};
use crate::{Adapter, LoraConfig, ModelError, Transformer};

impl Adapter {
    /// Creates an adapter that initially has no effect. A is drawn uniformly from ±1/√in, which is
    /// PEFT's default and PyTorch's initialisation of linear layers. B is 0. The result is
    /// determined by `seed`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, if a target does not match any layer, or if
    /// the rank is too large for a layer.
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
                let known = last_names(&layers).join(", ");
                return Err(ModelError::Unfit(format!(
                    "lora.targets: no linear layer is named '{target}'; available: {known}"
                )));
            }
        }
        let chosen = |layer: &&Adaptable| {
            config.targets.is_empty() || config.targets.iter().any(|name| layer.is_named(name))
        };
        let is_too_small = |layer: &&Adaptable| layer.shape.iter().any(|&size| size < config.rank);
        if let Some(layer) = layers.iter().filter(chosen).find(is_too_small) {
            let message = format!(
                "{} is too large for {}, a {} × {} matrix",
                config.rank, layer.stored, layer.shape[0], layer.shape[1]
            );
            return Err(ModelError::lora("rank", message));
        }
        let rng = CounterRng::new(seed, Purpose::INITIALISATION);
        let pairs = layers
            .iter()
            .filter(chosen)
            .map(|layer| {
                let [input, output] = layer.shape;
                let bound = (input as f64).powf(-0.5);
                // The last word keeps these numbers distinct from those used for the model's
                // parameters.
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
}
