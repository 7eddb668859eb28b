//! Genetic operators: new molecules from one or two others.
//!
//! [`mutate`] and [`crossover`] have the operators and probabilities of the graph-based genetic
//! algorithm in Jensen, "A graph-based genetic algorithm and generative model/Monte Carlo tree
//! search for the exploration of chemical space", Chemical Science 10 (2019) 3567–3572. It is a
//! baseline of GuacaMol and PMO. Tripp and Hernández-Lobato, "Genetic algorithms are strong
//! baselines for molecule generation" (2023), and Genetic GFN (2024) generate offspring with it.
//!
//! Differences from that algorithm:
//! - Molecules are edited in their Kekulé structure, and hydrogen fills the valences, so that atoms
//!   can also be appended to charged atoms and to `[nH]`.
//! - Charges are kept: charged atoms are not deleted or replaced, and bonds between two charged atoms,
//!   e.g. in nitro groups, are not edited.
//! - Sulfur and phosphorus with more than their smallest valence need a double bond and have no
//!   hydrogen. No ring contains a triple bond.
//! - The conditions for rings apply to what is new: a ring may be as large as the largest one of a
//!   parent, and have as many strained bonds as a parent has.
//! - A new neighbor of a stereocenter takes the place of the one that was removed, or of hydrogen.
//! - Only the largest component of a parent is used.
//!
//! Children depend only on the parents and the random numbers, not on the spelling of the SMILES or
//! on the machine.

mod crossover;
mod graph;
mod mutation;
mod parent;
mod random;
#[cfg(test)]
mod tests;

use crate::molecule::Molecule;
use parent::Parent;
use random::shuffled;

/// Number of random operators that are tried before a pair of parents is given up.
const ATTEMPTS: usize = 50;

/// Number of random edits that are tried for an operator.
const EDITS: usize = 50;

/// The allowed number of heavy atoms of a child: at least `min`, and less than a random number with
/// the given mean and standard deviation. By default, the size is not limited.
///
/// The random number is the sum of twelve uniform numbers, which is approximately normal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Smallest number of heavy atoms.
    pub min: usize,
    /// Mean of the random limit.
    pub mean: f64,
    /// Standard deviation of the random limit.
    pub deviation: f64,
}

impl Size {
    /// The limits in Jensen's paper: at least 6 atoms, and less than 39.15 ± 3.50.
    pub const JENSEN: Self = Self { min: 6, mean: 39.15, deviation: 3.50 };
}

impl Default for Size {
    fn default() -> Self {
        Self { min: 1, mean: f64::INFINITY, deviation: 0.0 }
    }
}

/// Returns the canonical SMILES of a molecule that differs from `parent` by one edit: an atom is
/// inserted, appended, deleted or replaced, the order of a bond is changed, or a ring is opened or
/// closed.
///
/// `random` returns uniform numbers. The number of calls varies. Returns `None` if no valid child
/// was found, e.g. because of `size`, and for molecules with wildcards or dative bonds.
pub fn mutate(parent: &Molecule, size: &Size, mut random: impl FnMut() -> u32) -> Option<String> {
    let parent = Parent::new(parent)?;
    let random = &mut random;
    (0..ATTEMPTS).find_map(|_| {
        let limit = size.mean + size.deviation * random::normal(random);
        let mutation = mutation::Mutation::draw(&parent, random);
        let sites = mutation.sites(&parent);
        shuffled(sites, random).take(EDITS).find_map(|site| {
            let child = mutation.apply(&parent, &site)?;
            parent::accepted(&child, &[&parent], size.min, limit)
        })
    })
}

/// Returns the canonical SMILES of a molecule that consists of a piece of each parent.
///
/// With equal probability, a single bond outside of rings is cut in both parents and two of the
/// pieces are joined, or two bonds of a ring are cut in both parents and two of the pieces are
/// joined to a new ring. `random` returns uniform numbers. The number of calls varies. Returns
/// `None` if no valid child that differs from both parents was found, e.g. because of `size`, and
/// for molecules with wildcards or dative bonds.
pub fn crossover(
    a: &Molecule,
    b: &Molecule,
    size: &Size,
    mut random: impl FnMut() -> u32,
) -> Option<String> {
    let parents = [&Parent::new(a)?, &Parent::new(b)?];
    let random = &mut random;
    (0..ATTEMPTS).find_map(|_| {
        let limit = size.mean + size.deviation * random::normal(random);
        let cuts = crossover::draw(parents, random)?;
        let joints = crossover::joints(&cuts);
        shuffled(joints, random).take(EDITS).find_map(|joint| {
            let child = crossover::join(parents, &cuts, &joint)?;
            parent::accepted(&child, &parents, size.min, limit)
        })
    })
}
