#![doc = include_str!("../README.md")]
//!
//! All models are instances of [`Transformer`]. A [`FamilyKind`] maps a `config.json` to a
//! [`Description`] and provides the tensor [`Names`]; [`Families`] is their registry. Training updates a [`Policy`], which is
//! either the model itself or an [`Adapter`] on top of it. [`LanguageModel`] is the interface used
//! by sampling and training.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod attention;
mod block;
mod by_path;
mod cache;
mod checkpoint;
mod checkpoint_layout;
mod checkpointing;
mod conditioning;
mod config;
mod description;
mod digest;
mod dora;
mod dropout;
mod encoder;
mod error;
mod families;
mod folder;
mod gguf_file;
mod language_model;
mod layers;
mod lora;
mod mixed;
mod names;
mod new_adapter;
mod own_block;
mod parameters;
mod pass;
mod peft;
mod perceptron;
mod policy;
mod policy_model;
mod precision;
mod quantised;
mod residual;
mod rollout_activations;
mod rotary;
mod safetensors_file;
mod saved;
mod score_head;
mod scoring;
mod stored;
mod stored_values;
mod tokens;
mod torch_file;
mod transformer;

pub use by_path::{Parameter, parameters, read_tensors};
pub use cache::{CacheSlot, KvCache};
pub use checkpoint::{ConvertedWeights, INDEX_FILE, WEIGHTS_FILE, weights_file};
pub use config::ModelConfig;
pub use description::{
    Activation, Biases, ConditionIds, Conditions, Description, HeadKind, LayerAttention, NormKind,
    NormOrder, Positions, QueryKeyNorm, RotaryConfig, RotaryScaling, Scales, TokenType,
};
pub use digest::{WeightsDigest, largest_weight, weights_digest};
pub use dropout::Dropout;
pub use encoder::SentenceEncoder;
pub use error::ModelError;
pub use families::{BERT, Families, FamilyKind, Fields, ModelFormats, VocabularyFile};
pub use folder::{ModelFolder, ModelSpec};
pub use gguf_file::{chat_template, gguf_parameters, is_gguf_file};
pub use language_model::{
    Forward, Frozen, LanguageModel, ModelSetting, Prepared, sampling_copies_weights,
};
pub use lora::{Adapter, LoraConfig};
pub use names::Names;
pub use own_block::{BlockForm, BlockLayers, LinearLayer, OwnBlock, OwnLayers};
pub use peft::{AdapterConfig, AdapterFolder, LoraMatrices, write_adapter};
pub use perceptron::Perceptron;
pub use policy::{Adapted, Policy};
pub use precision::{ProductPrecision, WeightPrecision};
pub use rollout_activations::{KnownActivations, Recorder, RolloutActivations};
pub use scoring::{CompletionScores, all_logprobs, score_completions};
pub use stored::{StoredAs, StoredTensors, linear_weights};
pub use stored_values::Stored;
pub use tokens::TokenBatch;
pub use torch_file::TorchFile;
pub use transformer::Transformer;
