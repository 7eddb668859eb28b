//! One molecule, all its columns.

use crate::error::InvalidSmiles;
use crate::molecule::Molecule;
use crate::qed::Properties;

/// All that is told about a valid molecule: one row of `grpo describe`.
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
    /// Bemis–Murcko scaffold without stereo; empty where there is no ring.
    pub scaffold: String,
}

/// What a reward needs of a valid molecule.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Canonical isomeric SMILES: the key of caches, and of uniqueness.
    pub canonical: String,
    /// Quantitative estimate of drug-likeness, 0 to 1.
    pub qed: f64,
    /// Synthetic accessibility, 1 (easy) to 10 (hard).
    pub sa: f64,
}

/// Describes a SMILES, each property computed once.
///
/// # Errors
/// The reason why the string is not a molecule, or the toolkit's failure.
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

/// QED, SA and the canonical form of a SMILES: [`describe`] without what a reward does not use.
///
/// # Errors
/// The reason why the string is not a molecule, or the toolkit's failure.
pub fn qed_and_sa(smiles: &str) -> Result<Scores, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    Ok(Scores { qed: molecule.qed(), sa: molecule.sa()?, canonical: molecule.into_canonical() })
}
