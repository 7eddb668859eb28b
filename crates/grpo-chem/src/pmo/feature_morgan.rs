//! Morgan fingerprints of pharmacophore features (FCFP).
//!
//! Rogers, Hahn, "Extended-connectivity fingerprints", Journal of Chemical Information and Modeling
//! 50 (2010) 742–754. Features and identifiers are those of RDKit's `GetMorganFingerprint` with
//! `useFeatures`.

use std::sync::LazyLock;

use chematic::core::{AtomIdx, BondOrder, Molecule as Graph};

use crate::error::InvalidSmiles;
use crate::fingerprint::Counts;
use crate::query::AtomFeatures;

/// Computes the fingerprint of environments with a radius of up to two bonds (FCFP4). `view` must
/// use RDKit's aromaticity.
pub(super) fn fcfp4(view: &Graph) -> Result<Counts, InvalidSmiles> {
    /// Donor, acceptor, aromatic, halogen, basic and acidic atoms.
    static FEATURES: LazyLock<AtomFeatures> =
        LazyLock::new(|| AtomFeatures::new(include_str!("../../data/morgan_features.smarts")));
    let mut features = vec![0; view.atom_count()];
    for (bit, atoms) in FEATURES.atoms(view)?.iter().enumerate() {
        for atom in atoms {
            features[*atom] |= 1 << bit;
        }
    }
    Ok(Counts::of(environments(view, features, 2)))
}

/// The bonds of an environment as a set of bits.
type Bonds = Vec<u64>;

/// An environment of an atom. The smallest identifier comes first of several with the same bonds.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Environment {
    bonds: Bonds,
    id: u32,
    atom: usize,
}

/// Returns the identifiers of all environments with up to `radius` bonds. The atoms alone are
/// identified by `invariants`.
///
/// An environment with the same bonds as one of a smaller radius, or as another atom's, is left
/// out. Its atom gets no further environments, and its identifier becomes 0.
fn environments(view: &Graph, mut invariants: Vec<u32>, radius: u32) -> Vec<u32> {
    let mut ids = invariants.clone();
    let mut bonds: Vec<Bonds> = vec![vec![0; view.bond_count().div_ceil(64)]; view.atom_count()];
    let mut is_finished = vec![false; view.atom_count()];
    let mut known: Vec<Bonds> = Vec::new();
    for layer in 0..radius {
        let mut found: Vec<Environment> = Vec::new();
        let mut next = vec![0; view.atom_count()];
        for atom in 0..view.atom_count() {
            if is_finished[atom] || view.degree(AtomIdx(atom as u32)) == 0 {
                is_finished[atom] = true;
                continue;
            }
            let id = identifier(view, atom, layer, &invariants);
            next[atom] = id;
            found.push(Environment { bonds: grown(view, atom, &bonds), id, atom });
        }
        for environment in &found {
            bonds[environment.atom].clone_from(&environment.bonds);
        }
        found.sort_unstable();
        for Environment { bonds, id, atom } in found {
            if known.contains(&bonds) {
                is_finished[atom] = true;
            } else {
                ids.push(id);
                known.push(bonds);
            }
        }
        invariants = next;
    }
    ids
}

/// Returns the bonds of an atom together with those of its neighbors' environments.
fn grown(view: &Graph, atom: usize, bonds: &[Bonds]) -> Bonds {
    let mut grown = bonds[atom].clone();
    for (neighbor, bond) in view.neighbors(AtomIdx(atom as u32)) {
        grown[bond.0 as usize / 64] |= 1 << (bond.0 % 64);
        for (word, other) in grown.iter_mut().zip(&bonds[neighbor.0 as usize]) {
            *word |= other;
        }
    }
    grown
}

/// Combines the identifier of an atom with those of its neighbors and the bonds to them.
fn identifier(view: &Graph, atom: usize, layer: u32, invariants: &[u32]) -> u32 {
    let mut neighbors: Vec<(u32, u32)> = view
        .neighbors(AtomIdx(atom as u32))
        .map(|(neighbor, bond)| (bond_type(view.bond(bond).order), invariants[neighbor.0 as usize]))
        .collect();
    neighbors.sort_unstable();
    let own = hash_combine(layer, invariants[atom]);
    neighbors.into_iter().fold(own, |hash, (bond, neighbor)| {
        hash_combine(hash, hash_combine(hash_combine(0, bond), neighbor))
    })
}

/// Returns the number of a bond type in RDKit.
fn bond_type(order: BondOrder) -> u32 {
    match order {
        BondOrder::Double => 2,
        BondOrder::Triple => 3,
        BondOrder::Quadruple => 4,
        BondOrder::Aromatic => 12,
        BondOrder::Dative => 17,
        BondOrder::Zero => 21,
        _ => 1,
    }
}

/// The hash function of Boost.
fn hash_combine(seed: u32, value: u32) -> u32 {
    let mixed = value.wrapping_add(0x9e37_79b9).wrapping_add(seed << 6).wrapping_add(seed >> 2);
    seed ^ mixed
}
