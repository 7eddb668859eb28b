//! A file as a Hugging Face model.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use serde_json::{Value, json};

use crate::architecture::{Architecture, Heads, to_hugging_face};
use crate::config_in::{self, Facts};
use crate::error::{Result, damaged, unsupported};
use crate::gguf::Gguf;
use crate::metadata::Metadata;
use crate::tokenizer_in::{self, TokenizerFiles};

/// The frequency factors of Llama 3.
const ROTARY_FACTORS: &str = "rope_freqs.weight";

/// A language model in a GGUF file, with the names, shapes and values that transformers has.
#[derive(Debug)]
pub struct GgufModel<R> {
    gguf: Gguf<R>,
    architecture: Architecture,
    heads: Heads,
    config: Value,
    /// Name in the file by transformers' name.
    names: BTreeMap<String, String>,
}

impl<R: Read + Seek> GgufModel<R> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// Returns an error if [`Gguf::open`] fails, or if the file is not a model of a supported architecture:
    /// llama, qwen2 or qwen3.
    pub fn open(reader: R) -> Result<Self> {
        let mut gguf = Gguf::open(reader)?;
        let metadata = gguf.metadata();
        if let Some(kind) = metadata.text("general.type")?.filter(|kind| *kind != "model") {
            return unsupported(format!(
                "it is of type `{}`, not a model; use the model that belongs to it",
                kind.escape_debug()
            ));
        }
        if let Some(parts) = metadata.size("split.count")?.filter(|parts| *parts > 1) {
            return unsupported(format!(
                "it is one of {parts} files of a model; join them with `llama-gguf-split --merge`"
            ));
        }
        let Some(name) = metadata.text("general.architecture")? else {
            return damaged("the metadata key `general.architecture` is missing");
        };
        let architecture = Architecture::from_name(name, "its architecture")?;
        let mut names = BTreeMap::new();
        for tensor in gguf.tensors() {
            match to_hugging_face(&tensor.name) {
                Some(name) => {
                    names.insert(name, tensor.name.clone());
                }
                None if tensor.name == ROTARY_FACTORS => {}
                None => {
                    return unsupported(format!(
                        "tensor `{}` is not part of a model of architecture {name}",
                        tensor.name
                    ));
                }
            }
        }
        let Some(embedding) = gguf.tensor("token_embd.weight") else {
            return damaged("tensor `token_embd.weight` is missing");
        };
        let vocabulary = embedding.shape[0];
        let rotary_factors = match gguf.tensor(ROTARY_FACTORS) {
            Some(_) => Some(gguf.read(ROTARY_FACTORS)?),
            None => None,
        };
        let facts = Facts {
            vocabulary,
            has_head: gguf.tensor("output.weight").is_some(),
            has_attention_bias: gguf.tensor("blk.0.attn_q.bias").is_some(),
            has_mlp_bias: gguf.tensor("blk.0.ffn_up.bias").is_some(),
            rotary_factors: rotary_factors.as_deref(),
        };
        let config = Value::Object(config_in::config(gguf.metadata(), architecture, &facts)?);
        let heads = config_in::heads(gguf.metadata(), architecture)?;
        Ok(Self { gguf, architecture, heads, config, names })
    }

    /// Returns the metadata.
    pub fn metadata(&self) -> &Metadata {
        self.gguf.metadata()
    }

    /// Returns the content of `config.json`.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// Returns the names and contents of the files that a folder of this model has, except the
    /// weights.
    ///
    /// # Errors
    /// Returns an error if the tokenizer is damaged or not supported.
    pub fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let metadata = self.gguf.metadata();
        let TokenizerFiles { tokenizer, config } = tokenizer_in::tokenizer(metadata)?;
        let mut files = vec![
            ("config.json", pretty(&self.config)),
            ("tokenizer.json", pretty(&tokenizer)),
            ("tokenizer_config.json", pretty(&config)),
            ("generation_config.json", pretty(&generation(metadata)?)),
        ];
        if let Some(template) = metadata.text("tokenizer.chat_template")? {
            files.push(("chat_template.jinja", template.to_owned()));
        }
        Ok(files)
    }

    /// Returns the names of all tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Returns the shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.gguf.tensor(self.names.get(name)?)?.shape)
    }

    /// Reads the shape and the values of a tensor.
    ///
    /// # Errors
    /// Returns an error if there is no such tensor, or if [`Gguf::read`] fails.
    pub fn read(&mut self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let Some(stored) = self.names.get(name) else {
            return damaged(format!("tensor `{name}` is missing"));
        };
        let values = self.gguf.read(stored)?;
        let shape = self.gguf.tensor(stored).map(|tensor| tensor.shape.clone()).unwrap_or_default();
        let order = self.architecture.order(stored, self.heads);
        let values = order.to_hugging_face(stored, shape[0], values)?;
        Ok((shape, values))
    }
}

/// Returns the content of `generation_config.json`: all tokens that end a reply.
fn generation(metadata: &Metadata) -> Result<Value> {
    let mut config = json!({});
    for (name, id) in config_in::special_ids(metadata)? {
        config[name] = id.into();
    }
    let mut ends: Vec<u64> = Vec::new();
    for key in ["eos", "eot", "eom"] {
        let id = metadata.size(&format!("tokenizer.ggml.{key}_token_id"))?;
        ends.extend(id.filter(|id| !ends.contains(id)));
    }
    if ends.len() > 1 {
        config["eos_token_id"] = ends.into();
    }
    Ok(config)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
