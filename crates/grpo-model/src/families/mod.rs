//! Model families. Each is one file: a description of its layers, derived from `config.json`, and a
//! table of the names of its tensors.

mod bert;
mod family;
mod fields;
mod gemma3;
mod gpt2;
mod granite;
mod llama;
mod mistral;
mod olmo;
mod positions;
mod registry;
mod smollm3;

pub use bert::BERT;
pub use family::{FamilyKind, VocabularyFile};
pub use fields::Fields;
pub(crate) use registry::family_name;
pub use registry::{Families, ModelFormats};

impl Default for Families {
    fn default() -> Self {
        Self::none().with([
            &gpt2::GPT2,
            &llama::LLAMA,
            &llama::QWEN2,
            &llama::QWEN3,
            &mistral::MISTRAL,
            &mistral::MINISTRAL,
            &granite::GRANITE,
            &smollm3::SMOLLM3,
            &olmo::OLMO2,
            &olmo::OLMO3,
            &gemma3::GEMMA3,
            &BERT,
        ])
    }
}
