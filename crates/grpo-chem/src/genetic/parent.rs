//! Parents, and the conditions for their children.

use chematic::core::{AtomIdx, BondEntry, BondIdx, BondOrder};

use super::graph::KekuleGraph;
use crate::molecule::Molecule;
use crate::rings::rings;

/// Largest ring of a child, unless a parent has a larger one.
const LARGEST_RING: usize = 6;

/// A molecule with the properties that the operators need.
pub(super) struct Parent {
    pub(super) graph: KekuleGraph,
    canonical: String,
    ring_atoms: Vec<bool>,
    /// The bonds that are part of rings, in ascending order.
    pub(super) ring_bonds: Vec<[usize; 2]>,
    largest_ring: usize,
    ring_faults: usize,
}

impl Parent {
    pub(super) fn new(molecule: &Molecule) -> Option<Self> {
        let graph = KekuleGraph::new(molecule)?;
        let mut ring_bonds: Vec<[usize; 2]> = graph
            .bonds()
            .filter(|bond| graph.component(bond[0], &[*bond]).contains(&bond[1]))
            .collect();
        ring_bonds.sort_unstable();
        let mut ring_atoms = vec![false; graph.atoms().max()? + 1];
        ring_bonds.iter().flatten().for_each(|atom| ring_atoms[*atom] = true);
        let largest_ring = graph.rings()?.iter().map(Vec::len).max().unwrap_or(0);
        let canonical = molecule.canonical_smiles().to_owned();
        let ring_faults = ring_faults(molecule)?;
        Some(Self { graph, canonical, ring_atoms, ring_bonds, largest_ring, ring_faults })
    }

    pub(super) fn is_in_ring(&self, atom: usize) -> bool {
        self.ring_atoms[atom]
    }

    pub(super) fn is_ring_bond(&self, a: usize, b: usize) -> bool {
        self.ring_bonds.binary_search(&[a.min(b), a.max(b)]).is_ok()
    }

    /// Returns `true` for bonds that may be edited. Bonds between two charged atoms are kept.
    pub(super) fn is_editable(&self, a: usize, b: usize) -> bool {
        !(self.graph.is_charged(a) && self.graph.is_charged(b))
    }
}

/// Returns the canonical SMILES of a child, if it is valid, differs from its parents and has an
/// allowed size.
pub(super) fn accepted(
    child: &KekuleGraph,
    parents: &[&Parent],
    min_atoms: usize,
    limit: f64,
) -> Option<String> {
    let atoms = child.heavy_atoms();
    let largest_ring =
        parents.iter().map(|parent| parent.largest_ring).fold(LARGEST_RING, usize::max);
    let is_plausible = atoms >= min_atoms
        && (atoms as f64) < limit
        && child.has_valid_valences()
        && child.rings()?.iter().all(|ring| ring.len() <= largest_ring);
    if !is_plausible {
        return None;
    }
    let molecule = Molecule::parse(&child.to_smiles()?).ok()?;
    let is_new = parents.iter().all(|parent| parent.canonical != molecule.canonical_smiles());
    let allowed_faults = parents.iter().map(|parent| parent.ring_faults).max()?;
    let is_valid = is_new && ring_faults(&molecule)? <= allowed_faults;
    is_valid.then(|| molecule.into_canonical())
}

/// Counts ring atoms with two double bonds to other ring atoms, triple bonds in rings, and double
/// bonds between atoms of rings with three or four atoms. `None` if the toolkit panics.
fn ring_faults(molecule: &Molecule) -> Option<usize> {
    let model = molecule.model();
    let rings = rings(model).ok()?;
    let is_in = |atom: AtomIdx, max: usize| {
        rings.iter().any(|ring| ring.len() <= max && ring.contains(&atom))
    };
    let is_allene = |atom: AtomIdx| {
        let is_double = |(other, bond): &(AtomIdx, BondIdx)| {
            model.bond(*bond).order == BondOrder::Double && is_in(*other, usize::MAX)
        };
        is_in(atom, usize::MAX) && model.neighbors(atom).filter(is_double).count() > 1
    };
    let is_strained = |bond: &BondEntry| match bond.order {
        BondOrder::Double => is_in(bond.atom1, 4) && is_in(bond.atom2, 4),
        BondOrder::Triple => {
            rings.iter().any(|ring| [bond.atom1, bond.atom2].iter().all(|atom| ring.contains(atom)))
        }
        _ => false,
    };
    let allenes = model.atoms().filter(|(atom, _)| is_allene(*atom)).count();
    Some(allenes + model.bonds().filter(|(_, bond)| is_strained(bond)).count())
}
