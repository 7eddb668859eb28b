//! The description of a transformer as plain data, which each family fills in.

use grpo_kernels::Heads;

use crate::ModelError;

/// Sizes and options of a transformer.
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
    /// Number of key/value heads; each serves `heads / kv_heads` query heads (Ainslie et al. 2023).
    pub kv_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Hidden width of the MLP.
    pub mlp_width: usize,
    /// Kind of norm.
    pub norm: NormKind,
    /// Position of norms in a block.
    pub order: NormOrder,
    /// Position encoding.
    pub positions: Positions,
    /// Table of token types, if any; row 0 is for conditions.
    pub token_type: Option<TokenType>,
    /// Activation of the MLP.
    pub activation: Activation,
    /// Whether queries, keys and values come from one matrix.
    pub joint_inputs: bool,
    /// Which linear layers have a bias.
    pub biases: Biases,
    /// Whether queries and keys of each head are normed before the rotation (Qwen3).
    pub query_key_norm: bool,
    /// Whether attention is causal.
    pub causal: bool,
    /// Output layer.
    pub head: HeadKind,
    /// Whether a second head predicts which tokens are wrong.
    pub critic: bool,
    /// Standard deviation of initial weights.
    pub initial_deviation: f64,
    /// The same for layers that add to the residual stream.
    pub residual_deviation: f64,
}

/// The norm of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormKind {
    /// Layer norm with scale and shift.
    Layer {
        /// Added to the variance.
        epsilon: f64,
    },
    /// RMS norm with a scale.
    Rms {
        /// Added to the mean square.
        epsilon: f64,
    },
}

/// Position of norms in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// Before attention and MLP, and after the last block.
    Pre,
    /// After each residual sum, and once after the embeddings (BERT).
    Post,
}

/// Position encoding.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// A learned vector per position, added to the token embedding.
    Learned,
    /// Rotary embeddings of queries and keys (Su et al. 2021).
    Rotary(RotaryConfig),
}

/// Settings of rotary embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryConfig {
    /// Base of the frequencies (θ).
    pub base: f64,
    /// Scaling for longer contexts.
    pub scaling: RotaryScaling,
}

/// Scaling of rotary frequencies for longer contexts, named as `rope_type` in transformers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// No scaling.
    Default,
    /// Divides all frequencies by `factor` (Chen et al. 2023).
    Linear {
        /// Factor of the context.
        factor: f64,
    },
    /// Divides low frequencies by `factor`, keeps high ones, and interpolates between (Llama 3.1).
    Llama3 {
        /// Factor of the context.
        factor: f64,
        /// Wavelengths above `original_context / low_frequency_factor` are divided.
        low_frequency_factor: f64,
        /// Wavelengths below `original_context / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// Original context length.
        original_context: usize,
    },
    /// As Llama 3.1 with another ramp, and with scaled queries and keys (Peng et al. 2023, "YaRN").
    Yarn {
        /// Factor of the context.
        factor: f64,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which a frequency is divided.
        beta_slow: f64,
        /// Original context length.
        original_context: usize,
        /// Factor of cosines and sines.
        attention_factor: f64,
        /// Whether the ends of the ramp are rounded.
        truncate: bool,
    },
}

/// A table of token types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenType {
    /// Number of rows.
    pub rows: usize,
    /// Row of tokens.
    pub token: usize,
}

/// Activation of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU with the exact normal distribution function.
    Gelu,
    /// Its tanh approximation.
    GeluTanh,
    /// `silu(gate(x)) · up(x)`, with a third matrix (Shazeer 2020).
    SwiGlu,
}

/// Which linear layers of a block have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Biases {
    /// Queries, keys, values.
    pub attention_inputs: bool,
    /// Output of attention.
    pub attention_output: bool,
    /// MLP.
    pub mlp: bool,
}

impl Biases {
    /// Returns biases for all layers or none.
    pub fn everywhere(there: bool) -> Self {
        Self { attention_inputs: there, attention_output: there, mlp: there }
    }
}

/// Output layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// The transposed token embedding.
    Tied,
    /// A separate matrix.
    Own,
    /// None: the model is an encoder.
    None,
    /// A score per sequence from its first token's hidden state, without logits.
    Score,
}

impl Description {
    /// Returns the shape of attention heads.
    pub fn head_shape(&self) -> Heads {
        Heads { heads: self.heads, kv_heads: self.kv_heads, width: self.head_width }
    }

    /// Returns a lower bound of the number of parameters: block matrices and token embedding.
    pub fn least_parameters(&self) -> f64 {
        let [width, heads, kv_heads, head_width, mlp_width] =
            [self.width, self.heads, self.kv_heads, self.head_width, self.mlp_width]
                .map(|size| size as f64);
        let attention = 2.0 * width * head_width * (heads + kv_heads);
        let block = attention + 2.0 * width * mlp_width;
        self.layers as f64 * block + self.vocabulary as f64 * width
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// [`ModelError::Unfit`] for a size of 0, heads that do not divide, an odd rotary width, or
    /// implausibly large sizes.
    pub fn checked(self) -> Result<Self, ModelError> {
        // Far above any current model; larger ones would not fit into memory.
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
        if matches!(self.positions, Positions::Rotary(_)) && !self.head_width.is_multiple_of(2) {
            return Err(ModelError::Unfit(format!(
                "rotary positions require an even head width, found {}",
                self.head_width
            )));
        }
        Ok(self)
    }
}
