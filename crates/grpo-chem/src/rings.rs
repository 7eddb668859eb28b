//! The rings of molecules, and counts that are used for the scores.

use chematic::core::{AtomIdx, BondOrder, Molecule};
// `MAX_RINGS` only exists with the patch of `crates/chematic-perception/README.md`.
use chematic::perception::{MAX_RINGS, independent_cycles, rdkit_sssr_ring_order, ring_atom_flags};

use crate::error::InvalidSmiles;
use crate::guard::guarded;

/// Returns the atoms of each ring in ring order, like RDKit 2026.09: all relevant cycles, i.e. the
/// union of all minimum cycle bases. The toolkit sanitizes with the same list.
pub(crate) fn rings(model: &Molecule) -> Result<Vec<Vec<AtomIdx>>, InvalidSmiles> {
    guarded(|| rdkit_sssr_ring_order(model))?.ok_or_else(too_many_rings)
}

pub(crate) fn too_many_rings() -> InvalidSmiles {
    InvalidSmiles::Unsupported { detail: format!("a molecule with more than {MAX_RINGS} rings") }
}

/// Counts based on all rings.
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
pub(crate) fn count_rings(rings: &[Vec<AtomIdx>]) -> RingCounts {
    let bonds: Vec<Vec<(AtomIdx, AtomIdx)>> = rings.iter().map(|ring| ring_bonds(ring)).collect();
    let (atom_sets, bond_sets) = (Sets::new(rings), Sets::new(&bonds));
    let mut spiro = Vec::new();
    let mut bridgeheads = Vec::new();
    for first in 0..rings.len() {
        for second in 0..first {
            match atom_sets.count_shared(first, second) {
                0 => {}
                1 => spiro.extend(atom_sets.shared(first, second)),
                _ if bond_sets.count_shared(first, second) >= 2 => {
                    let shared: Vec<_> = bond_sets.shared(first, second).collect();
                    bridgeheads.extend(path_ends(&shared));
                }
                _ => {}
            }
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

    let bonds = view.bonds().filter(|(_, bond)| closes_rings(bond.order));
    let ends = bonds.map(|(_, bond)| (bond.atom1.0 as usize, bond.atom2.0 as usize));
    independent_cycles(view.atom_count(), ends.filter(|&(a, b)| kept[a] && kept[b])) as u32
}

/// Maximum size of a ring that is not a macrocycle.
const LARGEST_SMALL_RING: usize = 8;

/// In RDKit, dative and zero-order bonds are not part of rings.
fn closes_rings(order: BondOrder) -> bool {
    !matches!(order, BondOrder::Zero | BondOrder::Dative)
}

fn is_single_or_aromatic(order: BondOrder) -> bool {
    matches!(order, BondOrder::Single | BondOrder::Up | BondOrder::Down | BondOrder::Aromatic)
}

fn ring_bonds(ring: &[AtomIdx]) -> Vec<(AtomIdx, AtomIdx)> {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(&a, &b)| (a.min(b), a.max(b))).collect()
}

/// Returns the atoms at the ends of the path of bonds that two rings share.
fn path_ends(shared: &[(AtomIdx, AtomIdx)]) -> Vec<AtomIdx> {
    let mut ends: Vec<AtomIdx> = shared.iter().flat_map(|bond| [bond.0, bond.1]).collect();
    ends.sort_unstable();
    ends.chunk_by(AtomIdx::eq).filter(|same| same.len() == 1).map(|same| same[0]).collect()
}

fn distinct(mut atoms: Vec<AtomIdx>) -> usize {
    atoms.sort_unstable();
    atoms.dedup();
    atoms.len()
}

/// The members of each ring as a set of bits.
struct Sets<T> {
    /// All members in ascending order. The index of a member is its bit.
    members: Vec<T>,
    words: usize,
    bits: Vec<u64>,
}

impl<T: Copy + Ord> Sets<T> {
    fn new(rings: &[Vec<T>]) -> Self {
        let mut members: Vec<T> = rings.iter().flatten().copied().collect();
        members.sort_unstable();
        members.dedup();
        let words = members.len().div_ceil(64);
        let mut bits = vec![0; rings.len() * words];
        for (ring, of) in rings.iter().enumerate() {
            for bit in of.iter().filter_map(|member| members.binary_search(member).ok()) {
                bits[ring * words + bit / 64] |= 1 << (bit % 64);
            }
        }
        Self { members, words, bits }
    }

    fn common(&self, first: usize, second: usize) -> impl Iterator<Item = u64> {
        let of = |ring: usize| &self.bits[ring * self.words..][..self.words];
        of(first).iter().zip(of(second)).map(|(a, b)| a & b)
    }

    fn count_shared(&self, first: usize, second: usize) -> u32 {
        self.common(first, second).map(u64::count_ones).sum()
    }

    /// Returns the members that two rings share.
    fn shared(&self, first: usize, second: usize) -> impl Iterator<Item = T> {
        self.common(first, second).enumerate().flat_map(move |(word, common)| {
            let is_set = move |bit: &usize| (common >> bit) & 1 != 0;
            (0..64).filter(is_set).map(move |bit| self.members[word * 64 + bit])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rings: &[&[usize]], spiro_atoms: usize, bridgeheads: usize, macrocycle: bool) {
        let atoms = |ring: &&[usize]| ring.iter().map(|atom| AtomIdx(*atom as u32)).collect();
        let rings: Vec<Vec<AtomIdx>> = rings.iter().map(atoms).collect();
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
