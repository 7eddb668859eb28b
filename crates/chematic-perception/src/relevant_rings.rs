//! The ring set of RDKit 2026.09: all relevant cycles.
//!
//! Since release 2026.09, RDKit's list of rings consists of all relevant cycles, i.e. the union of
//! all minimum cycle bases, from the smallest ring to the largest. The list of earlier releases lacks
//! rings of cages and macrocycles depending on the order of atoms.

use std::collections::HashSet;

use chematic_perception_original::relevant_cycles_from_graph;

/// Maximum number of rings. Molecules with more (such as \[10\]cycloparaphenylene with 1,034) are
/// refused in every spelling, because algorithms that compare all pairs of rings would take long.
pub const MAX_RINGS: usize = 600;

/// Returns the relevant cycles of a graph. A bond is a pair of atoms and whether it can be part of
/// a ring. `legacy` computes the list of earlier releases, which is complete for most molecules.
/// `None` if there are more than [`MAX_RINGS`].
pub(crate) fn relevant_rings(
    n_atoms: usize,
    bonds: &[(usize, usize, bool)],
    legacy: impl FnOnce() -> Option<Vec<Vec<usize>>>,
) -> Option<Vec<Vec<usize>>> {
    let bonds: Vec<(usize, usize, bool)> = bonds.iter().copied().filter(|bond| bond.2).collect();
    let cycles = independent_cycles(n_atoms, bonds.iter().map(|&(a, b, _)| (a, b)));
    if cycles == 0 {
        return Some(Vec::new());
    }
    let Some(found) = legacy() else {
        return sorted(relevant_cycles_from_graph(n_atoms, &bonds, MAX_RINGS).ok()?);
    };
    let graph = Neighbors::new(n_atoms, &bonds);
    let ring_bonds: Vec<Vec<usize>> = found.iter().map(|ring| graph.bonds_of(ring)).collect();
    let systems = Systems::new(bonds.len(), &ring_bonds);
    let of_bonds = |is_in: &dyn Fn(usize) -> bool| {
        let bonds = bonds.iter().enumerate().filter(|(bond, _)| is_in(*bond));
        independent_cycles(n_atoms, bonds.map(|(_, &(a, b, _))| (a, b)))
    };
    let ambiguous = of_bonds(&|bond| systems.is_ambiguous(bond));
    // The legacy algorithm misses rings of some cages.
    let is_complete = systems.unambiguous_rings() + ambiguous == cycles;
    if is_complete && ambiguous == 0 {
        return sorted(found);
    }
    // Other rings may replace rings of these systems.
    let is_open = |bond: &usize| !is_complete || systems.is_ambiguous(*bond);
    let open: Vec<_> = (0..bonds.len()).filter(is_open).map(|bond| bonds[bond]).collect();
    let relevant = relevant_cycles_of(&open)?;
    let relevant_bonds: Vec<Vec<usize>> =
        relevant.iter().map(|ring| graph.bonds_of(ring)).collect();
    let known: HashSet<&Vec<usize>> = ring_bonds.iter().collect();
    let missing: Vec<bool> = relevant_bonds.iter().map(|ring| !known.contains(ring)).collect();
    let wanted: HashSet<&Vec<usize>> = relevant_bonds.iter().collect();
    let is_kept = |ring: &Vec<usize>| !is_open(&ring[0]) || wanted.contains(ring);
    let kept = found.into_iter().zip(&ring_bonds).filter(|(_, ring)| is_kept(ring));
    let mut rings: Vec<Vec<usize>> = kept.map(|(ring, _)| ring).collect();
    let added = relevant.into_iter().zip(missing).filter(|(_, is_missing)| *is_missing);
    rings.extend(added.map(|(ring, _)| ring));
    sorted(rings)
}

/// RDKit lists small rings first, which decides whether O and S that bridge a macrocycle are
/// aromatic. The order of rings of equal size is that of the legacy list.
fn sorted(mut rings: Vec<Vec<usize>>) -> Option<Vec<Vec<usize>>> {
    rings.sort_by_key(Vec::len);
    (rings.len() <= MAX_RINGS).then_some(rings)
}

/// Computes relevant cycles of a part of a graph, whose atoms are numbered again.
fn relevant_cycles_of(bonds: &[(usize, usize, bool)]) -> Option<Vec<Vec<usize>>> {
    let mut atoms: Vec<usize> = bonds.iter().flat_map(|bond| [bond.0, bond.1]).collect();
    atoms.sort_unstable();
    atoms.dedup();
    let number = |atom: usize| atoms.binary_search(&atom).unwrap_or_default();
    let bonds: Vec<_> = bonds.iter().map(|&(a, b, _)| (number(a), number(b), true)).collect();
    let rings = relevant_cycles_from_graph(atoms.len(), &bonds, MAX_RINGS).ok()?;
    let named = |ring: Vec<usize>| ring.into_iter().map(|atom| atoms[atom]).collect();
    Some(rings.into_iter().map(named).collect())
}

