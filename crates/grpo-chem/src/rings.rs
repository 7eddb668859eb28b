//! Ring counts that are used for the scores.

use chematic::core::{AtomIdx, BondOrder, Molecule};
use chematic::perception::ring_atom_flags;

/// Counts based on the symmetrized smallest set of smallest rings in RDKit.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RingCounts {
    /// Number of atoms that are the only atom shared by two rings (`CalcNumSpiroAtoms`).
    pub spiro_atoms: usize,
    /// Number of atoms at the ends of a path of two or more bonds shared by two rings
    /// (`CalcNumBridgeheadAtoms`).
    pub bridgeheads: usize,
    /// Whether a ring has more than eight atoms.
    pub macrocycle: bool,
}

/// Computes the counts. Each entry of `rings` contains the atoms in ring order.
pub(crate) fn count_rings(rings: &[Vec<usize>]) -> RingCounts {
    let bonds: Vec<Vec<(usize, usize)>> = rings.iter().map(|ring| ring_bonds(ring)).collect();
    let mut spiro = Vec::new();
    let mut bridgeheads = Vec::new();
    for (i, first) in rings.iter().enumerate() {
        for (j, second) in rings.iter().enumerate().take(i) {
            let mut shared = first.iter().filter(|atom| second.contains(atom));
            if let (Some(atom), None) = (shared.next(), shared.next()) {
                spiro.push(*atom);
            }
            bridgeheads.extend(path_ends(&bonds[i], &bonds[j]));
        }
    }
    RingCounts {
        spiro_atoms: distinct(spiro),
        bridgeheads: distinct(bridgeheads),
        macrocycle: rings.iter().any(|ring| ring.len() > LARGEST_SMALL_RING),
    }
}

/// Returns the number of aromatic rings as defined by QED. RDKit deletes all matches of
/// `[$([A;R][!a])]`, i.e. aliphatic ring atoms with an aliphatic neighbor, and counts the smallest
/// rings in the rest: bonds + components − atoms.
pub(crate) fn count_aromatic_rings(view: &Molecule) -> u32 {
    let in_ring = ring_atom_flags(view);
    let kept: Vec<bool> = (0..view.atom_count())
        .map(|atom| {
            let index = AtomIdx(atom as u32);
            // The implicit bond in the pattern is single or aromatic, so a `=O` on a ring carbon is
            // not an aliphatic neighbor.
            let has_aliphatic_neighbor = || {
                view.neighbors(index).any(|(other, bond)| {
                    !view.atom(other).aromatic && is_single_or_aromatic(view.bond(bond).order)
                })
            };
            !in_ring[atom] || view.atom(index).aromatic || !has_aliphatic_neighbor()
        })
        .collect();

    let mut forest = Forest::new(view.atom_count());
    let mut cycles = 0;
    for (_, bond) in view.bonds() {
        let ends = (bond.atom1.0 as usize, bond.atom2.0 as usize);
        // In RDKit, dative and zero-order bonds are not part of rings.
        let closes_rings = !matches!(bond.order, BondOrder::Zero | BondOrder::Dative);
        if closes_rings && kept[ends.0] && kept[ends.1] && !forest.join(ends.0, ends.1) {
            cycles += 1;
        }
    }
    cycles
}

