//! Hydrogen atoms in patterns.
//!
//! Molecules have no explicit hydrogen atoms, so an atom such as `[#1]` becomes a condition on its
//! neighbor, like in RDKit's `mergeQueryHs` (`Code/GraphMol/AddHs.cpp`). Patterns of published
//! alerts, e.g. PAINS, depend on it.

use chematic::smarts::{AtomPrimitive, AtomQuery, QueryAtom, QueryMolecule};

/// Returns the pattern in which atoms with n hydrogen neighbors have the conditions `!H0` to
/// `!H(n-1)` instead, also within `$(…)`.
pub(crate) fn merged(query: &QueryMolecule) -> QueryMolecule {
    merge(query, None)
}

/// Returns `true` if the pattern only matches molecules with explicit hydrogen atoms.
pub(crate) fn needs_hydrogen(query: &QueryMolecule) -> bool {
    query.atoms.iter().any(|atom| is_impossible(&atom.query))
}

/// Merges hydrogen atoms, except the atom `anchor`.
fn merge(query: &QueryMolecule, anchor: Option<usize>) -> QueryMolecule {
    let is_hydrogen: Vec<bool> = (0..query.atoms.len())
        .map(|atom| anchor != Some(atom) && is_mergeable(query, atom))
        .collect();
    let is_removed = |atom: usize| {
        is_hydrogen[atom] && query.adj[atom].iter().any(|(_, other)| !is_hydrogen[*other])
    };
    let mut output = QueryMolecule::new();
    let mut new_atoms = vec![None; query.atoms.len()];
    for (atom, QueryAtom { query: conditions, atom_map }) in query.atoms.iter().enumerate() {
        if is_removed(atom) {
            continue;
        }
        let hydrogens = query.adj[atom].iter().filter(|(_, other)| is_removed(*other)).count();
        let hydrogens = if is_hydrogen[atom] { 0 } else { hydrogens.min(usize::from(u8::MAX)) };
        let mut conditions = with_merged_environments(conditions);
        for fewer in 0..hydrogens as u8 {
            let count = AtomQuery::Primitive(AtomPrimitive::HCount(fewer));
            let not = AtomQuery::Not(Box::new(count));
            conditions = AtomQuery::And(Box::new(conditions), Box::new(not));
        }
        new_atoms[atom] = Some(output.add_atom_with_map(conditions, *atom_map));
    }
    for bond in &query.bonds {
        if let (Some(a), Some(b)) = (new_atoms[bond.atom1], new_atoms[bond.atom2]) {
            output.add_bond(a, b, bond.query.clone());
        }
    }
    output
}

/// Returns `true` for `[#1]`, `[H]` and terminal atoms such as `[#1;D1]`. Isotopes and atoms that can
/// be another element are not merged.
fn is_mergeable(query: &QueryMolecule, atom: usize) -> bool {
    let conditions = &query.atoms[atom].query;
    let is_plain = matches!(conditions, AtomQuery::Primitive(_));
    (is_plain || query.adj[atom].len() == 1) && is_hydrogen(conditions) && !has_isotope(conditions)
}

fn is_hydrogen(conditions: &AtomQuery) -> bool {
    match conditions {
        AtomQuery::Primitive(AtomPrimitive::AtomicNum(1)) => true,
        AtomQuery::Primitive(AtomPrimitive::Symbol(symbol)) => symbol == "H",
        AtomQuery::And(a, b) => is_hydrogen(a) || is_hydrogen(b),
        _ => false,
    }
}

fn has_isotope(conditions: &AtomQuery) -> bool {
    match conditions {
        AtomQuery::Primitive(AtomPrimitive::Isotope(_)) => true,
        AtomQuery::And(a, b) => has_isotope(a) || has_isotope(b),
        _ => false,
    }
}

/// Returns `true` if no atom but hydrogen meets the conditions.
fn is_impossible(conditions: &AtomQuery) -> bool {
    match conditions {
        AtomQuery::Primitive(AtomPrimitive::Recursive(environment)) => needs_hydrogen(environment),
        AtomQuery::Primitive(_) => is_hydrogen(conditions),
        AtomQuery::And(a, b) => is_impossible(a) || is_impossible(b),
        AtomQuery::Or(a, b) => is_impossible(a) && is_impossible(b),
        AtomQuery::Not(_) => false,
    }
}

fn with_merged_environments(conditions: &AtomQuery) -> AtomQuery {
    let inner = |conditions: &AtomQuery| Box::new(with_merged_environments(conditions));
    match conditions {
        AtomQuery::Primitive(AtomPrimitive::Recursive(environment)) => {
            let environment = Box::new(merge(environment, Some(0)));
            AtomQuery::Primitive(AtomPrimitive::Recursive(environment))
        }
        AtomQuery::Primitive(primitive) => AtomQuery::Primitive(primitive.clone()),
        AtomQuery::And(a, b) => AtomQuery::And(inner(a), inner(b)),
        AtomQuery::Or(a, b) => AtomQuery::Or(inner(a), inner(b)),
        AtomQuery::Not(inside) => AtomQuery::Not(inner(inside)),
    }
}
