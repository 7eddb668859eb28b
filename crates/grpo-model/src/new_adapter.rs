//! Adapter initialisation.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{CounterRng, Purpose};

use crate::lora::{Adaptable, LoraPair, last_names};
use crate::names::TOKENS;
use crate::saved::{Saved, SavedKind};
use crate::{Adapter, LoraConfig, ModelError, Transformer};

impl Adapter {
    /// Creates an adapter that initially has no effect. A is drawn uniformly from ±1/√in, which is
    /// PEFT's default and PyTorch's initialisation of linear layers. B is 0. Of the token embedding, A
    /// is 0, and B is drawn from a standard normal distribution, as in PEFT. The result is determined by
    /// `seed`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, if a target or a module to save does not match
    /// anything, or if the rank is too large for a layer.
    pub fn random(
        config: &LoraConfig,
        model: &Transformer,
        seed: u64,
        device: &Device,
    ) -> Result<Self, ModelError> {
        config.check()?;
        let linears = model.adaptable_layers();
        let chosen = chosen(config, model)?;
        let is_too_small = |layer: &&Adaptable| layer.shape.iter().any(|&size| size < config.rank);
        if let Some(layer) = chosen.iter().find(is_too_small) {
            let message = format!(
                "{} is too large for {}, a {} × {} matrix",
                config.rank, layer.stored, layer.shape[0], layer.shape[1]
            );
            return Err(ModelError::lora("rank", message));
        }
        let rng = CounterRng::new(seed, Purpose::INITIALISATION);
        let pair = |layer: &Adaptable| (layer.number, random_pair(config, layer, &rng, device));
        let mut pairs: Vec<(usize, LoraPair)> = chosen.iter().map(pair).collect();
        if config.dora {
            for (_, pair) in &mut pairs {
                let norms = pair.norms(model.weight_of(pair)).into_data();
                pair.magnitude = Some(Param::from_tensor(Tensor::from_data(norms, device)));
            }
        }
        let saved = saved(config, model, &chosen, device)?;
        let adapter = Self::new(pairs, saved, linears.len());
        model.check_ends(&adapter).map_err(ModelError::Unfit)?;
        Ok(adapter)
    }
}

/// Returns the layers that get a pair.
fn chosen(config: &LoraConfig, model: &Transformer) -> Result<Vec<Adaptable>, ModelError> {
    let linears = model.adaptable_layers();
    if config.targets.is_empty() {
        return Ok(linears);
    }
    let ends = model.adaptable_ends();
    for target in &config.targets {
        if !linears.iter().chain(&ends).any(|layer| layer.is_named(target)) {
            let known = last_names(&linears).join(", ");
            let ends = last_names(&ends).join(", ");
            return Err(ModelError::Unfit(format!(
                "lora.targets: no linear layer is named '{target}'; available: {known}; also {ends}"
            )));
        }
    }
    let is_chosen = |layer: &Adaptable| config.targets.iter().any(|target| layer.is_named(target));
    Ok(linears.into_iter().chain(ends).filter(is_chosen).collect())
}

fn random_pair(
    config: &LoraConfig,
    layer: &Adaptable,
    rng: &CounterRng,
    device: &Device,
) -> LoraPair {
    let [input, output] = layer.shape;
    let of_tokens = layer.layer == TOKENS;
    // The last word keeps these numbers distinct from those used for the model's parameters.
    let counter = |i: u64| [i as u32, layer.number as u32, (i >> 32) as u32, 1];
    let tensor = |values: Vec<f32>, shape: [usize; 2]| -> Tensor<2> {
        Tensor::from_data(TensorData::new(values, shape), device)
    };
    let zeros = |shape: [usize; 2]| -> Tensor<2> { Tensor::zeros(shape, device) };
    let (of_a, of_b) = ([input, config.rank], [config.rank, output]);
    let count = |shape: [usize; 2]| 0..(shape[0] * shape[1]) as u64;
    let (a, b) = if of_tokens {
        let normals = count(of_b).map(|i| rng.normal(counter(i)) as f32).collect();
        (zeros(of_a), tensor(normals, of_b))
    } else {
        let bound = (input as f64).powf(-0.5);
        let value = |i: u64| rng.uniform(counter(i)) * 2.0 - 1.0;
        (tensor(count(of_a).map(|i| (bound * value(i)) as f32).collect(), of_a), zeros(of_b))
    };
    LoraPair {
        a: Param::from_tensor(a),
        b: Param::from_tensor(b),
        magnitude: None,
        scale: config.scale(),
        dropout: config.dropout as f32,
        layer: layer.layer.clone(),
        known_gain: None,
    }
}

/// Returns the tensors of the modules that are trained in full, with the values of the model.
fn saved(
    config: &LoraConfig,
    model: &Transformer,
    chosen: &[Adaptable],
    device: &Device,
) -> Result<Saved, ModelError> {
    let savable = model.savable();
    let mut saved = Saved::default();
    for module in &config.modules_to_save {
        if !savable.iter().any(|of| of.is_of_module(module)) {
            return Err(ModelError::Unfit(format!(
                "lora.modules_to_save: the model has no module named '{module}'; for example lm_head, embed_tokens or norm"
            )));
        }
    }
    for of in &savable {
        let is_saved = config.modules_to_save.iter().any(|module| of.is_of_module(module));
        if !is_saved {
            continue;
        }
        let is_weight = of.kind != SavedKind::Vector;
        if is_weight && chosen.iter().any(|layer| of.path == format!("{}.weight", layer.layer)) {
            let module = of.stored.trim_end_matches(".weight");
            return Err(ModelError::Unfit(format!(
                "lora.modules_to_save: {module} also has low-rank matrices; list other names in lora.targets, or remove it here"
            )));
        }
        let value = model.value_of(&of.path).expect("the tensor belongs to the model");
        saved.push(of, Tensor::from_data(value.into_data(), device));
    }
    Ok(saved)
}
