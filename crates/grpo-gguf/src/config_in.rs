//! `config.json` from metadata.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, Heads};
use crate::error::{Result, damaged, unsupported};
use crate::metadata::Metadata;
use crate::rotary::Llama3;

/// What else a file says about a model.
pub(crate) struct Facts<'a> {
    /// Number of rows of the token embedding.
    pub(crate) vocabulary: usize,
    /// Whether there is an output layer.
    pub(crate) has_head: bool,
    /// Whether queries, keys and values have biases.
    pub(crate) has_attention_bias: bool,
    /// Whether linear layers of the MLP have biases.
    pub(crate) has_mlp_bias: bool,
    /// The values of `rope_freqs.weight`.
    pub(crate) rotary_factors: Option<&'a [f32]>,
}

/// Metadata of an architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: Architecture,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name())
    }

    fn optional_size(&self, name: &str) -> Result<Option<usize>> {
        match self.metadata.size(&self.key(name))? {
            // Larger values would overflow products of two sizes.
            Some(size) if size > 1 << 31 => damaged(format!(
                "the metadata key `{}` is {size}, which is too large",
                self.key(name)
            )),
            size => Ok(size.map(|size| size as usize)),
        }
    }

    fn size(&self, name: &str) -> Result<usize> {
        match self.optional_size(name)? {
            Some(size) if size > 0 => Ok(size),
            Some(_) => damaged(format!("the metadata key `{}` is 0", self.key(name))),
            None => damaged(format!("the metadata key `{}` is missing", self.key(name))),
        }
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        self.metadata.number(&self.key(name))
    }
}

/// Returns the number of heads. Layers with different numbers are not supported.
pub(crate) fn heads(metadata: &Metadata, architecture: Architecture) -> Result<Heads> {
    let keys = Keys { metadata, architecture };
    let queries = keys.size("attention.head_count")?;
    let keys = keys.optional_size("attention.head_count_kv")?.unwrap_or(queries);
    Ok(Heads { queries, keys })
}

/// Returns the content of `config.json`.
pub(crate) fn config(
    metadata: &Metadata,
    architecture: Architecture,
    facts: &Facts<'_>,
) -> Result<Map<String, Value>> {
    let keys = Keys { metadata, architecture };
    if keys.optional_size("expert_count")?.unwrap_or(0) > 0 {
        return unsupported("it is a mixture of experts, which is not supported");
    }
    let heads = heads(metadata, architecture)?;
    let width = keys.size("embedding_length")?;
    let head_width = match keys.optional_size("attention.key_length")? {
        Some(head_width) if head_width > 0 => head_width,
        _ if width.is_multiple_of(heads.queries) => width / heads.queries,
        _ => {
            let heads = heads.queries;
            return damaged(format!("a width of {width} is not a multiple of {heads} heads"));
        }
    };
    for other in ["attention.value_length", "rope.dimension_count"] {
        if let Some(found) = keys.optional_size(other)?.filter(|found| *found != head_width) {
            return unsupported(format!(
                "the metadata key `{}` is {found}, but heads have {head_width} values; different widths are not supported",
                keys.key(other)
            ));
        }
    }
    let Some(epsilon) = keys.number("attention.layer_norm_rms_epsilon")? else {
        let key = keys.key("attention.layer_norm_rms_epsilon");
        return damaged(format!("the metadata key `{key}` is missing"));
    };
    let base = keys.number("rope.freq_base")?.unwrap_or(10_000.0);
    let Value::Object(mut config) = json!({
        "architectures": [architecture.class()],
        "model_type": architecture.name(),
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": keys.size("feed_forward_length")?,
        "num_hidden_layers": keys.size("block_count")?,
        "num_attention_heads": heads.queries,
        "num_key_value_heads": heads.keys,
        "head_dim": head_width,
        "max_position_embeddings": keys.size("context_length")?,
        "rms_norm_eps": epsilon,
        "rope_theta": base,
        "tie_word_embeddings": !facts.has_head,
        "vocab_size": facts.vocabulary,
    }) else {
        unreachable!("the literal is an object")
    };
    if architecture != Architecture::Qwen2 {
        config.insert("attention_bias".to_owned(), facts.has_attention_bias.into());
    }
    if architecture == Architecture::Llama {
        config.insert("mlp_bias".to_owned(), facts.has_mlp_bias.into());
    }
    if let Some(scaling) = scaling(&keys, facts, base, head_width)? {
        config.insert("rope_scaling".to_owned(), scaling);
    }
    for (name, id) in special_ids(metadata)? {
        config.insert(name.to_owned(), id.into());
    }
    Ok(config)
}

/// Returns the ids of special tokens under their names in `config.json`.
pub(crate) fn special_ids(metadata: &Metadata) -> Result<Vec<(&'static str, u64)>> {
    let names = [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")];
    let mut found = Vec::new();
    for (name, token) in names {
        if let Some(id) = metadata.size(&format!("tokenizer.ggml.{token}_token_id"))? {
            found.push((name, id));
        }
    }
    Ok(found)
}

/// Returns how rotary positions are scaled.
fn scaling(
    keys: &Keys<'_>,
    facts: &Facts<'_>,
    base: f64,
    head_width: usize,
) -> Result<Option<Value>> {
    let kind = keys.metadata.text(&keys.key("rope.scaling.type"))?;
    // Old files have only the factor.
    let factor = match keys.number("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.number("rope.scale_linear")?,
    };
    let factor = factor.filter(|factor| *factor != 0.0 && *factor != 1.0);
    let by_factors = match facts.rotary_factors {
        Some(factors) => Llama3::from_factors(factors, base, head_width)?,
        None => None,
    };
    match (kind.unwrap_or("linear"), factor, by_factors) {
        (_, None, Some(llama3)) => Ok(Some(json!({
            "rope_type": "llama3",
            "factor": llama3.factor,
            "low_freq_factor": llama3.low,
            "high_freq_factor": llama3.high,
            "original_max_position_embeddings": llama3.original_context as u64,
        }))),
        ("none" | "linear" | "yarn", None, None) => Ok(None),
        ("none", Some(_), None) => Ok(None),
        ("linear", Some(factor), None) => {
            Ok(Some(json!({ "rope_type": "linear", "factor": factor })))
        }
        ("yarn", Some(factor), None) => yarn(keys, factor).map(Some),
        (kind, _, _) => unsupported(format!(
            "the metadata key `{}` is `{}`, which is not supported here; supported are linear and yarn, and the frequency factors of Llama 3",
            keys.key("rope.scaling.type"),
            kind.escape_debug()
        )),
    }
}

fn yarn(keys: &Keys<'_>, factor: f64) -> Result<Value> {
    let mut scaling = json!({ "rope_type": "yarn", "factor": factor });
    if let Some(original) = keys.optional_size("rope.scaling.original_context_length")? {
        scaling["original_max_position_embeddings"] = original.into();
    }
    for (name, key) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
        if let Some(value) = keys.number(&format!("rope.scaling.{key}"))? {
            scaling[name] = value.into();
        }
    }
    for key in ["attn_factor", "yarn_log_multiplier"] {
        if keys.number(&format!("rope.scaling.{key}"))?.is_some_and(|value| value != 1.0) {
            let key = keys.key(&format!("rope.scaling.{key}"));
            return unsupported(format!("the metadata key `{key}` is not supported"));
        }
    }
    Ok(scaling)
}
