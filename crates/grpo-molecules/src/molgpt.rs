//! MolGPT (Bagal et al. 2022, "MolGPT: Molecular Generation Using a Transformer-Decoder Model").
//!
//! MolGPT is a pre-norm causal transformer with learned positions, exact GELU, and an untied output
//! layer. All linear layers except the output layer have biases. A type embedding distinguishes
//! tokens (1) from conditions (0).
//!
//! Tensor names and layouts follow the published PyTorch code. The format of `config.json` is
//! specific to this project.

use grpo_model::{
    ConditionIds, Conditions, Description, FamilyKind, Fields, HeadKind, ModelConfig, ModelError,
    Names, NormKind, TokenType, VocabularyFile,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::vocabulary::VOCABULARY_FILE;

/// The family `molgpt`.
pub static MOLGPT: FamilyKind = FamilyKind {
    vocabulary: Some(VocabularyFile { name: VOCABULARY_FILE, required: None }),
    ..FamilyKind::new("molgpt", NAMES, describe)
};

const NAMES: Names = Names {
    prefix: "",
    blocks: "blocks.",
    outside: &[
        ("token_embedding", "tok_emb"),
        ("type_embedding", "type_emb"),
        ("position_embedding", "pos_emb!"),
        ("norm", "ln_f"),
        ("head", "head"),
        ("prefix.projection", "prop_nn"),
    ],
    inside: &[
        ("attention_norm", "ln1"),
        ("attention.inputs.0", "attn.query"),
        ("attention.inputs.1", "attn.key"),
        ("attention.inputs.2", "attn.value"),
        ("attention.output", "attn.proj"),
        ("mlp_norm", "ln2"),
        // Indices into a PyTorch `Sequential`.
        ("mlp.up", "mlp.0"),
        ("mlp.down", "mlp.2"),
    ],
    conv1d: false,
    // The published code stores causal masks along with the weights.
    ignored: |name| name.ends_with(".attn.mask"),
};

/// MolGPT sizes, as stored in its `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MolGptConfig {
    /// Always `"molgpt"`.
    architecture: Architecture,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Context length in tokens.
    pub block_size: usize,
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Number of attention heads. Must divide `n_embd`.
    pub n_head: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Number of properties that the model accepts as conditions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub num_props: usize,
    /// Whether some of the properties can be left open, unlike in the published code. See
    /// [`Conditions::partial`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub partial_props: bool,
    /// Whether the model accepts a scaffold as a condition.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scaffold: bool,
    /// Scaffold length in tokens. Longer scaffolds are truncated and shorter ones padded. If 0,
    /// scaffolds are neither truncated nor padded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scaffold_maxlen: usize,
    /// Whether an LSTM summarises the scaffold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lstm: bool,
    /// Number of LSTM layers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lstm_layers: usize,
    /// Description of the conditions. Only the task that created the model reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Architecture {
    MolGpt,
}

/// Default of PyTorch's `LayerNorm`.
const LAYER_NORM_EPSILON: f64 = 1e-5;

impl MolGptConfig {
    /// Creates a configuration without validating it.
    pub fn new(
        vocab_size: usize,
        block_size: usize,
        n_layer: usize,
        n_head: usize,
        n_embd: usize,
    ) -> Self {
        Self {
            architecture: Architecture::MolGpt,
            vocab_size,
            block_size,
            n_layer,
            n_head,
            n_embd,
            num_props: 0,
            partial_props: false,
            scaffold: false,
            scaffold_maxlen: 0,
            lstm: false,
            lstm_layers: 0,
            conditions: None,
        }
    }

    /// Returns the configuration of a model of this family.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if a size is 0 or implausibly large, or if the width is not a
    /// multiple of the number of heads.
    pub fn to_config(&self) -> Result<ModelConfig, ModelError> {
        let Ok(Value::Object(json)) = serde_json::to_value(self) else {
            unreachable!("numbers are JSON")
        };
        ModelConfig::new(&MOLGPT, json).map_err(ModelError::Unfit)
    }
}

fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    let config: MolGptConfig = serde_json::from_value(Value::Object(fields.json().clone()))
        .map_err(|error| grpo_data::json_reason(&error))?;
    let sizes = [
        ("vocab_size", config.vocab_size),
        ("block_size", config.block_size),
        ("n_layer", config.n_layer),
        ("n_head", config.n_head),
        ("n_embd", config.n_embd),
    ];
    if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return Err(format!("{name} = 0 is out of range; expected 1 or more"));
    }
    // These limits are far above any model of this family. Larger sizes are most likely typos, and
    // would not fit into memory.
    let most = [1 << 20, 1 << 20, 1 << 10, 1 << 16, 1 << 16];
    if let Some(((name, size), most)) = sizes.iter().zip(most).find(|((_, size), most)| size > most)
    {
        return Err(format!("{name} = {size} is out of range; expected at most {most}"));
    }
    if !config.n_embd.is_multiple_of(config.n_head) {
        return Err(format!(
            "n_embd = {} is not a multiple of n_head = {}",
            config.n_embd, config.n_head
        ));
    }
    let conditions = conditions(&config)?;
    Ok(Description {
        vocabulary: config.vocab_size,
        context: config.block_size,
        width: config.n_embd,
        layers: config.n_layer,
        heads: config.n_head,
        kv_heads: config.n_head,
        head_width: config.n_embd / config.n_head,
        mlp_width: 4 * config.n_embd,
        norm: NormKind::Layer { epsilon: LAYER_NORM_EPSILON },
        token_type: Some(TokenType { rows: 2, token: 1 }),
        conditions,
        head: HeadKind::Own,
        // Activation and initialisation are those of GPT-2.
        ..Description::default()
    })
}

fn conditions(config: &MolGptConfig) -> Result<Conditions, String> {
    let &MolGptConfig { num_props, partial_props, scaffold, lstm, lstm_layers, .. } = config;
    let most =
        [("num_props", num_props, 1 << 10), ("scaffold_maxlen", config.scaffold_maxlen, 1 << 20)];
    if let Some((name, size, most)) = most.iter().find(|(_, size, most)| size > most) {
        return Err(format!("{name} = {size} is out of range; expected at most {most}"));
    }
    if lstm && !(1..=16).contains(&lstm_layers) {
        return Err(format!("lstm_layers = {lstm_layers} is out of range; expected 1 to 16"));
    }
    if lstm && !scaffold {
        return Err("lstm requires scaffold = true".to_owned());
    }
    let ids = match (scaffold, lstm) {
        (false, _) => ConditionIds::None,
        (true, false) => ConditionIds::Tokens,
        (true, true) => ConditionIds::Lstm { layers: lstm_layers },
    };
    Ok(Conditions { values: num_props, partial: partial_props, ids })
}
