//! A Hugging Face model or a LoRA adapter as a file.

use std::io::Write;

use serde_json::Value;

use crate::architecture::{RowOrder, to_gguf};
use crate::config_out::{self, Shape};
use crate::error::{GgufError, Result, unfit, unsupported};
use crate::metadata::{Metadata, MetadataValue};
use crate::quantize::StoredType;
use crate::tensor_type::TensorType;
use crate::tokenizer_out;
use crate::writer::{GgufWriter, TensorPlan};

/// A model as the files of its folder describe it.
#[derive(Clone, Debug)]
pub struct HuggingFaceModel<'a> {
    /// The name that programs show.
    pub name: &'a str,
    /// The content of `config.json`.
    pub config: &'a Value,
    /// The content of `tokenizer.json`.
    pub tokenizer: &'a Value,
    /// The ids of special tokens. Only one end token fits, the one that ends a reply.
    pub special: SpecialTokens,
    /// The chat template.
    pub chat_template: Option<&'a str>,
    /// Names and shapes of the tensors.
    pub tensors: Vec<(String, Vec<usize>)>,
}

/// The ids of special tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The begin token.
    pub bos: Option<u32>,
    /// The end token.
    pub eos: Option<u32>,
    /// The padding token.
    pub pad: Option<u32>,
}

/// A LoRA adapter as PEFT stores it.
#[derive(Clone, Debug)]
pub struct Adapter<'a> {
    /// The content of `adapter_config.json`.
    pub adapter_config: &'a Value,
    /// The content of the base model's `config.json`.
    pub base_config: &'a Value,
    /// Names and shapes of the tensors.
    pub tensors: Vec<(String, Vec<usize>)>,
}

/// A file that is ready to be written.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The metadata.
    pub metadata: Metadata,
    /// The tensors in the order in which they are written.
    pub tensors: Vec<ExportedTensor>,
}

/// A tensor of a file that is ready to be written.
#[derive(Clone, Debug)]
pub struct ExportedTensor {
    /// Name, shape and type in the file.
    pub plan: TensorPlan,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    /// The values of a tensor of the model.
    Tensor { name: String, order: RowOrder },
    /// Values that follow from the configuration.
    Computed(Vec<f32>),
}

impl Exported {
    /// Writes the file. `read` returns the values of a tensor by its name in the model. Only one tensor is
    /// in memory at a time.
    ///
    /// # Errors
    /// Returns an error if `read` fails, if [`GgufWriter::new`] fails, or if [`GgufWriter::write`] fails.
    pub fn write<W: Write, E: From<GgufError>>(
        self,
        writer: W,
        mut read: impl FnMut(&str) -> std::result::Result<Vec<f32>, E>,
    ) -> std::result::Result<W, E> {
        let plans = self.tensors.iter().map(|tensor| tensor.plan.clone()).collect();
        let mut writer = GgufWriter::new(writer, &self.metadata, plans)?;
        for ExportedTensor { plan, source } in self.tensors {
            let values = match source {
                Source::Computed(values) => values,
                Source::Tensor { name, order } => {
                    order.to_gguf(&plan.name, plan.shape[0], read(&name)?)?
                }
            };
            writer.write(&plan.name, &values)?;
        }
        Ok(writer.finish()?)
    }
}

/// Prepares the file of a model. Matrices are stored as `stored`, vectors and norms in F32.
///
/// # Errors
/// Returns an error if the family, the tokenizer, a setting or a tensor has no counterpart in GGUF.
pub fn export_model(model: &HuggingFaceModel<'_>, stored: StoredType) -> Result<Exported> {
    let mut metadata = Metadata::default();
    let architecture = config_out::architecture(model.config)?;
    metadata.set("general.architecture", architecture.name());
    metadata.set("general.type", "model");
    metadata.set("general.name", model.name);
    let shape = config_out::describe(model.config, &mut metadata)?;
    metadata.set("general.file_type", stored.file_type());
    metadata.set("general.quantization_version", 2);
    tokenizer_out::describe(model.tokenizer, shape.vocabulary, &mut metadata)?;
    let SpecialTokens { bos, eos, pad } = model.special;
    for (name, id) in [("bos", bos), ("eos", eos), ("padding", pad)] {
        let Some(id) = id else { continue };
        if id as usize >= shape.vocabulary {
            return unfit(format!(
                "the special token {id} is outside of the {} tokens",
                shape.vocabulary
            ));
        }
        let key = format!("tokenizer.ggml.{name}_token_id");
        match metadata.get(&key) {
            // The token that the tokenizer adds.
            Some(added) if name == "eos" && *added != MetadataValue::U32(id) => {
                return unsupported(format!(
                    "the tokenizer ends a text with another token than {id}, which ends replies; GGUF has only one of them"
                ));
            }
            Some(_) => {}
            None => metadata.set(key, id),
        }
    }
    if let Some(template) = model.chat_template {
        metadata.set("tokenizer.chat_template", template);
    }
    let tensors = model_tensors(model, &shape, stored)?;
    Ok(Exported { metadata, tensors })
}

