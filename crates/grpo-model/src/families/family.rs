//! Supported families.

/// A supported family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// MolGPT (Bagal et al. 2022).
    MolGpt,
    /// GPT-2 (Radford et al. 2019).
    Gpt2,
    /// Llama 1 to 3 (Touvron et al. 2023) and models with its architecture.
    Llama,
    /// Qwen2 and 2.5: Llama with biases on queries, keys and values.
    Qwen2,
    /// Qwen3, dense: Llama with norms on queries and keys.
    Qwen3,
    /// BERT (Devlin et al. 2019): an encoder.
    Bert,
    /// A bidirectional transformer over characters that fills blanks.
    Infiller,
    /// The infiller's trunk with a head that scores a whole text.
    SequenceScorer,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 8] = [
        Self::MolGpt,
        Self::Gpt2,
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Bert,
        Self::Infiller,
        Self::SequenceScorer,
    ];

    /// Returns the name in `config.json`: `model_type` of transformers, or `architecture` of a
    /// MolGPT.
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
        }
    }

    /// Returns whether its ids are characters, MASK, PAD and CLS, listed in `characters.json`.
    pub fn reads_characters(self) -> bool {
        matches!(self, Self::Infiller | Self::SequenceScorer)
    }

    /// Returns whether attention is causal, so that the model can continue a text.
    pub fn is_causal(self) -> bool {
        match self {
            Self::MolGpt | Self::Gpt2 | Self::Llama | Self::Qwen2 | Self::Qwen3 => true,
            Self::Bert | Self::Infiller | Self::SequenceScorer => false,
        }
    }
}