/// Returns `true` if the toolkit may have missed an aromatic ring, e.g. in 2,5-bridged furans and
/// thiophenes.
///
/// In RDKit, O or S in a ring of nine or more atoms remains aromatic, unless a smaller ring with
/// this atom comes first in its list of rings. The toolkit lists rings in a different order and
/// disagreed with RDKit 2026.09.1 on 1,180 of 3,167 SMILES of this type. `rings` must be the rings
/// of `model`.
pub(crate) fn has_bridging_heteroarene(model: &Molecule, rings: &[Vec<usize>]) -> bool {
    let is_conjugated = |atom: usize| {
        let index = AtomIdx(atom as u32);
        let is_double =
            |(_, bond): (AtomIdx, _)| matches!(model.bond(bond).order, BondOrder::Double);
        model.atom(index).aromatic || model.neighbors(index).any(is_double)
    };
    let is_bridge = |atom: usize| {
        let index = AtomIdx(atom as u32);
        let of = model.atom(index);
        let is_divalent = matches!(of.element.atomic_number(), 8 | 16) && of.charge == 0;
        is_divalent && !of.aromatic && model.neighbors(index).count() == 2
    };
    rings.iter().filter(|ring| ring.len() <= LARGEST_SMALL_RING).any(|ring| {
        let in_large_ring = |atom: &usize| {
            rings.iter().any(|other| other.len() > LARGEST_SMALL_RING && other.contains(atom))
        };
        ring.iter().any(|atom| is_bridge(*atom) && in_large_ring(atom))
            && ring.iter().all(|atom| is_bridge(*atom) || is_conjugated(*atom))
    })
}

/// Maximum size of a ring that is not a macrocycle.
const LARGEST_SMALL_RING: usize = 8;

fn is_single_or_aromatic(order: BondOrder) -> bool {
    matches!(order, BondOrder::Single | BondOrder::Up | BondOrder::Down | BondOrder::Aromatic)
}

fn ring_bonds(ring: &[usize]) -> Vec<(usize, usize)> {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(&a, &b)| (a.min(b), a.max(b))).collect()
}

/// Returns the atoms at the ends of the path shared by two rings, if it consists of at least two
/// bonds.
fn path_ends(first: &[(usize, usize)], second: &[(usize, usize)]) -> Vec<usize> {
    let shared: Vec<_> = first.iter().filter(|bond| second.contains(bond)).collect();
    if shared.len() < 2 {
        return Vec::new();
    }
    let ends: Vec<usize> = shared.iter().flat_map(|bond| [bond.0, bond.1]).collect();
    ends.iter()
        .copied()
        .filter(|end| ends.iter().filter(|other| *other == end).count() == 1)
        .collect()
}

fn distinct(mut atoms: Vec<usize>) -> usize {
    atoms.sort_unstable();
    atoms.dedup();
    atoms.len()
}

/// A disjoint-set forest. A bond between two atoms of the same set closes a cycle.
struct Forest(Vec<usize>);

impl Forest {
    fn new(atoms: usize) -> Self {
        Self((0..atoms).collect())
    }

    fn root(&mut self, mut atom: usize) -> usize {
        while self.0[atom] != atom {
            self.0[atom] = self.0[self.0[atom]];
            atom = self.0[atom];
        }
        atom
    }

    /// Merges two sets. Returns `false` if they were already the same set.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a] = b;
        a != b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rings: &[&[usize]], spiro_atoms: usize, bridgeheads: usize, macrocycle: bool) {
        let rings: Vec<Vec<usize>> = rings.iter().map(|ring| ring.to_vec()).collect();
        assert_eq!(
            count_rings(&rings),
            RingCounts { spiro_atoms, bridgeheads, macrocycle },
            "{rings:?}"
        );
    }

    #[test]
    fn counts_spiro_and_bridgehead_atoms() {
        check(&[], 0, 0, false);
        check(&[&[0, 1, 2]], 0, 0, false);
        // Spiropentane: the rings share one atom.
        check(&[&[0, 1, 2], &[2, 3, 4]], 1, 0, false);
        // Naphthalene: the rings share one bond.
        check(&[&[0, 1, 2, 3, 4, 5], &[4, 5, 6, 7, 8, 9]], 0, 0, false);
        // Norbornane: the two five-membered rings share the path 0-6-3.
        check(&[&[0, 1, 2, 3, 6], &[0, 6, 3, 4, 5]], 0, 2, false);
        // A macrocycle has at least nine atoms.
        check(&[&[0, 1, 2, 3, 4, 5, 6, 7]], 0, 0, false);
        check(&[&[0, 1, 2, 3, 4, 5, 6, 7, 8]], 0, 0, true);
    }
}
