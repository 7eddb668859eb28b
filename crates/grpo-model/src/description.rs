//! Transformer descriptions: plain data that each model family fills in from its configuration.

use grpo_kernels::Heads;

use crate::{ModelError, OwnBlock};

/// Sizes and options of a transformer.
///
/// A family fills in what it has and takes the rest from [`Description::default`], so an option that
/// is added for one family changes no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Context length in tokens.
    pub context: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads. Each is shared by `heads / kv_heads` query heads (Ainslie et al.
    /// 2023).
    pub kv_heads: usize,
    /// Width of each head.
    pub head_width: usize,
    /// Hidden width of the MLP.
    pub mlp_width: usize,
    /// Normalisation used throughout the model.
    pub norm: NormKind,
    /// Placement of the norms within a block, and of the model's own norm.
    pub order: NormOrder,
    /// Blocks that the family computes in its own way.
    pub block: Option<OwnBlock>,
    /// Position encoding.
    pub positions: Positions,
    /// Rotary positions of the layers with a window, if they differ from the others'.
    pub window_rotary: Option<RotaryConfig>,
    /// Token type table, if the model has one. Row 0 is used for conditions.
    pub token_type: Option<TokenType>,
    /// Conditions that the model can read before a sequence.
    pub conditions: Conditions,
    /// Activation function of the MLP.
    pub activation: Activation,
    /// Whether a single fused matrix computes queries, keys and values.
    pub joint_inputs: bool,
    /// Linear layers that have a bias.
    pub biases: Biases,
    /// How queries and keys are normalised before the rotation.
    pub query_key_norm: QueryKeyNorm,
    /// How the attention of single layers differs. Empty if it is the same in all layers.
    pub layer_attention: Vec<LayerAttention>,
    /// Constant factors.
    pub scales: Scales,
    /// Whether attention is causal.
    pub causal: bool,
    /// Output layer.
    pub head: HeadKind,
    /// Whether a second head predicts which tokens are wrong.
    pub critic: bool,
    /// Standard deviation of the initial weights.
    pub initial_deviation: f64,
    /// Standard deviation of the initial weights in layers that write to the residual stream.
    pub residual_deviation: f64,
}

impl Default for Description {
    /// A GPT-2 without sizes.
    fn default() -> Self {
        Self {
            vocabulary: 0,
            context: 0,
            width: 0,
            layers: 0,
            heads: 0,
            kv_heads: 0,
            head_width: 0,
            mlp_width: 0,
            norm: NormKind::Layer { epsilon: 1e-5 },
            order: NormOrder::Pre,
            block: None,
            positions: Positions::Learned,
            window_rotary: None,
            token_type: None,
            conditions: Conditions::default(),
            activation: Activation::Gelu,
            joint_inputs: false,
            biases: Biases::everywhere(true),
            query_key_norm: QueryKeyNorm::None,
            layer_attention: Vec::new(),
            scales: Scales::default(),
            causal: true,
            head: HeadKind::Tied,
            critic: false,
            initial_deviation: 0.02,
            residual_deviation: 0.02,
        }
    }
}

/// Normalisation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKeyNorm {
    /// They are not normalised.
    None,
    /// Each head is normalised by itself (Qwen3).
    EachHead,
    /// All heads are normalised together (OLMo 2).
    AllHeads,
}

/// Options of the attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerAttention {
    /// Whether queries and keys are rotated, if positions are rotary.
    pub rotated: bool,
    /// Number of tokens that a token sees, including itself, if it does not see all before it. At
    /// least 1.
    pub window: Option<usize>,
}

impl LayerAttention {
    /// Returns the options of a layer that rotates queries and keys or does not.
    pub fn with_rotation(rotated: bool) -> Self {
        Self { rotated, window: None }
    }

    /// Returns the options of a layer with this window, or with none.
    #[must_use]
    pub fn within(self, window: Option<usize>) -> Self {
        Self { window, ..self }
    }
}

impl Default for LayerAttention {
    fn default() -> Self {
        Self::with_rotation(true)
    }
}

/// Constant factors (Granite; maximal update parametrisation).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// Factor of the token embeddings.
    pub embedding: f64,
    /// Factor of the products of queries and keys. The default is `1 / √head_width`.
    pub attention: Option<f64>,
    /// Bound of the products of queries and keys, which a hyperbolic tangent approaches (Gemma 2).
    pub attention_cap: Option<f64>,
    /// Factor of what attention and the MLP add to the residual stream.
    pub residual: f64,
    /// Factor of the logits.
    pub logits: f64,
}

impl Default for Scales {
    fn default() -> Self {
        Self { embedding: 1.0, attention: None, attention_cap: None, residual: 1.0, logits: 1.0 }
    }
}

