//! Substructure searches with SMARTS patterns.

use chematic::core::Molecule as Graph;
use chematic::perception::with_rdkit_parity_view;
use chematic::smarts::{
    MatchConfig, QueryMolecule, RdkitParityConfig, RdkitParityError, RdkitRingCountModel,
    find_match_atom_sets_rdkit_parity, parse_smarts,
};

use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::Molecule;
use crate::smarts::{self, InvalidSmarts};

/// A substructure pattern.
pub struct Pattern {
    smarts: String,
    query: QueryMolecule,
}

/// Maximum number of steps of a search. A search of a pattern from a filter catalog takes fewer
/// than 10,000 steps.
const MAX_STEPS: u64 = 1_000_000;

/// RDKit returns at most 1,000 matches by default.
const MAX_MATCHES: usize = 1_000;

impl Pattern {
    /// Parses a SMARTS pattern. Leading and trailing whitespace is ignored.
    ///
    /// # Errors
    /// Returns an error if RDKit's `MolFromSmarts` would reject the pattern, if it is empty or too
    /// long, or if it uses an unsupported feature.
    pub fn parse(text: &str) -> Result<Self, InvalidSmarts> {
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        smarts::check(text)?;
        let query = guarded(|| parse_smarts(text))
            .map_err(|error| smarts::unsupported(text, error.to_string()))?
            .map_err(|error| smarts::from_toolkit(text, &error))?;
        Ok(Self { smarts: text.to_owned(), query })
    }

    /// Returns the pattern as written.
    pub fn smarts(&self) -> &str {
        &self.smarts
    }

    /// Returns `true` if the molecule contains the pattern, like RDKit's `HasSubstructMatch`.
    /// Chirality is ignored.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the search takes too long or if the toolkit cannot
    /// determine the rings, and [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn matches(&self, molecule: &Molecule) -> Result<bool, InvalidSmiles> {
        Ok(self.search(molecule, 1)? > 0)
    }

    /// Counts the matches with different sets of atoms, like RDKit's
    /// `len(GetSubstructMatches(pattern))`. Chirality is ignored. The maximum is 1,000.
    ///
    /// # Errors
    /// Same as [`matches`](Self::matches).
    pub fn count(&self, molecule: &Molecule) -> Result<usize, InvalidSmiles> {
        Ok(self.search(molecule, usize::MAX)?.min(MAX_MATCHES))
    }

    fn search(&self, molecule: &Molecule, most: usize) -> Result<usize, InvalidSmiles> {
        let model = molecule.model();
        guarded(|| {
            with_rdkit_parity_view(model, |view| search(&self.query, view.unwrap_or(model), most))
        })?
    }
}

fn search(query: &QueryMolecule, view: &Graph, most: usize) -> Result<usize, InvalidSmiles> {
    let config = RdkitParityConfig {
        base: MatchConfig {
            max_matches: (most < usize::MAX).then_some(most),
            max_visit_budget: Some(MAX_STEPS),
            ..MatchConfig::default()
        },
        ring_count_model: RdkitRingCountModel::RelevantCycles,
        ..RdkitParityConfig::default()
    };
    let (found, incomplete) = find_match_atom_sets_rdkit_parity(query, view, &config)
        .map_err(|error: RdkitParityError| unsupported(format!("a search: {error}")))?;
    if incomplete && found.len() < most {
        return Err(unsupported(format!("a search of a pattern with more than {MAX_STEPS} steps")));
    }
    Ok(found.len())
}

fn unsupported(detail: String) -> InvalidSmiles {
    InvalidSmiles::Unsupported { detail }
}
