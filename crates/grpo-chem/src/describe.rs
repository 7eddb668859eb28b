//! All descriptors of a molecule.

use crate::error::InvalidSmiles;
use crate::molecule::Molecule;
use crate::qed::Properties;

/// Descriptors of a valid molecule: a row of `grpo describe`.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Canonical isomeric SMILES, as RDKit writes it.
    pub canonical: String,
    /// The properties behind QED.
    pub properties: Properties,
    /// Quantitative estimate of drug-likeness, 0 to 1.
    pub qed: f64,
    /// Synthetic accessibility, 1 (easy) to 10 (hard).
    pub sa: f64,
    /// Bemis–Murcko scaffold without stereo; empty without rings.
    pub scaffold: String,
}

/// Scores of a valid molecule for a reward.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Canonical isomeric SMILES, used as a key.
    pub canonical: String,
    /// Quantitative estimate of drug-likeness, 0 to 1.
    pub qed: f64,
    /// Synthetic accessibility, 1 (easy) to 10 (hard).
    pub sa: f64,
}

/// Computes all descriptors of a SMILES.
///
/// # Errors
/// Returns why the string is not a molecule, or the failure of the toolkit.
pub fn describe(smiles: &str) -> Result<Description, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    Ok(Description {
        properties: *molecule.properties(),
        qed: molecule.qed(),
        sa: molecule.sa()?,
        scaffold: molecule.scaffold()?,
        canonical: molecule.into_canonical(),
    })
}

/// Computes QED, SA and the canonical form of a SMILES.
///
/// # Errors
/// Returns why the string is not a molecule, or the failure of the toolkit.
pub fn qed_and_sa(smiles: &str) -> Result<Scores, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    Ok(Scores { qed: molecule.qed(), sa: molecule.sa()?, canonical: molecule.into_canonical() })
}