/// Normalisation used by a model family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormKind {
    /// Layer normalisation with a learned scale and shift.
    Layer {
        /// Constant added to the variance.
        epsilon: f64,
    },
    /// RMS normalisation with a learned scale.
    Rms {
        /// Constant added to the mean square.
        epsilon: f64,
    },
    /// RMS normalisation whose scale is 1 plus what is learned (Gemma).
    RmsAroundOne {
        /// Constant added to the mean square.
        epsilon: f64,
    },
}

/// Placement of the norms within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// Before attention and before the MLP, with a final norm after the last block.
    Pre,
    /// After each residual addition, with an initial norm after the embeddings (BERT).
    Post,
}

/// Position encoding.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// A learned vector for each position, added to the token embedding.
    Learned,
    /// Rotary position embeddings, applied to queries and keys (Su et al. 2021).
    Rotary(RotaryConfig),
}

/// Rotary embedding settings.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryConfig {
    /// Base θ of the rotation frequencies.
    pub base: f64,
    /// Frequency scaling that extends the context.
    pub scaling: RotaryScaling,
}

/// Frequency scaling that extends the context. The variants correspond to `rope_type` in
/// transformers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// No scaling.
    Default,
    /// Divides all frequencies by `factor` (Chen et al. 2023).
    Linear {
        /// Context extension factor.
        factor: f64,
    },
    /// Divides low frequencies by `factor`, keeps high frequencies, and interpolates in between
    /// (Llama 3.1).
    Llama3 {
        /// Context extension factor.
        factor: f64,
        /// Frequencies with wavelengths above `original_context / low_frequency_factor` are
        /// divided.
        low_frequency_factor: f64,
        /// Frequencies with wavelengths below `original_context / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// Context length before the extension.
        original_context: usize,
    },
    /// Interpolates like Llama 3.1 but with a different ramp, and also scales queries and keys
    /// (Peng et al. 2023, "YaRN").
    Yarn {
        /// Context extension factor.
        factor: f64,
        /// Frequencies that complete more than this many rotations over the original context are
        /// kept.
        beta_fast: f64,
        /// Frequencies that complete fewer than this many rotations are divided.
        beta_slow: f64,
        /// Context length before the extension.
        original_context: usize,
        /// Factor applied to the cosines and sines.
        attention_factor: f64,
        /// Whether the ends of the ramp are rounded to integers.
        truncate: bool,
    },
}

/// Conditions that a model can read before a sequence ([`grpo_data::Prefix`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Number of values. 0 if the model takes none.
    pub values: usize,
    /// Whether some of the values can be left open. The projection of the values then has a second
    /// input for each value, which is 1 if the value is given and 0 if not.
    pub partial: bool,
    /// How token ids are read.
    pub ids: ConditionIds,
}

/// How a model reads the token ids of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConditionIds {
    /// The model takes no ids.
    #[default]
    None,
    /// One vector per id: its token embedding.
    Tokens,
    /// One vector per LSTM layer: its final state.
    Lstm {
        /// Number of layers.
        layers: usize,
    },
}

/// Size and use of a token type table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenType {
    /// Number of rows.
    pub rows: usize,
    /// Row added to ordinary tokens.
    pub token: usize,
}

/// Activation function of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Exact GELU.
    Gelu,
    /// GELU with the tanh approximation.
    GeluTanh,
    /// `silu(gate(x)) · up(x)`, which needs a third weight matrix (Shazeer 2020).
    SwiGlu,
    /// The same with [`Self::GeluTanh`] instead of SiLU.
    GeGluTanh,
}

/// Linear layers of a block that have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// Query, key and value projections.
    pub attention_inputs: bool,
    /// Attention output projection.
    pub attention_output: bool,
    /// Linear layers of the MLP.
    pub mlp: bool,
}

impl Biases {
    /// Returns biases for all layers, or for none.
    pub fn everywhere(there: bool) -> Self {
        Self { attention_inputs: there, attention_output: there, mlp: there }
    }
}

/// Output layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// The transposed token embedding (weight tying).
    Tied,
    /// A separate matrix.
    Own,
    /// No output layer, as in an encoder.
    None,
    /// One score per sequence, computed from the hidden state of the first token. There are no
    /// logits.
    Score,
    /// A separate matrix with a bias and one output per class instead of one per token.
    Classes(usize),
}

impl Description {
    /// Returns the shape of the attention heads.
    pub fn head_shape(&self) -> Heads {
        Heads { heads: self.heads, kv_heads: self.kv_heads, width: self.head_width }
    }

    /// Returns the options of the attention of a layer.
    pub fn attention_of(&self, layer: usize) -> LayerAttention {
        self.layer_attention.get(layer).copied().unwrap_or_default()
    }

