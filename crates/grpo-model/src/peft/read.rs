//! Reads the tensors of an adapter folder.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};

use super::scales::{PREFIX, Scales};
use crate::checkpoint::Checkpoint;
use crate::lora::{Adaptable, Adapter, LoraPair, scale, shown_names};
use crate::names::TOKENS;
use crate::saved::{Savable, Saved, SavedKind};
use crate::stored_values::Stored;
use crate::{ModelError, Transformer};

/// Reads all tensors of an adapter for `model`.
pub(super) fn adapter(
    mut weights: Checkpoint,
    scales: &Scales,
    model: &Transformer,
    device: &Device,
) -> Result<Adapter, ModelError> {
    let linears = model.adaptable_layers();
    let all: Vec<Adaptable> = linears.iter().cloned().chain(model.adaptable_ends()).collect();
    // Like PEFT, require only a single match, because target lists often cover several model
    // families.
    if !all.iter().any(|layer| scales.targets.allows(layer)) {
        let problem = format!(
            "adapter_config.json targets {}, but the linear layers of this model are {}; was the adapter trained on a different base model?",
            scales.targets,
            shown_names(&linears).join(", ")
        );
        return Err(ModelError::in_file(weights.path(), problem));
    }
    let mut pairs = Vec::new();
    for layer in &all {
        if is_present(&weights, scales, layer)? {
            pairs.push((layer.number, pair(&mut weights, scales, layer, device)?));
        }
    }
    let saved = saved(&mut weights, scales, model, &pairs, device)?;
    refuse_rest(&weights, &linears)?;
    if pairs.is_empty() && saved.is_empty() {
        return Err(ModelError::file(weights.path(), " has no LoRA matrices"));
    }
    let path = weights.path().to_owned();
    let adapter = Adapter::new(pairs, saved, linears.len());
    model.check_ends(&adapter).map_err(|problem| ModelError::in_file(&path, problem))?;
    Ok(adapter)
}

/// Returns the name of a tensor of a pair.
pub(super) fn pair_name(layer: &str, module: &str, part: &str) -> String {
    match (layer, part) {
        (_, "magnitude") => format!("{PREFIX}{module}.lora_magnitude_vector"),
        (TOKENS, _) => format!("{PREFIX}{module}.lora_embedding_{part}"),
        _ => format!("{PREFIX}{module}.lora_{part}.weight"),
    }
}

/// Returns whether the file has a pair for the layer, and checks that it should.
fn is_present(
    weights: &Checkpoint,
    scales: &Scales,
    layer: &Adaptable,
) -> Result<bool, ModelError> {
    let name = |part: &str| pair_name(&layer.layer, &layer.stored, part);
    if !weights.contains(&name("A")) && !weights.contains(&name("B")) {
        return match scales.targets.needs(layer) && !scales.excluded.has(layer) {
            true => Err(ModelError::missing_tensor(weights.path(), &name("A"))),
            false => Ok(false),
        };
    }
    let refuse = |problem: String| {
        let problem = format!("{problem}; use both files from the same adapter");
        Err(ModelError::in_file(weights.path(), problem))
    };
    if !scales.targets.allows(layer) {
        return refuse(format!(
            "the file has matrices for {}, which is not in target_modules of adapter_config.json",
            layer.stored
        ));
    }
    if scales.excluded.has(layer) {
        return refuse(format!(
            "the file has matrices for {}, which exclude_modules of adapter_config.json excludes",
            layer.stored
        ));
    }
    if !scales.dora && weights.contains(&name("magnitude")) {
        return refuse(format!(
            "the file has '{}', but adapter_config.json does not have use_dora = true",
            name("magnitude")
        ));
    }
    Ok(true)
}

fn pair(
    weights: &mut Checkpoint,
    scales: &Scales,
    layer: &Adaptable,
    device: &Device,
) -> Result<LoraPair, ModelError> {
    let (rank, alpha) = scales.of_layer(&layer.stored);
    let [input, output] = layer.shape;
    let mut take = |part: &str, shape: &[usize]| -> Result<Vec<f32>, ModelError> {
        let name = pair_name(&layer.layer, &layer.stored, part);
        let stored = weights.take(&name)?;
        check_shape(weights, &name, &stored, shape)?;
        Ok(stored.values)
    };
    let mut matrix = |part: &str, shape: [usize; 2]| -> Result<Param<Tensor<2>>, ModelError> {
        let values = take(part, &shape)?;
        Ok(Param::from_tensor(transposed(values, shape, device)))
    };
    let (a, b) = (matrix("A", [rank, input])?, matrix("B", [output, rank])?);
    let magnitude = match scales.dora {
        true => {
            let values = TensorData::new(take("magnitude", &[output])?, [output]);
            Some(Param::from_tensor(Tensor::from_data(values, device)))
        }
        false => None,
    };
    Ok(LoraPair {
        a,
        b,
        magnitude,
        scale: scale(alpha, rank, scales.rslora),
        dropout: scales.dropout,
        layer: layer.layer.clone(),
        known_gain: None,
    })
}

