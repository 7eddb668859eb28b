//! Substructure searches with SMARTS patterns.

use chematic::core::Molecule as Graph;
use chematic::smarts::{
    MatchConfig, QueryMolecule, RdkitParityConfig, RdkitRingCountModel, SmartsError,
    find_match_atom_sets_rdkit_parity, parse_smarts,
};

use crate::error::{InvalidSmarts, InvalidSmiles};
use crate::guard::guarded;
use crate::query_hydrogens::{merged, needs_hydrogen};
use crate::smarts::check;

/// A substructure pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    smarts: String,
    query: QueryMolecule,
}

/// Maximum number of matches, which is the default of RDKit.
pub(crate) const MAX_MATCHES: usize = 1_000;

/// Returns the 116 structural alerts used by QED (Brenk et al. 2008), as listed in RDKit.
pub fn default_alerts() -> impl Iterator<Item = &'static str> {
    include_str!("../data/qed_alerts.smarts").lines()
}

impl Pattern {
    /// Parses a SMARTS pattern. Leading and trailing whitespace is ignored. A hydrogen atom, e.g.
    /// `[#1]` or `[H]`, becomes a condition on its neighbor, as in RDKit's
    /// `MolFromSmarts(mergeHs=True)`, because molecules have no explicit hydrogen atoms.
    ///
    /// # Errors
    /// Returns an error if RDKit's `MolFromSmarts` would reject the pattern, if it is empty or too
    /// long, if it only matches molecules with explicit hydrogen atoms, or if it uses an unsupported
    /// feature, e.g. stereochemistry.
    pub fn parse(text: &str) -> Result<Self, InvalidSmarts> {
        let pattern = Self::parse_explicit(text)?;
        let query = merged(&pattern.query);
        if needs_hydrogen(&query) {
            let start = text.len() - text.trim_ascii_start().len();
            return Err(InvalidSmarts::Unsupported {
                position: start + 1,
                detail: "it only matches molecules with explicit hydrogen atoms; use a condition such as [CH3] or [!H0]".to_owned(),
            });
        }
        Ok(Self { query, ..pattern })
    }

    /// Parses a pattern whose hydrogen atoms match explicit hydrogen atoms.
    ///
    /// # Errors
    /// Same as [`parse`](Self::parse).
    pub(crate) fn parse_explicit(text: &str) -> Result<Self, InvalidSmarts> {
        let text = text.trim_ascii_end();
        let smarts = text.trim_ascii_start();
        let start = text.len() - smarts.len();
        check(text, start)?;
        let query = guarded(|| parse_smarts(smarts))
            .map_err(|error| InvalidSmarts::Unsupported {
                position: start + 1,
                detail: error.to_string(),
            })?
            .map_err(|error| from_toolkit(smarts, start, &error))?;
        Ok(Self { smarts: smarts.to_owned(), query })
    }

    /// Parses an embedded pattern without hydrogen atoms.
    ///
    /// # Panics
    /// Panics if the pattern is invalid.
    pub(crate) fn embedded(smarts: &str) -> Self {
        Self::parse_explicit(smarts)
            .unwrap_or_else(|error| panic!("embedded pattern {smarts}: {error}"))
    }

    /// Returns the pattern as it is searched for.
    pub(crate) fn query(&self) -> &QueryMolecule {
        &self.query
    }

    /// Returns the pattern as written.
    pub fn smarts(&self) -> &str {
        &self.smarts
    }

    /// Returns `true` if a graph contains the pattern. Its aromaticity must be that of RDKit.
    pub(crate) fn is_in(&self, view: &Graph) -> Result<bool, InvalidSmiles> {
        guarded(|| Ok(!self.search_in(view, 1)?.is_empty()))?
    }

