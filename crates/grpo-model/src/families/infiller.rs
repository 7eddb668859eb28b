//! The infiller, the sequence scorer and the token classifier.
//!
//! An infiller is a bidirectional transformer that predicts the character at each masked position.
//! A sequence scorer uses the same architecture to assign a number to `[CLS] + text`, and a token
//! classifier to assign each token to a class.
//!
//! All use pre-norm blocks, half-split rotary positions, exact GELU, biases in all linear layers
//! and, for infillers, a tied output layer. The format of `config.json` is specific to this
//! project.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::family::Family;
use super::fields::Fault;
use crate::description::{
    Activation, Biases, Conditions, Description, HeadKind, NormKind, NormOrder, Positions,
    RotaryConfig, RotaryScaling,
};
use crate::names::Names;

pub(super) const NAMES: Names = Names {
    prefix: "",
    blocks: "blocks.",
    outside: &[
        ("token_embedding", "tok_emb"),
        ("norm", "ln_f"),
        ("critic", "critic"),
        ("head", "classifier"),
        ("score_head", "score_head"),
        ("score_head.direction", "score_head.direction"),
    ],
    inside: &[
        ("attention_norm", "ln1"),
        ("attention.inputs.0", "attn.query"),
        ("attention.inputs.1", "attn.key"),
        ("attention.inputs.2", "attn.value"),
        ("attention.output", "attn.proj"),
        ("mlp_norm", "ln2"),
        ("mlp.up", "mlp.up"),
        ("mlp.down", "mlp.down"),
    ],
    conv1d: false,
    ignored: |_| false,
};

/// Sizes of an infiller, sequence scorer or token classifier. `config.json` contains these keys and
/// `model_type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InfillerConfig {
    /// Vocabulary size: the characters, followed by MASK, PAD and CLS.
    pub vocab_size: usize,
    /// Maximum text length in characters. A scorer has one more position for CLS.
    pub block_size: usize,
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Number of attention heads. Must divide `n_embd`, and the width of each head must be even.
    pub n_head: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Base of the rotary frequencies.
    #[serde(default = "default_rope_theta")]
    pub rope_theta: f64,
    /// Whether an infiller has a second head that predicts which characters are wrong.
    #[serde(default)]
    pub critic: bool,
    /// Number of classes of a token classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
}

fn default_rope_theta() -> f64 {
    10_000.0
}

/// Number of special tokens. MASK, PAD and CLS are the last IDs, in this order.
const SPECIALS: usize = 3;

/// Default of PyTorch's `LayerNorm`.
const LAYER_NORM_EPSILON: f64 = 1e-5;
/// Standard deviation used by GPT-2.
const DEVIATION: f64 = 0.02;

impl InfillerConfig {
    /// Creates a configuration without a critic. The sizes are not validated.
    pub fn new(
        vocab_size: usize,
        block_size: usize,
        n_layer: usize,
        n_head: usize,
        n_embd: usize,
    ) -> Self {
        let rope_theta = default_rope_theta();
        Self {
            vocab_size,
            block_size,
            n_layer,
            n_head,
            n_embd,
            rope_theta,
            critic: false,
            classes: None,
        }
    }

    /// Returns the `config.json` for a model of this family.
    pub(crate) fn to_json(&self, family: Family) -> Map<String, Value> {
        let Ok(Value::Object(mut json)) = serde_json::to_value(self) else {
            unreachable!("numbers are JSON")
        };
        if family != Family::Infiller {
            json.remove("critic");
        }
        json.insert("model_type".to_owned(), family.name().into());
        json
    }
}

pub(crate) fn read(family: Family, json: &Map<String, Value>) -> Result<InfillerConfig, Fault> {
    let mut json = json.clone();
    json.remove("model_type");
    for (key, owner) in [("critic", Family::Infiller), ("classes", Family::TokenClassifier)] {
        if family != owner && json.contains_key(key) {
            return Err(Fault(format!("{key} is not valid for {}; remove it", family.name())));
        }
    }
    serde_json::from_value(Value::Object(json))
        .map_err(|error| Fault(grpo_data::json_reason(&error)))
}

pub(super) fn describe(family: Family, json: &Map<String, Value>) -> Result<Description, Fault> {
    let config = read(family, json)?;
    if config.vocab_size <= SPECIALS {
        return Err(Fault(format!(
            "vocab_size = {} is out of range; expected at least {} (one character, MASK, PAD and CLS)",
            config.vocab_size,
            SPECIALS + 1
        )));
    }
    if config.n_head == 0 || !config.n_embd.is_multiple_of(config.n_head) {
        return Err(Fault(format!(
            "n_embd = {} is not a multiple of n_head = {}",
            config.n_embd, config.n_head
        )));
    }
    if config.rope_theta <= 1.0 {
        return Err(Fault(format!(
            "rope_theta = {} is out of range; expected more than 1",
            config.rope_theta
        )));
    }
    for (name, size) in [("block_size", config.block_size), ("n_layer", config.n_layer)] {
        if size == 0 {
            return Err(Fault(format!("{name} = 0 is out of range; expected 1 or more")));
        }
    }
    let is_scorer = family == Family::SequenceScorer;
    let head = match (family, config.classes) {
        (Family::SequenceScorer, _) => HeadKind::Score,
        (Family::TokenClassifier, Some(classes @ 2..=1_000_000)) => HeadKind::Classes(classes),
        (Family::TokenClassifier, found) => {
            let found = found.map_or("missing".to_owned(), |classes| format!("{classes}"));
            return Err(Fault(format!("classes is {found}; expected 2 to 1000000")));
        }
        _ => HeadKind::Tied,
    };
    Ok(Description {
        vocabulary: config.vocab_size,
        context: config.block_size.saturating_add(usize::from(is_scorer)),
        width: config.n_embd,
        layers: config.n_layer,
        heads: config.n_head,
        kv_heads: config.n_head,
        head_width: config.n_embd / config.n_head,
        mlp_width: config.n_embd.saturating_mul(4),
        norm: NormKind::Layer { epsilon: LAYER_NORM_EPSILON },
        order: NormOrder::Pre,
        positions: Positions::Rotary(RotaryConfig {
            base: config.rope_theta,
            scaling: RotaryScaling::Default,
        }),
        token_type: None,
        conditions: Conditions::default(),
        activation: Activation::Gelu,
        joint_inputs: false,
        biases: Biases::everywhere(true),
        query_key_norm: false,
        causal: false,
        head,
        critic: config.critic,
        initial_deviation: DEVIATION,
        // Keeps the residual stream of a new model at the scale of a single block (Radford et al.
        // 2019).
        residual_deviation: DEVIATION / ((2 * config.n_layer) as f64).sqrt(),
    })
}