fn transposed(values: Vec<f32>, shape: [usize; 2], device: &Device) -> Tensor<2> {
    let stored: Tensor<2> =
        Tensor::from_data(TensorData::new(values, shape), &device.clone().inner());
    Tensor::from_data(stored.transpose().into_data(), device)
}

fn check_shape(
    weights: &Checkpoint,
    name: &str,
    stored: &Stored,
    shape: &[usize],
) -> Result<(), ModelError> {
    if stored.shape == shape {
        return Ok(());
    }
    let problem = format!(
        "tensor '{name}' has shape {:?}, but the model and adapter_config.json require {shape:?}; was the adapter trained on a different base model?",
        stored.shape
    );
    Err(ModelError::in_file(weights.path(), problem))
}

/// Reads the tensors of the base that the adapter replaces.
fn saved(
    weights: &mut Checkpoint,
    scales: &Scales,
    model: &Transformer,
    pairs: &[(usize, LoraPair)],
    device: &Device,
) -> Result<Saved, ModelError> {
    let savable = model.savable();
    for module in &scales.modules_to_save {
        if !savable.iter().any(|of| of.is_of_module(module)) {
            let problem = format!(
                "modules_to_save of adapter_config.json names {module}, which this model does not have; was the adapter trained on a different base model?"
            );
            return Err(ModelError::in_file(weights.path(), problem));
        }
    }
    let mut saved = Saved::default();
    for of in &savable {
        let is_module = scales.modules_to_save.iter().any(|module| of.is_of_module(module));
        let Some(name) = present_name(weights, of) else {
            if is_module {
                return Err(ModelError::missing_tensor(
                    weights.path(),
                    &format!("{PREFIX}{}", of.stored),
                ));
            }
            continue;
        };
        let stored = weights.take(&name)?;
        let swapped = of.kind == SavedKind::Matrix && model.names().is_swapped(&of.path);
        let shape: Vec<usize> = match swapped {
            true => of.shape.iter().rev().copied().collect(),
            false => of.shape.clone(),
        };
        check_shape(weights, &name, &stored, &shape)?;
        let elements = stored.values.len();
        let flat: Tensor<1> = match swapped {
            true => transposed(stored.values, [shape[0], shape[1]], device).reshape([elements]),
            false => Tensor::from_data(TensorData::new(stored.values, [elements]), device),
        };
        if is_module || (scales.trains_biases && of.is_bias()) {
            if is_module
                && pairs.iter().any(|(_, pair)| of.path == format!("{}.weight", pair.layer))
            {
                let problem = format!(
                    "{} is in both target_modules and modules_to_save of adapter_config.json; only one is supported",
                    of.stored.trim_end_matches(".weight")
                );
                return Err(ModelError::in_file(weights.path(), problem));
            }
            saved.push(of, flat);
        } else if !is_of_base(model, of, flat) {
            let problem = format!(
                "tensor '{name}' differs from that of the model, but modules_to_save of adapter_config.json does not name it; merge the adapter with PEFT, and use the merged model"
            );
            return Err(ModelError::in_file(weights.path(), problem));
        }
    }
    Ok(saved)
}

/// Returns the name under which the file has a tensor of the base. PEFT puts `base_layer` before the
/// parameters of an adapted layer.
fn present_name(weights: &Checkpoint, of: &Savable) -> Option<String> {
    let names = [format!("{PREFIX}{}", of.stored), base_layer_name(&of.stored)];
    names.into_iter().find(|name| weights.contains(name))
}

/// Returns the name of a parameter of an adapted layer.
pub(super) fn base_layer_name(stored: &str) -> String {
    let (module, parameter) = stored.rsplit_once('.').unwrap_or(("", stored));
    format!("{PREFIX}{module}.base_layer.{parameter}")
}

fn is_of_base(model: &Transformer, of: &Savable, value: Tensor<1>) -> bool {
    let of_base = model.value_of(&of.path).expect("the tensor belongs to the model");
    of_base.into_data() == crate::precision::off_tape(value).into_data()
}

/// Refuses tensors that nothing has read.
fn refuse_rest(weights: &Checkpoint, linears: &[Adaptable]) -> Result<(), ModelError> {
    let Some(name) = weights.names().next() else { return Ok(()) };
    let problem = format!(
        "'{name}' does not match a linear layer of this model ({}); was the adapter trained on a different base model?",
        shown_names(linears).join(", ")
    );
    Err(ModelError::in_file(weights.path(), problem))
}
