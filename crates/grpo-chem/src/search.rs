//! Searches for patterns in molecules.

use chematic::perception::with_rdkit_parity_view;

use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::Molecule;
use crate::query::{MAX_MATCHES, Pattern};

impl Pattern {
    /// Returns `true` if the molecule contains the pattern, like RDKit's `HasSubstructMatch`.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the search takes too long or if the toolkit cannot
    /// determine the rings, and [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn matches(&self, molecule: &Molecule) -> Result<bool, InvalidSmiles> {
        Ok(self.search(molecule, 1)? > 0)
    }

    /// Counts the matches that cover distinct sets of atoms, like RDKit's
    /// `len(GetSubstructMatches(pattern))`. The maximum is 1,000.
    ///
    /// # Errors
    /// Same as [`matches`](Self::matches).
    pub fn count(&self, molecule: &Molecule) -> Result<usize, InvalidSmiles> {
        self.search(molecule, MAX_MATCHES)
    }

    /// Counts up to `most` matches.
    fn search(&self, molecule: &Molecule, most: usize) -> Result<usize, InvalidSmiles> {
        let model = molecule.model();
        guarded(|| {
            with_rdkit_parity_view(model, |view| {
                Ok(self.search_in(view.unwrap_or(model), most)?.len())
            })
        })?
    }
}
