//! Model families. Each consists of a description and a table of tensor names.

mod bert;
mod family;
mod fields;
mod gpt2;
mod infiller;
mod llama;
mod molgpt;

pub use family::Family;
pub use infiller::InfillerConfig;
pub(crate) use infiller::read as read_infiller;
pub use molgpt::MolGptConfig;

use crate::description::Description;
use crate::names::Names;
pub(crate) use fields::Fault;
use fields::Fields;

impl Family {
    pub(crate) fn names(self) -> Names {
        match self {
            Self::MolGpt => molgpt::NAMES,
            Self::Gpt2 => gpt2::NAMES,
            Self::Llama | Self::Qwen2 | Self::Qwen3 => llama::NAMES,
            Self::Bert => bert::NAMES,
            Self::Infiller | Self::SequenceScorer | Self::TokenClassifier => infiller::NAMES,
        }
    }

    /// Derives the model description from a `config.json`.
    pub(crate) fn describe(
        self,
        json: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<Description, Fault> {
        let fields = Fields(json);
        match self {
            Self::MolGpt => molgpt::describe(json),
            Self::Gpt2 => gpt2::describe(&fields),
            Self::Llama | Self::Qwen2 | Self::Qwen3 => llama::describe(self, &fields),
            Self::Bert => bert::describe(&fields),
            Self::Infiller | Self::SequenceScorer | Self::TokenClassifier => {
                infiller::describe(self, json)
            }
        }
    }
}
