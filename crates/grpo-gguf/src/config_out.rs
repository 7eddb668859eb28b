//! Metadata from `config.json`.

use serde_json::Value;

use crate::architecture::{Architecture, Heads};
use crate::error::{Result, unfit, unsupported};
use crate::metadata::Metadata;
use crate::rotary::Llama3;

/// What an export needs to know of a configuration.
pub(crate) struct Shape {
    pub(crate) architecture: Architecture,
    pub(crate) heads: Heads,
    pub(crate) vocabulary: usize,
    pub(crate) is_tied: bool,
    /// The values of `rope_freqs.weight`, if positions are scaled as in Llama 3.
    pub(crate) rotary_factors: Option<Vec<f32>>,
}

fn size(config: &Value, name: &str) -> Result<Option<usize>> {
    match config.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|size| (1..=1 << 31).contains(size)) {
            Some(size) => Ok(Some(size as usize)),
            None => unfit(format!("config.json: {name} is {value}; expected a size from 1")),
        },
    }
}

fn needed(config: &Value, name: &str) -> Result<usize> {
    match size(config, name)? {
        Some(size) => Ok(size),
        None => unfit(format!("config.json: {name} is missing")),
    }
}

fn number(config: &Value, name: &str) -> Result<Option<f64>> {
    match config.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) => Ok(Some(number)),
            None => unfit(format!("config.json: {name} is {value}; expected a number")),
        },
    }
}

/// Returns the architecture of a configuration.
pub(crate) fn architecture(config: &Value) -> Result<Architecture> {
    let name = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    Architecture::from_name(name, "model_type of config.json")
}

/// Returns the heads of a configuration.
pub(crate) fn heads(config: &Value) -> Result<Heads> {
    let queries = needed(config, "num_attention_heads")?;
    Ok(Heads { queries, keys: size(config, "num_key_value_heads")?.unwrap_or(queries) })
}

/// Adds the keys of an architecture to `metadata`.
pub(crate) fn describe(config: &Value, metadata: &mut Metadata) -> Result<Shape> {
    let architecture = architecture(config)?;
    let heads = heads(config)?;
    let width = needed(config, "hidden_size")?;
    let head_width = match size(config, "head_dim")? {
        Some(head_width) => head_width,
        None if architecture == Architecture::Qwen3 => 128,
        None => width / heads.queries,
    };
    let vocabulary = needed(config, "vocab_size")?;
    let prefix = architecture.name();
    let mut set = |name: &str, size: usize| metadata.set(format!("{prefix}.{name}"), size as u32);
    set("block_count", needed(config, "num_hidden_layers")?);
    set("context_length", needed(config, "max_position_embeddings")?);
    set("embedding_length", width);
    set("feed_forward_length", needed(config, "intermediate_size")?);
    set("attention.head_count", heads.queries);
    set("attention.head_count_kv", heads.keys);
    set("attention.key_length", head_width);
    set("attention.value_length", head_width);
    set("rope.dimension_count", head_width);
    set("vocab_size", vocabulary);
    let epsilon = number(config, "rms_norm_eps")?.unwrap_or(1e-6);
    metadata.set(format!("{prefix}.attention.layer_norm_rms_epsilon"), epsilon as f32);
    let rotary_factors = rotary(config, prefix, head_width, metadata)?;
    let is_tied = config.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false);
    Ok(Shape { architecture, heads, vocabulary, is_tied, rotary_factors })
}

/// Adds the keys of rotary positions. Returns the frequency factors of Llama 3.
fn rotary(
    config: &Value,
    prefix: &str,
    head_width: usize,
    metadata: &mut Metadata,
) -> Result<Option<Vec<f32>>> {
    let object = |name: &str| config.get(name).filter(|value| value.is_object());
    let filled =
        object("rope_scaling").filter(|value| value.as_object().is_some_and(|map| !map.is_empty()));
    let scaling = filled.or_else(|| object("rope_parameters")).unwrap_or(&Value::Null);
    let base = match number(scaling, "rope_theta")? {
        Some(base) => base,
        None => number(config, "rope_theta")?.unwrap_or(10_000.0),
    };
    metadata.set(format!("{prefix}.rope.freq_base"), base as f32);
    let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str);
    let needed = |name: &str| match number(scaling, name)? {
        Some(value) => Ok(value),
        None => unfit(format!("config.json: {name} is missing from the scaling of positions")),
    };
    // As in transformers 5, this key takes precedence outside of the scaling.
    let mut original = None;
    for place in [config, scaling] {
        original = original.or(size(place, "original_max_position_embeddings")?);
    }
    let original = original.or(size(config, "max_position_embeddings")?).unwrap_or_default();
    let mut set = |name: &str, value: f64| {
        metadata.set(format!("{prefix}.rope.scaling.{name}"), value as f32);
    };
    match kind.unwrap_or("default") {
        "default" => Ok(None),
        "llama3" => {
            let llama3 = Llama3 {
                factor: needed("factor")?,
                low: needed("low_freq_factor")?,
                high: needed("high_freq_factor")?,
                original_context: original as f64,
            };
            Ok(Some(llama3.factors(base, head_width)))
        }
        "linear" => {
            set("factor", needed("factor")?);
            metadata.set(format!("{prefix}.rope.scaling.type"), "linear");
            Ok(None)
        }
        "yarn" => {
            for other in ["attention_factor", "mscale", "mscale_all_dim"] {
                if number(scaling, other)?.is_some() {
                    return unsupported(format!("config.json: {other} has no counterpart in GGUF"));
                }
            }
            if scaling.get("truncate") == Some(&Value::Bool(false)) {
                return unsupported("config.json: truncate = false has no counterpart in GGUF");
            }
            set("factor", needed("factor")?);
            for (name, key) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
                if let Some(value) = number(scaling, name)? {
                    set(key, value);
                }
            }
            let key = format!("{prefix}.rope.scaling.original_context_length");
            metadata.set(key, original as u32);
            metadata.set(format!("{prefix}.rope.scaling.type"), "yarn");
            Ok(None)
        }
        other => {
            unsupported(format!("config.json: rope_type `{other}` has no counterpart in GGUF"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalings_that_gguf_does_not_have_are_refused() {
        let yarn =
            json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16});
        let mut config = json!({
            "model_type": "llama", "vocab_size": 12, "hidden_size": 8, "intermediate_size": 8,
            "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64, "rope_scaling": yarn,
        });
        let original = |config: &Value| {
            let mut metadata = Metadata::default();
            describe(config, &mut metadata).unwrap();
            metadata.size("llama.rope.scaling.original_context_length").unwrap()
        };
        assert_eq!(original(&config), Some(16));
        // As in transformers 5, this key takes precedence outside of the scaling.
        config["original_max_position_embeddings"] = 32.into();
        assert_eq!(original(&config), Some(32));
        config["rope_scaling"]["truncate"] = false.into();
        let error = describe(&config, &mut Metadata::default()).err().unwrap();
        assert_eq!(error.to_string(), "config.json: truncate = false has no counterpart in GGUF");
    }
}
