//! Supported model families.

/// A supported model family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// MolGPT (Bagal et al. 2022).
    MolGpt,
    /// GPT-2 (Radford et al. 2019).
    Gpt2,
    /// Llama 1 to 3 (Touvron et al. 2023), and other models with the same architecture.
    Llama,
    /// Qwen2 and Qwen2.5, which are Llama models with query, key and value biases.
    Qwen2,
    /// Dense Qwen3 models, which are Llama models with query and key norms.
    Qwen3,
    /// BERT (Devlin et al. 2019), an encoder.
    Bert,
    /// A bidirectional character-level transformer that fills in blanks.
    Infiller,
    /// An infiller with a head that scores the entire text.
    SequenceScorer,
    /// An infiller with a head that assigns each token to one of several classes.
    TokenClassifier,
}

impl Family {
    /// All supported families.
    pub const ALL: [Self; 9] = [
        Self::MolGpt,
        Self::Gpt2,
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Bert,
        Self::Infiller,
        Self::SequenceScorer,
        Self::TokenClassifier,
    ];

    /// Returns the name used in `config.json`. This is the `model_type` key in transformers, and
    /// the `architecture` key for MolGPT.
    pub fn name(self) -> &'static str {
        match self {
            Self::MolGpt => "molgpt",
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Bert => "bert",
            Self::Infiller => "infiller",
            Self::SequenceScorer => "sequence_scorer",
            Self::TokenClassifier => "token_classifier",
        }
    }

    /// Returns whether the token IDs are the characters in `characters.json`, followed by MASK, PAD
    /// and CLS.
    pub fn reads_characters(self) -> bool {
        matches!(self, Self::Infiller | Self::SequenceScorer | Self::TokenClassifier)
    }

    /// Returns whether attention is causal, which is required to generate text from left to right.
    pub fn is_causal(self) -> bool {
        match self {
            Self::MolGpt | Self::Gpt2 | Self::Llama | Self::Qwen2 | Self::Qwen3 => true,
            Self::Bert | Self::Infiller | Self::SequenceScorer | Self::TokenClassifier => false,
        }
    }
}
