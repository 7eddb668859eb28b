//! The identity of molecules.

use grpo_chem::{InvalidSmiles, Molecule};
use grpo_rewards::Identity;
use rayon::prelude::*;

/// Identifies molecules by their canonical SMILES.
pub(crate) fn identities(texts: &[&str]) -> Vec<Identity> {
    let identity = |smiles: &&str| match Molecule::parse(smiles) {
        Ok(molecule) => Identity::Canonical(molecule.into_canonical()),
        // It may be a molecule.
        Err(InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. }) => {
            Identity::Unknown
        }
        Err(_) => Identity::Invalid,
    };
    texts.par_iter().map(identity).collect()
}