fn model_tensors(
    model: &HuggingFaceModel<'_>,
    shape: &Shape,
    stored: StoredType,
) -> Result<Vec<ExportedTensor>> {
    let mut tensors = Vec::new();
    if let Some(factors) = &shape.rotary_factors {
        let (name, shape) = ("rope_freqs.weight".to_owned(), vec![factors.len()]);
        tensors.push(ExportedTensor {
            plan: TensorPlan { name, shape, kind: TensorType::F32 },
            source: Source::Computed(factors.clone()),
        });
    }
    for (name, size) in &model.tensors {
        // A tied output layer is a copy of the token embedding.
        if shape.is_tied && name == "lm_head.weight" {
            continue;
        }
        let Some(target) = to_gguf(name) else {
            return unsupported(format!("tensor `{name}` has no counterpart in GGUF"));
        };
        let order = shape.architecture.order(&target, shape.heads);
        tensors.push(exported(name, target, size, order, stored));
    }
    Ok(tensors)
}

fn exported(
    name: &str,
    target: String,
    shape: &[usize],
    order: RowOrder,
    stored: StoredType,
) -> ExportedTensor {
    let kind = stored.of(&target, shape);
    ExportedTensor {
        plan: TensorPlan { name: target, shape: shape.to_vec(), kind },
        source: Source::Tensor { name: name.to_owned(), order },
    }
}

/// Prepares the file of a LoRA adapter for a base model that was exported.
///
/// # Errors
/// Returns an error if the family or a tensor has no counterpart in GGUF, e.g. the magnitudes of DoRA.
pub fn export_adapter(adapter: &Adapter<'_>, stored: StoredType) -> Result<Exported> {
    let architecture = config_out::architecture(adapter.base_config)?;
    let heads = config_out::heads(adapter.base_config)?;
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", architecture.name());
    metadata.set("general.type", "adapter");
    metadata.set("general.file_type", stored.file_type());
    metadata.set("adapter.type", "lora");
    metadata.set("adapter.lora.alpha", alpha(adapter.adapter_config)?);
    let mut tensors = Vec::new();
    for (name, shape) in &adapter.tensors {
        let bare = name.strip_prefix("base_model.model.").unwrap_or(name);
        let ends = [(".lora_A.weight", "lora_a"), (".lora_B.weight", "lora_b")];
        let found = ends.iter().find_map(|(end, new)| Some((bare.strip_suffix(end)?, *new)));
        let target = found.and_then(|(module, end)| {
            Some((to_gguf(&format!("{module}.weight"))?, end)).filter(|_| shape.len() == 2)
        });
        let Some((target, end)) = target else {
            return unsupported(format!(
                "tensor `{name}` of the adapter has no counterpart in GGUF; merge the adapter and export the model"
            ));
        };
        // Only the second factor has the rows of the layer's output.
        let order = match end {
            "lora_b" => architecture.order(&target, heads),
            _ => RowOrder::Same,
        };
        tensors.push(exported(name, format!("{target}.{end}"), shape, order, stored));
    }
    Ok(Exported { metadata, tensors })
}

/// Returns the value that llama.cpp divides by the rank of each layer.
fn alpha(config: &Value) -> Result<f32> {
    for key in ["use_dora", "alora_invocation_tokens"] {
        if config.get(key).is_some_and(|value| !value.is_null() && *value != false) {
            return unsupported(format!(
                "adapter_config.json: {key} has no counterpart in GGUF; merge the adapter and export the model"
            ));
        }
    }
    let is_filled = |key: &str| {
        config.get(key).and_then(Value::as_object).is_some_and(|patterns| !patterns.is_empty())
    };
    let is_stabilised = config.get("use_rslora") == Some(&Value::Bool(true));
    if is_filled("alpha_pattern") || (is_stabilised && is_filled("rank_pattern")) {
        return unsupported(
            "adapter_config.json: layers with different scales have no counterpart in GGUF; merge the adapter and export the model",
        );
    }
    let number = |key: &str| match config.get(key).and_then(Value::as_f64) {
        Some(number) if number > 0.0 => Ok(number),
        _ => unfit(format!("adapter_config.json: {key} is missing or not a positive number")),
    };
    let alpha = number("lora_alpha")?;
    // With rank stabilisation, the scale is alpha / sqrt(rank).
    Ok(if is_stabilised { alpha * number("r")?.sqrt() } else { alpha } as f32)
}
