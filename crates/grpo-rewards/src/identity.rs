//! Identities of completions. Only a task can determine them: different SMILES strings can
//! represent the same molecule, and others are not molecules at all.

pub(crate) use grpo_data::VALID;

/// What a task knows about a completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Nothing.
    #[default]
    Unknown,
    /// The completion is invalid, e.g. not a molecule.
    Invalid,
    /// The completion is valid. Completions with the same canonical form are equivalent.
    Canonical(String),
}

impl Identity {
    /// Returns whether the completion is valid, if the task knows.
    pub(crate) fn is_valid(&self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Invalid => Some(false),
            Self::Canonical(_) => Some(true),
        }
    }
}

/// Returns the identity of each text, in the same order.
pub type Identify = fn(&[&str]) -> Vec<Identity>;
