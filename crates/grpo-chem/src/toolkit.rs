//! What this crate asks of a chemistry library.

use crate::error::InvalidSmiles;
use crate::qed::{Properties, qed};
use crate::sa::{Complexity, sa_score};

/// A chemistry library that reads SMILES as RDKit does.
///
/// An implementation perceives and counts; the scores are computed here, from what it counted, so that every toolkit
/// is judged by the same formulas.
pub trait Toolkit: Send + Sync {
    /// A sanitised molecule: grammar, valences and aromaticity have been checked.
    type Molecule;

    /// Reads a SMILES (surrounding blanks are ignored) and sanitises it.
    ///
    /// # Errors
    /// The reason why RDKit would refuse the string, or why this crate does (length, a feature without support, a panic
    /// of the toolkit).
    fn parse(&self, smiles: &str) -> Result<Self::Molecule, InvalidSmiles>;

    /// The canonical isomeric SMILES, as RDKit's `MolToSmiles` writes it.
    fn canonical_smiles<'m>(&self, molecule: &'m Self::Molecule) -> &'m str;

    /// The eight properties behind QED, as `rdkit.Chem.QED.properties` counts them.
    fn properties(&self, molecule: &Self::Molecule) -> Properties;

    /// What the SA score is computed from, as RDKit's `sascorer.py` counts it.
    ///
    /// # Errors
    /// [`InvalidSmiles::Unsupported`] where the toolkit cannot count fragments or stereocentres (never seen on organic
    /// molecules): a score from half of the terms would be silently wrong. [`InvalidSmiles::ToolkitPanic`].
    fn complexity(&self, molecule: &Self::Molecule) -> Result<Complexity, InvalidSmiles>;

    /// The Bemis–Murcko scaffold without stereo, as RDKit's `MurckoScaffoldSmiles`; empty where there is no ring.
    ///
    /// # Errors
    /// [`InvalidSmiles::ToolkitPanic`].
    fn scaffold(&self, molecule: &Self::Molecule) -> Result<String, InvalidSmiles>;

    /// Quantitative estimate of drug-likeness, 0 to 1.
    fn qed(&self, molecule: &Self::Molecule) -> f64 {
        qed(&self.properties(molecule))
    }

    /// Synthetic accessibility, 1 (easy) to 10 (hard).
    ///
    /// # Errors
    /// As [`complexity`](Self::complexity).
    fn sa(&self, molecule: &Self::Molecule) -> Result<f64, InvalidSmiles> {
        Ok(sa_score(&self.complexity(molecule)?))
    }
}
