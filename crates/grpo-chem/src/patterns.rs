//! Substructure patterns of QED's acceptors and alerts.
//!
//! RDKit's lists (`data/LICENSE` names their source), written by
//! `tests/peers/rdkit/make_qed_smarts.py`.

use std::sync::LazyLock;

use chematic::core::Molecule;
use chematic::smarts::{
    MatchConfig, QueryMolecule, find_matches, has_match_with_config, parse_smarts,
};

/// Returns the number of matches of QED's eleven acceptor patterns; `view` must have RDKit's
/// aromaticity.
pub(crate) fn count_acceptors(view: &Molecule) -> u32 {
    static QUERIES: LazyLock<Vec<QueryMolecule>> =
        LazyLock::new(|| queries(include_str!("../data/qed_acceptors.smarts")));
    QUERIES.iter().map(|query| find_matches(query, view).len() as u32).sum()
}

/// Returns how many of QED's 116 structural alerts match; `view` must have RDKit's aromaticity.
pub(crate) fn count_alerts(view: &Molecule) -> u32 {
    static QUERIES: LazyLock<Vec<QueryMolecule>> =
        LazyLock::new(|| queries(include_str!("../data/qed_alerts.smarts")));
    let first_match =
        MatchConfig { max_matches: Some(1), uniquify: false, ..MatchConfig::default() };
    QUERIES.iter().filter(|query| has_match_with_config(query, view, &first_match)).count() as u32
}

fn queries(list: &str) -> Vec<QueryMolecule> {
    list.lines()
        .map(|smarts| {
            parse_smarts(smarts)
                .unwrap_or_else(|error| panic!("embedded pattern {smarts}: {error}"))
        })
        .collect()
}
