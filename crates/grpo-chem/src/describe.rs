//! Computes the descriptors of a molecule.

use crate::error::InvalidSmiles;
use crate::molecule::Molecule;
use crate::qed::Properties;

/// Descriptors of a valid molecule. These are the columns of `grpo describe`.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Canonical isomeric SMILES, identical to that of RDKit.
    pub canonical: String,
    /// The molecular properties used for QED.
    pub properties: Properties,
    /// Quantitative estimate of drug-likeness, from 0 to 1.
    pub qed: f64,
    /// Synthetic accessibility, from 1 (easy) to 10 (hard).
    pub sa: f64,
    /// Bemis–Murcko scaffold without stereochemistry. Empty if the molecule has no rings.
    pub scaffold: String,
}

/// The scores of a valid molecule that are used for rewards.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Canonical isomeric SMILES.
    pub canonical: String,
    /// Quantitative estimate of drug-likeness, from 0 to 1.
    pub qed: f64,
    /// Synthetic accessibility, from 1 (easy) to 10 (hard), on the scale of
    /// [`Molecule::monotonic_sa`].
    pub sa: f64,
}

/// Computes all descriptors of a molecule given as SMILES.
///
/// # Errors
/// Returns the reason why the string is not a valid molecule, or an error of the toolkit.
pub fn describe(smiles: &str) -> Result<Description, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    Ok(Description {
        properties: *molecule.properties()?,
        qed: molecule.qed()?,
        sa: molecule.sa()?,
        scaffold: molecule.scaffold()?,
        canonical: molecule.into_canonical(),
    })
}

/// Computes QED, the SA score and the canonical form of a molecule given as SMILES.
///
/// # Errors
/// Returns the reason why the string is not a valid molecule, or an error of the toolkit.
pub fn qed_and_sa(smiles: &str) -> Result<Scores, InvalidSmiles> {
    let molecule = Molecule::parse(smiles)?;
    let (qed, sa) = (molecule.qed()?, molecule.monotonic_sa()?);
    Ok(Scores { qed, sa, canonical: molecule.into_canonical() })
}