/// Systems of rings that share bonds.
///
/// The rings of a system are its only relevant cycles if they share at most one bond with each
/// other and are fused without forming a cycle of rings: the sum of two or more of them is longer
/// than each of them. Other systems are ambiguous.
struct Systems {
    /// Index of the first ring with each bond.
    first_ring: Vec<Option<usize>>,
    forest: Forest,
    /// Whether the system is ambiguous, for each root of `forest`.
    ambiguous: Vec<bool>,
}

impl Systems {
    fn new(bonds: usize, ring_bonds: &[Vec<usize>]) -> Self {
        let mut forest = Forest::new(ring_bonds.len());
        let mut first_ring: Vec<Option<usize>> = vec![None; bonds];
        let mut is_shared = vec![false; bonds];
        let mut ambiguous_rings = Vec::new();
        for (ring, of) in ring_bonds.iter().enumerate() {
            for &bond in of {
                match first_ring[bond] {
                    None => first_ring[bond] = Some(ring),
                    Some(other) => {
                        let is_tree = forest.join(other, ring);
                        if !is_tree || is_shared[bond] {
                            ambiguous_rings.push(ring);
                        }
                        is_shared[bond] = true;
                    }
                }
            }
        }
        let mut ambiguous = vec![false; ring_bonds.len()];
        for ring in &ambiguous_rings {
            ambiguous[forest.root(*ring)] = true;
        }
        Self { first_ring, forest, ambiguous }
    }

    fn unambiguous_rings(&self) -> usize {
        let is_unambiguous = |ring: &usize| !self.ambiguous[self.forest.root_of(*ring)];
        (0..self.ambiguous.len()).filter(is_unambiguous).count()
    }

    fn is_ambiguous(&self, bond: usize) -> bool {
        self.first_ring[bond].is_some_and(|ring| self.ambiguous[self.forest.root_of(ring)])
    }
}

/// Neighbors of each atom with the indices of their bonds.
struct Neighbors {
    starts: Vec<usize>,
    neighbors: Vec<(usize, usize)>,
}

impl Neighbors {
    fn new(n_atoms: usize, bonds: &[(usize, usize, bool)]) -> Self {
        let mut starts = vec![0; n_atoms + 1];
        for &(a, b, _) in bonds {
            starts[a + 1] += 1;
            starts[b + 1] += 1;
        }
        for atom in 0..n_atoms {
            starts[atom + 1] += starts[atom];
        }
        let mut next = starts.clone();
        let mut neighbors = vec![(0, 0); 2 * bonds.len()];
        for (bond, &(a, b, _)) in bonds.iter().enumerate() {
            for (atom, other) in [(a, b), (b, a)] {
                neighbors[next[atom]] = (other, bond);
                next[atom] += 1;
            }
        }
        Self { starts, neighbors }
    }

    /// Returns the sorted bonds of a ring.
    fn bonds_of(&self, ring: &[usize]) -> Vec<usize> {
        let next = ring.iter().cycle().skip(1);
        let bond = |(&a, &b): (&usize, &usize)| {
            let of = &self.neighbors[self.starts[a]..self.starts[a + 1]];
            of.iter().find(|(other, _)| *other == b).map(|(_, bond)| *bond)
        };
        let mut bonds: Vec<usize> = ring.iter().zip(next).filter_map(bond).collect();
        bonds.sort_unstable();
        bonds
    }
}

/// Returns the number of independent cycles: bonds + components - atoms.
pub fn independent_cycles(n_atoms: usize, bonds: impl Iterator<Item = (usize, usize)>) -> usize {
    let mut forest = Forest::new(n_atoms);
    bonds.filter(|&(a, b)| !forest.join(a, b)).count()
}

/// A disjoint-set forest.
struct Forest(Vec<usize>);

impl Forest {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn root(&mut self, mut of: usize) -> usize {
        while self.0[of] != of {
            self.0[of] = self.0[self.0[of]];
            of = self.0[of];
        }
        of
    }

    fn root_of(&self, mut of: usize) -> usize {
        while self.0[of] != of {
            of = self.0[of];
        }
        of
    }

    /// Merges two sets. Returns `false` if they were already the same set.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a] = b;
        a != b
    }
}
