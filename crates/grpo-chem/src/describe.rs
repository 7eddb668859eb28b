//! One molecule, all its columns.

use crate::chematic_toolkit::Chematic;
use crate::error::InvalidSmiles;
use crate::qed::qed;
use crate::toolkit::Toolkit;

/// All that is told about a valid molecule: one row of `grpo describe`.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Canonical isomeric SMILES, as RDKit writes it.
    pub canonical: String,
    /// Average molecular weight in g/mol, hydrogens included.
    pub mw: f64,
    /// Octanol–water partition coefficient after Wildman and Crippen, log10.
    pub logp: f64,
    /// Topological polar surface area after Ertl, N and O only, in Å².
    pub tpsa: f64,
    /// Hydrogen-bond acceptors, as QED counts them.
    pub hba: u32,
    /// Hydrogen-bond donors.
    pub hbd: u32,
    /// Rotatable bonds, RDKit's strict definition.
    pub rotatable: u32,
    /// Aromatic rings, as QED counts them.
    pub aromatic_rings: u32,
    /// Structural alerts that match, of the 116 of QED.
    pub alerts: u32,
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
    let molecule = Chematic.parse(smiles)?;
    let properties = Chematic.properties(&molecule);
    let scaffold = Chematic.scaffold(&molecule)?;
    let sa = Chematic.sa(&molecule)?;
    Ok(Description {
        mw: properties.mw,
        logp: properties.logp,
        tpsa: properties.tpsa,
        hba: properties.hba,
        hbd: properties.hbd,
        rotatable: properties.rotatable,
        aromatic_rings: properties.aromatic_rings,
        alerts: properties.alerts,
        qed: qed(&properties),
        sa,
        scaffold,
        canonical: molecule.into_canonical(),
    })
}

/// QED, SA and the canonical form of a SMILES: [`describe`] without what a reward does not use.
///
/// # Errors
/// The reason why the string is not a molecule, or the toolkit's failure.
pub fn qed_and_sa(smiles: &str) -> Result<Scores, InvalidSmiles> {
    let molecule = Chematic.parse(smiles)?;
    Ok(Scores {
        qed: Chematic.qed(&molecule),
        sa: Chematic.sa(&molecule)?,
        canonical: molecule.into_canonical(),
    })
}
