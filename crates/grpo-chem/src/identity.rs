//! Strings that identify molecules regardless of the spelling.

use chematic::smiles::{parse_template, rdkit_canonical_smiles};

use crate::dialect::without_labels;
use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::{Molecule, from_parser, from_sanitizer};

/// Maximum number of canonical forms that are compared. The longest known sequence has four.
const MAX_FORMS: usize = 16;

impl Molecule {
    /// Returns a SMILES that is the same for all spellings of the molecule. It has no isotopes and
    /// atom-map numbers.
    ///
    /// RDKit's canonical form is not always unique: for some symmetric molecules, the canonical form
    /// of the canonical form is another one. The forms are computed until one is repeated, and the
    /// first in alphabetical order of those that recur is returned.
    ///
    /// # Errors
    /// Returns an error if RDKit would reject the molecule without its labels, or if the toolkit
    /// fails.
    pub fn identity(&self) -> Result<String, InvalidSmiles> {
        let canonical = self.canonical_smiles();
        let mut forms = vec![match without_labels(canonical) {
            Some(plain) => canonical_form(&plain)?,
            None => canonical.to_owned(),
        }];
        loop {
            let last = &forms[forms.len() - 1];
            // RDKit cannot read all strings that it writes. Such a form is the last one.
            let Ok(next) = canonical_form(last) else { return Ok(last.clone()) };
            let first = forms.iter().position(|form| *form == next);
            if first.is_some() || forms.len() == MAX_FORMS {
                let recurring = forms.drain(first.unwrap_or(0)..);
                return Ok(recurring.min().unwrap_or(next));
            }
            forms.push(next);
        }
    }

    /// Returns `true` if both are spellings of the same molecule.
    pub(crate) fn is_same(&self, other: &Self) -> Result<bool, InvalidSmiles> {
        Ok(self.canonical_smiles() == other.canonical_smiles()
            || self.identity()? == other.identity()?)
    }
}

/// Returns the canonical form of a canonical form, or of one without labels.
fn canonical_form(smiles: &str) -> Result<String, InvalidSmiles> {
    guarded(|| {
        let graph = parse_template(smiles).map_err(from_parser)?;
        rdkit_canonical_smiles(&graph).map_err(from_sanitizer)
    })?
}
