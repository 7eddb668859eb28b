//! Identities of completions. Only a task can determine them: different SMILES strings can
//! represent the same molecule, and others are not molecules at all.

/// Name of the component that is 1 for valid and 0 for invalid completions.
pub(crate) const VALID: &str = "valid";

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

/// Returns the identity of each text, in the same order.
pub type Identify = fn(&[&str]) -> Vec<Identity>;
