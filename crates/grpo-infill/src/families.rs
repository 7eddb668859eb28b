//! The infiller, the sequence scorer and the token classifier.
//!
//! An infiller is a bidirectional transformer that predicts the character at each masked position.
//! A sequence scorer uses the same architecture to assign a number to `[CLS] + text`, and a token
//! classifier to assign each token to a class.
//!
//! All use pre-norm blocks, half-split rotary positions, exact GELU, biases in all linear layers
//! and, for infillers, a tied output layer. The format of `config.json` is specific to this
//! project.

use grpo_data::Codecs;
use grpo_model::{
    Description, Families, FamilyKind, Fields, HeadKind, ModelConfig, ModelError, ModelFormats,
    Names, NormKind, Positions, RotaryConfig, RotaryScaling, VocabularyFile,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Characters;

/// The family `infiller`: a bidirectional character-level transformer that fills in blanks.
pub static INFILLER: FamilyKind = FamilyKind {
    not_causal: Some(
        "an infiller, which fills blanks and does not predict next tokens; use it with `grpo fill`, or train it with `grpo train` and a [passages] section",
    ),
    vocabulary: VOCABULARY,
    ..FamilyKind::new("infiller", NAMES, |fields| describe(&INFILLER, fields))
};

/// The family `sequence_scorer`: an infiller with a head that scores the entire text.
pub static SEQUENCE_SCORER: FamilyKind = FamilyKind {
    not_causal: Some(
        "an encoder (sequence_scorer), which does not predict next tokens; use a causal language model",
    ),
    vocabulary: VOCABULARY,
    ..FamilyKind::new("sequence_scorer", NAMES, |fields| describe(&SEQUENCE_SCORER, fields))
};

/// The family `token_classifier`: an infiller with a head that assigns each token to one of several
/// classes.
pub static TOKEN_CLASSIFIER: FamilyKind = FamilyKind {
    not_causal: Some(
        "an encoder (token_classifier), which does not predict next tokens; use a causal language model",
    ),
    vocabulary: VOCABULARY,
    ..FamilyKind::new("token_classifier", NAMES, |fields| describe(&TOKEN_CLASSIFIER, fields))
};

/// All families of this crate.
pub const FAMILIES: [&FamilyKind; 3] = [&INFILLER, &SEQUENCE_SCORER, &TOKEN_CLASSIFIER];

/// Returns what the model folders of this task can contain.
pub fn formats() -> ModelFormats {
    ModelFormats {
        families: Families::default().with(FAMILIES),
        codecs: Codecs::new(vec![Characters::CODEC]),
    }
}

const VOCABULARY: Option<VocabularyFile> = Some(VocabularyFile {
    name: Characters::CODEC.file,
    required: Some("create it from the training text, as `grpo pretrain` does"),
});

const NAMES: Names = Names {
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

    /// Returns the sizes in `config`, or `None` if it belongs to another architecture.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        let family = config.family();
        FAMILIES
            .contains(&family)
            .then(|| read(family, config.json()).expect("the configuration was parsed before"))
    }

    /// Returns the configuration of an infiller.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if a size is 0 or implausibly large, or if the width is not a
    /// multiple of the number of heads.
    pub fn infiller(&self) -> Result<ModelConfig, ModelError> {
        self.to_config(&INFILLER)
    }

    /// Returns the configuration of a sequence scorer, without a critic head.
    ///
    /// # Errors
    /// See [`Self::infiller`].
    pub fn sequence_scorer(&self) -> Result<ModelConfig, ModelError> {
        self.to_config(&SEQUENCE_SCORER)
    }

    /// Returns the configuration of a token classifier with [`Self::classes`] classes, without a critic
    /// head.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if the number of classes is missing or less than 2. See also
    /// [`Self::infiller`].
    pub fn token_classifier(&self) -> Result<ModelConfig, ModelError> {
        self.to_config(&TOKEN_CLASSIFIER)
    }

    fn to_config(&self, family: &'static FamilyKind) -> Result<ModelConfig, ModelError> {
        let Ok(Value::Object(mut json)) = serde_json::to_value(self) else {
            unreachable!("numbers are JSON")
        };
        if *family != INFILLER {
            json.remove("critic");
        }
        json.insert("model_type".to_owned(), family.name.into());
        ModelConfig::new(family, json).map_err(ModelError::Unfit)
    }
}

fn read(family: &FamilyKind, json: &Map<String, Value>) -> Result<InfillerConfig, String> {
    let mut json = json.clone();
    json.remove("model_type");
    for (key, owner) in [("critic", &INFILLER), ("classes", &TOKEN_CLASSIFIER)] {
        if family != owner && json.contains_key(key) {
            return Err(format!("{key} is not valid for {}; remove it", family.name));
        }
    }
    serde_json::from_value(Value::Object(json)).map_err(|error| grpo_data::json_reason(&error))
}

fn describe(family: &FamilyKind, fields: &Fields<'_>) -> Result<Description, String> {
    let config = read(family, fields.json())?;
    if config.vocab_size <= SPECIALS {
        return Err(format!(
            "vocab_size = {} is out of range; expected at least {} (one character, MASK, PAD and CLS)",
            config.vocab_size,
            SPECIALS + 1
        ));
    }
    if config.n_head == 0 || !config.n_embd.is_multiple_of(config.n_head) {
        return Err(format!(
            "n_embd = {} is not a multiple of n_head = {}",
            config.n_embd, config.n_head
        ));
    }
    if config.rope_theta <= 1.0 {
        return Err(format!(
            "rope_theta = {} is out of range; expected more than 1",
            config.rope_theta
        ));
    }
    for (name, size) in [("block_size", config.block_size), ("n_layer", config.n_layer)] {
        if size == 0 {
            return Err(format!("{name} = 0 is out of range; expected 1 or more"));
        }
    }
    let (is_scorer, is_classifier) = (*family == SEQUENCE_SCORER, *family == TOKEN_CLASSIFIER);
    let head = match config.classes {
        _ if is_scorer => HeadKind::Score,
        Some(classes @ 2..=1_000_000) if is_classifier => HeadKind::Classes(classes),
        found if is_classifier => {
            let found = found.map_or("missing".to_owned(), |classes| format!("{classes}"));
            return Err(format!("classes is {found}; expected 2 to 1000000"));
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
        positions: Positions::Rotary(RotaryConfig {
            base: config.rope_theta,
            scaling: RotaryScaling::Default,
        }),
        causal: false,
        head,
        critic: config.critic,
        initial_deviation: DEVIATION,
        // Keeps the residual stream of a new model at the scale of a single block (Radford et al.
        // 2019).
        residual_deviation: DEVIATION / ((2 * config.n_layer) as f64).sqrt(),
        ..Description::default()
    })
}
