//! What a transformer is made of, as plain data: a family is a way to fill this in.

use grpo_kernels::Heads;

use crate::ModelError;

/// The sizes and choices of one transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Tokens.
    pub vocabulary: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` heads of the queries (Ainslie et al. 2023).
    pub kv_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Width between the two layers of the MLP.
    pub mlp_width: usize,
    /// The norms.
    pub norm: NormKind,
    /// Where in a block they stand.
    pub order: NormOrder,
    /// How tokens know where they are.
    pub positions: Positions,
    /// The row of the table of types that tokens get, where there is such a table; row 0 is for conditions.
    pub token_type: Option<TokenType>,
    /// What stands between the layers of the MLP.
    pub activation: Activation,
    /// Queries, keys and values come out of one matrix.
    pub joint_inputs: bool,
    /// Which linear layers have a bias.
    pub biases: Biases,
    /// Each head's queries and keys are normed before the rotation (Qwen3).
    pub query_key_norm: bool,
    /// No token sees a later one.
    pub causal: bool,
    /// What turns hidden states into logits.
    pub head: HeadKind,
    /// A second head says of each token whether it is wrong.
    pub critic: bool,
    /// Standard deviation of first weights.
    pub initial_deviation: f64,
    /// That of the layers which add to the residual stream.
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

/// Where the norms of a block stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// In front of attention and MLP, and once after the last block.
    Pre,
    /// After each residual sum, and once after the embeddings (BERT).
    Post,
}

/// How tokens know where they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// A vector for each position, added to the token's.
    Learned,
    /// Queries and keys are turned by an angle that grows with the position (Su et al. 2021).
    Rotary(RotaryConfig),
}

/// Angles of rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub struct RotaryConfig {
    /// Base of the frequencies (θ).
    pub base: f64,
    /// How the frequencies were changed for longer contexts.
    pub scaling: RotaryScaling,
}

/// Changes of the frequencies for contexts longer than those of the first training; names as in transformers'
/// `rope_type`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryScaling {
    /// None.
    Default,
    /// All are divided by `factor` (Chen et al. 2023).
    Linear {
        /// Of the context.
        factor: f64,
    },
    /// Low ones are divided by `factor`, high ones are kept, those between are mixed (Llama 3.1).
    Llama3 {
        /// Of the context.
        factor: f64,
        /// Wavelengths above `original_context / low_frequency_factor` are divided.
        low_frequency_factor: f64,
        /// Wavelengths below `original_context / high_frequency_factor` are kept.
        high_frequency_factor: f64,
        /// Context of the first training.
        original_context: usize,
    },
    /// As Llama's by another ramp, with queries and keys scaled (Peng et al. 2023, "YaRN").
    Yarn {
        /// Of the context.
        factor: f64,
        /// Turns over the original context above which a frequency is kept.
        beta_fast: f64,
        /// Turns below which it is divided.
        beta_slow: f64,
        /// Context of the first training.
        original_context: usize,
        /// What cosines and sines are multiplied by.
        attention_factor: f64,
        /// Whether the ends of the ramp are rounded to whole dimensions.
        truncate: bool,
    },
}

/// A table of token types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenType {
    /// Rows of the table.
    pub rows: usize,
    /// The row of tokens.
    pub token: usize,
}

/// What stands between the layers of an MLP.
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
    /// All of them, or none.
    pub fn everywhere(there: bool) -> Self {
        Self { attention_inputs: there, attention_output: there, mlp: there }
    }
}

/// What turns hidden states into logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// The table of tokens once more.
    Tied,
    /// A matrix of its own.
    Own,
    /// Nothing: the model is an encoder.
    None,
    /// One number for a sequence, from its first token's hidden state; there are no logits.
    Score,
}

impl Description {
    /// How queries, keys and values are cut into heads.
    pub fn head_shape(&self) -> Heads {
        Heads { heads: self.heads, kv_heads: self.kv_heads, width: self.head_width }
    }

    /// Returns how many numbers the matrices of the blocks and the table of tokens have: most of a model's, and never more.
    pub fn least_parameters(&self) -> f64 {
        let [width, heads, kv_heads, head_width, mlp_width] =
            [self.width, self.heads, self.kv_heads, self.head_width, self.mlp_width]
                .map(|size| size as f64);
        let attention = 2.0 * width * head_width * (heads + kv_heads);
        let block = attention + 2.0 * width * mlp_width;
        self.layers as f64 * block + self.vocabulary as f64 * width
    }

    /// Checks sizes once, so that nothing later has to.
    ///
    /// # Errors
    /// [`ModelError::Unfit`] for a zero, heads that do not divide, an odd rotation, or a size that is a slip
    /// of the keyboard.
    pub fn checked(self) -> Result<Self, ModelError> {
        // Far above any model of today; the memory of what is larger could not be had.
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
                "{} heads cannot share {} key-value heads evenly",
                self.heads, self.kv_heads
            )));
        }
        if matches!(self.positions, Positions::Rotary(_)) && !self.head_width.is_multiple_of(2) {
            return Err(ModelError::Unfit(format!(
                "rotary positions turn pairs, and the width of a head is {}",
                self.head_width
            )));
        }
        Ok(self)
    }
}
