//! Strings that identify molecules regardless of the spelling.

use chematic::core::Molecule as Graph;
use chematic::smiles::{
    RdkitSmilesParams, parse_template, rdkit_canonical_smiles, rdkit_random_smiles,
    topological_equivalence_classes,
};

use crate::dialect::without_labels;
use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::{Molecule, from_parser, from_sanitizer};

/// Maximum number of canonical forms that are compared. The longest known sequence has four.
const MAX_FORMS: usize = 16;

/// Number of random spellings of a molecule with equivalent stereocenters whose forms are compared.
const SPELLINGS: usize = 12;

impl Molecule {
    /// Returns a SMILES that is the same for all spellings of the molecule. It has no isotopes and
    /// atom-map numbers.
    ///
    /// RDKit's canonical form is not always unique: for some symmetric molecules, the canonical form
    /// of the canonical form is another one. The forms are computed until one is repeated, and the
    /// first in alphabetical order of those that recur is returned. If stereocenters would be
    /// equivalent without their configurations, the forms of other spellings are considered too.
    ///
    /// # Errors
    /// Returns an error if RDKit would reject the molecule without its labels, or if the toolkit
    /// fails.
    pub fn identity(&self) -> Result<String, InvalidSmiles> {
        let canonical = self.canonical_smiles();
        let mut identity = recurring_form(match without_labels(canonical) {
            Some(plain) => canonical_form(&plain)?,
            None => canonical.to_owned(),
        });
        for _ in 0..MAX_FORMS {
            let forms = other_spellings(&identity).into_iter().map(recurring_form);
            match forms.min().filter(|least| *least < identity) {
                Some(least) => identity = least,
                None => break,
            }
        }
        Ok(identity)
    }

    /// Returns `true` if both are spellings of the same molecule.
    pub(crate) fn is_same(&self, other: &Self) -> Result<bool, InvalidSmiles> {
        Ok(self.canonical_smiles() == other.canonical_smiles()
            || self.identity()? == other.identity()?)
    }
}

/// Computes the canonical form of the canonical form until a form is repeated. Returns the first in
/// alphabetical order of those that recur.
fn recurring_form(form: String) -> String {
    let mut forms = vec![form];
    loop {
        let last = &forms[forms.len() - 1];
        // RDKit cannot read all strings that it writes. Such a form is the last one.
        let Ok(next) = canonical_form(last) else { return last.clone() };
        let first = forms.iter().position(|form| *form == next);
        if first.is_some() || forms.len() == MAX_FORMS {
            return forms.drain(first.unwrap_or(0)..).min().unwrap_or(next);
        }
        forms.push(next);
    }
}

/// Returns the canonical forms of random spellings, if stereocenters are equivalent.
fn other_spellings(form: &str) -> Vec<String> {
    if !form.contains('@') {
        return Vec::new();
    }
    let spellings = guarded(|| {
        let Some(graph) = parse_template(form).ok().filter(has_equivalent_centers) else {
            return Vec::new();
        };
        let params = RdkitSmilesParams::default();
        rdkit_random_smiles(&graph, SPELLINGS, 1, &params).unwrap_or_default()
    });
    spellings.unwrap_or_default().iter().flat_map(|smiles| canonical_form(smiles)).collect()
}

fn has_equivalent_centers(graph: &Graph) -> bool {
    let classes = topological_equivalence_classes(graph);
    let centers = graph.atoms().filter(|(_, atom)| atom.chirality.is_tetrahedral());
    let mut classes: Vec<usize> = centers.map(|(atom, _)| classes[atom.0 as usize]).collect();
    classes.sort_unstable();
    classes.windows(2).any(|pair| pair[0] == pair[1])
}

/// Returns the canonical form of a canonical form, or of one without labels.
fn canonical_form(smiles: &str) -> Result<String, InvalidSmiles> {
    guarded(|| {
        let graph = parse_template(smiles).map_err(from_parser)?;
        rdkit_canonical_smiles(&graph).map_err(from_sanitizer)
    })?
}
