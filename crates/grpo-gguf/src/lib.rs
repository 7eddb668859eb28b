#![doc = include_str!("../README.md")]
//! # Parts
//!
//! - [`Gguf`] is a file: metadata, and tensors that are dequantised to f32 one at a time. Every
//!   length, count and offset is checked, so that a hostile file is an error.
//! - [`GgufModel`] is a file as a Hugging Face model: names and shapes of its tensors as
//!   transformers has them, and the contents of `config.json`, `tokenizer.json`,
//!   `tokenizer_config.json`, `generation_config.json` and the chat template.
//! - [`GgufWriter`] writes metadata and tensors; [`export_model`] and [`export_adapter`] prepare both from
//!   a Hugging Face model or a LoRA adapter, and [`Modelfile`] is the recipe that Ollama needs.
//!
//! Files are read from any [`std::io::Read`] with [`std::io::Seek`] and written to any
//! [`std::io::Write`]. [`is_gguf`] recognises a file by its first bytes, because the blobs of Ollama
//! have no file extension.

mod architecture;
mod config_in;
mod config_out;
mod dequantize;
mod error;
mod export;
mod gguf;
mod k_quants;
mod metadata;
mod model;
mod modelfile;
mod pre_tokenizer;
mod quantize;
mod rotary;
mod sentence_piece;
mod source;
mod tensor_type;
mod tokenizer_in;
mod tokenizer_out;
mod writer;

pub use error::GgufError;
pub use export::{
    Adapter, Exported, ExportedTensor, HuggingFaceModel, SpecialTokens, export_adapter,
    export_model,
};
pub use gguf::{Gguf, TensorInfo, is_gguf};
pub use metadata::{Metadata, MetadataValue, ValueType};
pub use model::GgufModel;
pub use modelfile::Modelfile;
pub use quantize::{StoredType, quantized};
pub use tensor_type::TensorType;
pub use writer::{GgufWriter, TensorPlan};