    /// Returns a lower bound on the number of parameters. Only the block matrices and the token
    /// embedding are counted.
    pub fn least_parameters(&self) -> f64 {
        let [width, heads, kv_heads, head_width, mlp_width] =
            [self.width, self.heads, self.kv_heads, self.head_width, self.mlp_width]
                .map(|size| size as f64);
        let attention = 2.0 * width * head_width * (heads + kv_heads);
        let block = attention + 2.0 * width * mlp_width;
        self.layers as f64 * block + self.vocabulary as f64 * width
    }

    /// Validates the sizes.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if a size is 0 or implausibly large, if the key/value heads do
    /// not divide the query heads, or if the head width of a rotary model is odd.
    pub fn checked(self) -> Result<Self, ModelError> {
        // These limits are far above any current model. Larger sizes would not fit into memory.
        let sizes = [
            ("the vocabulary", self.vocabulary, 1 << 22),
            ("the context", self.context, 1 << 24),
            ("the width", self.width, 1 << 16),
            ("the number of layers", self.layers, 1 << 10),
            ("the number of heads", self.heads, 1 << 12),
            ("the number of key-value heads", self.kv_heads, 1 << 12),
            ("the width of a head", self.head_width, 1 << 14),
            ("the width of the MLP", self.mlp_width, 1 << 20),
            ("the number of token types", self.token_type.map_or(1, |types| types.rows), 1 << 16),
        ];
        for (name, size, most) in sizes {
            if !(1..=most).contains(&size) {
                return Err(ModelError::Unfit(format!("{name} is {size}; expected 1 to {most}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ModelError::Unfit(format!(
                "{} heads cannot be divided evenly among {} key-value heads",
                self.heads, self.kv_heads
            )));
        }
        if ![0, self.layers].contains(&self.layer_attention.len()) {
            return Err(ModelError::Unfit(format!(
                "the attention of {} layers is described, but there are {}",
                self.layer_attention.len(),
                self.layers
            )));
        }
        if matches!(self.positions, Positions::Rotary(_)) && !self.head_width.is_multiple_of(2) {
            return Err(ModelError::Unfit(format!(
                "rotary positions require an even head width, found {}",
                self.head_width
            )));
        }
        if let Some(window) = self.layer_attention.iter().find_map(|layer| layer.window)
            && (window == 0 || !self.causal)
        {
            return Err(ModelError::Unfit(format!(
                "a window of {window} tokens is not possible; expected 1 or more, and causal attention"
            )));
        }
        self.check_scales()?;
        Ok(self)
    }

    /// Refuses factors that the described model would not apply.
    fn check_scales(&self) -> Result<(), ModelError> {
        let Scales { residual, logits, .. } = self.scales;
        if residual != 1.0 && self.block.is_some() {
            return Err(ModelError::Unfit(format!(
                "a residual factor of {residual} is not applied by a block of the family's own; multiply in BlockForm::forward"
            )));
        }
        let has_plain_head = matches!(self.head, HeadKind::Tied | HeadKind::Own);
        if logits != 1.0 && (self.critic || !has_plain_head) {
            return Err(ModelError::Unfit(format!(
                "a factor of {logits} for the logits is only supported by output layers of the vocabulary, without a critic, classes or scores"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tensor;

    use super::*;
    use crate::{BlockForm, BlockLayers, OwnLayers};

    #[derive(Debug)]
    struct AttentionOnly;

    impl BlockForm for AttentionOnly {
        fn layers(&self) -> OwnLayers {
            OwnLayers::default()
        }

        fn forward(&self, x: Tensor<2>, layers: &mut dyn BlockLayers) -> Tensor<2> {
            x.clone() + layers.attention(x)
        }
    }

    #[test]
    fn factors_without_effect_are_refused() {
        let sizes = || Description {
            vocabulary: 5,
            context: 4,
            width: 2,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_width: 2,
            mlp_width: 4,
            ..Description::default()
        };
        let scaled = |residual, logits| Scales { residual, logits, ..Scales::default() };
        let own = || Some(OwnBlock::new(AttentionOnly));
        for description in [
            Description { scales: scaled(0.5, 0.5), ..sizes() },
            Description { scales: scaled(1.0, 0.5), block: own(), ..sizes() },
            Description { head: HeadKind::Classes(2), critic: true, ..sizes() },
        ] {
            description.checked().unwrap();
        }
        let residual = Description { scales: scaled(0.5, 1.0), block: own(), ..sizes() };
        let error = residual.checked().unwrap_err().to_string();
        assert!(error.starts_with("a residual factor of 0.5 is not applied"), "{error}");
        for (head, critic) in [
            (HeadKind::Tied, true),
            (HeadKind::Classes(2), false),
            (HeadKind::Score, false),
            (HeadKind::None, false),
        ] {
            let of = Description { scales: scaled(1.0, 0.5), head, critic, ..sizes() };
            let error = of.checked().unwrap_err().to_string();
            assert!(error.starts_with("a factor of 0.5 for the logits"), "{error}");
        }
    }
}
