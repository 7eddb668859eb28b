//! `chematic-perception` 1.2.1 with the ring set of RDKit 2026.09.
//!
//! All items are those of the released crate, except for the two functions below, which hide the
//! originals. The toolkit's sanitization calls [`rdkit_symmetrized_sssr`].

mod relevant_rings;

use chematic_core::{AtomIdx, BondOrder, Molecule};
pub use chematic_perception_original::*;

pub use crate::relevant_rings::{MAX_RINGS, independent_cycles};

/// Returns the rings of a graph like RDKit's `RingInfo::atomRings`: all relevant cycles, smallest
/// first, each as its atoms in ring order.
///
/// `bonds` are in the order of RDKit's indices, each with whether it can be part of a ring. `None`
/// if there are more than [`MAX_RINGS`].
pub fn rdkit_symmetrized_sssr(
    n_atoms: usize,
    bonds: &[(usize, usize, bool)],
) -> Option<Vec<Vec<usize>>> {
    let legacy = || chematic_perception_original::rdkit_symmetrized_sssr(n_atoms, bonds);
    relevant_rings::relevant_rings(n_atoms, bonds, legacy)
}

/// Returns the rings of a molecule, as [`rdkit_symmetrized_sssr`] does for a graph.
pub fn rdkit_sssr_ring_order(molecule: &Molecule) -> Option<Vec<Vec<AtomIdx>>> {
    let is_dative = rdkit_organometallic_dative_bonds(molecule);
    let in_rings = molecule.rdkit_bond_order().into_iter().map(|index| {
        let bond = molecule.bond(index);
        // In RDKit, dative and zero-order bonds are not part of rings.
        let closes_rings = !matches!(bond.order, BondOrder::Zero | BondOrder::Dative);
        let is_dative = is_dative[index.0 as usize];
        (bond.atom1.0 as usize, bond.atom2.0 as usize, closes_rings && !is_dative)
    });
    let bonds: Vec<(usize, usize, bool)> = in_rings.collect();
    let legacy = || {
        let rings = chematic_perception_original::rdkit_sssr_ring_order(molecule)?;
        let atoms = |ring: Vec<AtomIdx>| ring.into_iter().map(|atom| atom.0 as usize).collect();
        Some(rings.into_iter().map(atoms).collect())
    };
    let rings = relevant_rings::relevant_rings(molecule.atom_count(), &bonds, legacy)?;
    let atoms = |ring: Vec<usize>| ring.into_iter().map(|atom| AtomIdx(atom as u32)).collect();
    Some(rings.into_iter().map(atoms).collect())
}