    /// Returns the first atom of each match with a distinct set of atoms, of a pattern that describes
    /// a single atom. The aromaticity of the graph must be that of RDKit.
    pub(crate) fn first_atoms(&self, view: &Graph) -> Result<Vec<u32>, InvalidSmiles> {
        let found = guarded(|| self.search_in(view, MAX_MATCHES))??;
        Ok(found.iter().filter_map(|atoms| atoms.first().copied()).collect())
    }

    /// Returns the sets of atoms of up to `most` matches.
    pub(crate) fn search_in(
        &self,
        view: &Graph,
        most: usize,
    ) -> Result<Vec<Vec<u32>>, InvalidSmiles> {
        let config = RdkitParityConfig {
            base: MatchConfig {
                max_matches: (most == 1).then_some(1),
                max_visit_budget: Some(self.max_steps(view.atom_count())),
                ..MatchConfig::default()
            },
            ring_count_model: RdkitRingCountModel::RelevantCycles,
            ..RdkitParityConfig::default()
        };
        let (mut found, is_incomplete) =
            find_match_atom_sets_rdkit_parity(&self.query, view, &config)
                .map_err(|error| unsupported(format!("the rings of this molecule: {error}")))?;
        if is_incomplete && found.len() < most {
            return Err(unsupported(format!("the search for {} takes too long", self.smarts)));
        }
        found.truncate(most);
        Ok(found)
    }

    /// Returns the maximum number of steps of a search, which restricts it to less than one second and
    /// 40 MB. A step maps one more atom of the pattern.
    fn max_steps(&self, atoms: usize) -> u64 {
        // In each step, the next atom of the pattern is compared with the neighbors of an atom or,
        // at the start of a fragment, with all atoms.
        let candidates = if self.smarts.contains('.') { atoms } else { 8 };
        let steps = MAX_COMPARISONS / (self.smarts.len() * candidates).max(1);
        let in_memory = MAX_MATCHED_ATOMS / self.query.atom_count().max(1);
        steps.min(in_memory).clamp(100, 1_000_000) as u64
    }
}

/// Patterns that describe an atom each.
pub(crate) struct AtomFeatures(Vec<Pattern>);

impl AtomFeatures {
    /// Parses embedded patterns, one per line.
    ///
    /// # Panics
    /// Panics if a pattern is invalid.
    pub(crate) fn new(patterns: &str) -> Self {
        Self(patterns.lines().map(Pattern::embedded).collect())
    }

    /// Returns the atoms that match each pattern. `view` must use RDKit's aromaticity.
    pub(crate) fn atoms(&self, view: &Graph) -> Result<Vec<Vec<usize>>, InvalidSmiles> {
        let atoms = |pattern: &Pattern| {
            let found = pattern.search_in(view, MAX_MATCHES)?;
            Ok(found.into_iter().flatten().map(|atom| atom as usize).collect())
        };
        self.0.iter().map(atoms).collect()
    }
}

/// Converts an error of the toolkit for a valid pattern that begins at the byte `start` of a text.
fn from_toolkit(smarts: &str, start: usize, error: &SmartsError) -> InvalidSmarts {
    let at = match error {
        SmartsError::UnexpectedChar(_, at)
        | SmartsError::UnclosedBracket(at)
        | SmartsError::UnclosedBranch(at) => *at,
        _ => 0,
    };
    let detail = match smarts.as_bytes().get(at) {
        Some(symbol) if at > 0 => {
            format!("the toolkit does not know this use of '{}'", char::from(*symbol))
        }
        _ => "the toolkit cannot parse this pattern".to_owned(),
    };
    InvalidSmarts::Unsupported { position: start + at + 1, detail }
}

/// Maximum number of comparisons of a condition in the pattern with an atom.
const MAX_COMPARISONS: usize = 100_000_000;

/// Maximum number of atoms in the matches of a search.
const MAX_MATCHED_ATOMS: usize = 10_000_000;

fn unsupported(detail: String) -> InvalidSmiles {
    InvalidSmiles::Unsupported { detail }
}
