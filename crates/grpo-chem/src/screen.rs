//! A quick test that rules out most patterns before the search for a substructure.
//!
//! Filter catalogs have hundreds of patterns, and a molecule contains few of them. A pattern cannot be
//! in a molecule that has too few atoms or bonds of the required kinds. Counting these takes a small
//! fraction of the time of a search. The test may pass a pattern that does not match, never the
//! reverse.

use chematic::core::{AtomIdx, BondOrder, Molecule as Graph};
use chematic::smarts::{AtomPrimitive, AtomQuery, BondPrimitive, BondQuery, QueryMolecule};

/// A set of classes of atoms. Each element of [`ELEMENTS`], and all others together, has a bit for
/// aliphatic atoms and one for aromatic ones.
type Classes = u32;

/// Atomic numbers and symbols of the elements with a class of their own.
const ELEMENTS: [(u8, &str); 13] = [
    (1, "H"),
    (5, "B"),
    (6, "C"),
    (7, "N"),
    (8, "O"),
    (9, "F"),
    (14, "Si"),
    (15, "P"),
    (16, "S"),
    (17, "Cl"),
    (34, "Se"),
    (35, "Br"),
    (53, "I"),
];

/// Number of classes.
const CLASSES: usize = 2 * (ELEMENTS.len() + 1);

const ALL: Classes = (1 << CLASSES) - 1;

/// All aromatic classes.
const AROMATIC: Classes = 0xAAAA_AAAA & ALL;

/// A set of bond orders.
type Orders = u8;

const SINGLE: Orders = 1;
const DOUBLE: Orders = 2;
const TRIPLE: Orders = 4;
const QUADRUPLE: Orders = 8;
const AROMATIC_BOND: Orders = 16;
/// Dative bonds and others, for which each condition is taken to hold.
const OTHER: Orders = 32;
const ALL_ORDERS: Orders = 63;

/// What a molecule must have to contain a pattern.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    /// Sets of classes, with the number of atoms that must be in each.
    atoms: Vec<(Classes, u32)>,
    bonds: Vec<Bonds>,
    /// Atoms that must occur with all of their neighbors.
    environments: Vec<Environment>,
    /// Patterns `$(…)` that must occur too.
    inner: Vec<Screen>,
}

/// Bonds of a kind. The order of their ends is irrelevant.
#[derive(Debug, Clone)]
struct Bonds {
    ends: [Classes; 2],
    orders: Orders,
    count: u32,
}

/// An atom and its neighbors, with the bonds to them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Environment {
    atom: Classes,
    neighbors: Vec<(Orders, Classes)>,
}

/// The atoms and bonds of a molecule, counted by kind.
#[derive(Debug)]
pub(crate) struct Census {
    atoms: [u32; CLASSES],
    bonds: Vec<Bonds>,
    /// The different atoms with their neighbors.
    environments: Vec<Environment>,
    /// Whether the search uses another graph than the one that was counted.
    is_altered: bool,
}

impl Screen {
    pub(crate) fn new(query: &QueryMolecule) -> Self {
        let classes: Vec<Classes> = query.atoms.iter().map(|atom| of_atom(&atom.query)).collect();
        let mut screen = Self {
            atoms: Vec::new(),
            bonds: Vec::new(),
            environments: Vec::new(),
            inner: Vec::new(),
        };
        for &set in &classes {
            if set != ALL && screen.atoms.iter().all(|(other, _)| *other != set) {
                let within = classes.iter().filter(|other| **other & !set == 0).count();
                screen.atoms.push((set, within as u32));
            }
        }
        let mut neighbors = vec![Vec::new(); classes.len()];
        for bond in &query.bonds {
            let ends = [classes[bond.atom1], classes[bond.atom2]];
            let orders = of_bond(&bond.query);
            add(&mut screen.bonds, ends, orders);
            neighbors[bond.atom1].push((orders, ends[1]));
            neighbors[bond.atom2].push((orders, ends[0]));
        }
        screen.environments = distinct_environments(&classes, neighbors);
        for atom in &query.atoms {
            collect_inner(&atom.query, &mut screen.inner);
        }
        screen
    }

    /// Returns `false` if the molecule cannot contain the pattern.
    pub(crate) fn passes(&self, molecule: &Census) -> bool {
        molecule.is_altered
            || self.atoms.iter().all(|(set, needed)| molecule.atoms_in(*set) >= *needed)
                && self.bonds.iter().all(|bond| molecule.has_bonds(bond))
                && self.environments.iter().all(|environment| molecule.has(environment))
                && self.inner.iter().all(|inner| inner.passes(molecule))
    }
}

impl Census {
    /// Counts the atoms and bonds of a graph with the aromaticity that the search uses.
    pub(crate) fn new(graph: &Graph) -> Self {
        let mut census = Self {
            atoms: [0; CLASSES],
            bonds: Vec::new(),
            environments: Vec::new(),
            is_altered: false,
        };
        let class = |index: AtomIdx| {
            let atom = graph.atom(index);
            let number = if atom.wildcard { 0 } else { atom.element.atomic_number() };
            class_of(number, atom.aromatic)
        };
        let mut classes: Vec<Classes> = Vec::with_capacity(graph.atom_count());
        for (index, atom) in graph.atoms() {
            census.atoms[class(index)] += 1;
            classes.push(1 << class(index));
            // The search makes bonds between iron and carbanions dative.
            census.is_altered |= !atom.wildcard && atom.element.atomic_number() == 26;
        }
        let mut neighbors = vec![Vec::new(); classes.len()];
        for (_, bond) in graph.bonds() {
            let atoms = [bond.atom1.0 as usize, bond.atom2.0 as usize];
            let ends = atoms.map(|atom| classes[atom]);
            let order = match bond.order {
                BondOrder::Single | BondOrder::Up | BondOrder::Down => SINGLE,
                BondOrder::Double => DOUBLE,
                BondOrder::Triple => TRIPLE,
                BondOrder::Quadruple => QUADRUPLE,
                BondOrder::Aromatic => AROMATIC_BOND,
                _ => OTHER,
            };
            add(&mut census.bonds, ends, order);
            neighbors[atoms[0]].push((order, ends[1]));
            neighbors[atoms[1]].push((order, ends[0]));
        }
        census.environments = distinct_environments(&classes, neighbors);
        census
    }

    /// Returns whether an atom has at least these neighbors. Each may stand for several of them.
    fn has(&self, wanted: &Environment) -> bool {
        self.environments.iter().any(|found| {
            let has = |(orders, classes): &(Orders, Classes)| {
                let mut neighbors = found.neighbors.iter();
                neighbors.any(|(order, class)| orders & order != 0 && classes & class != 0)
            };
            wanted.atom & found.atom != 0
                && found.neighbors.len() >= wanted.neighbors.len()
                && wanted.neighbors.iter().all(has)
        })
    }

    fn atoms_in(&self, set: Classes) -> u32 {
        let mut left = set;
        let mut sum = 0;
        while left != 0 {
            sum += self.atoms[left.trailing_zeros() as usize];
            left &= left - 1;
        }
        sum
    }

    fn has_bonds(&self, needed: &Bonds) -> bool {
        let [a, b] = needed.ends;
        let mut found = 0;
        for Bonds { ends: [c, d], orders, count } in &self.bonds {
            let fits = a & c != 0 && b & d != 0 || a & d != 0 && b & c != 0;
            if fits && needed.orders & orders != 0 {
                found += count;
                if found >= needed.count {
                    return true;
                }
            }
        }
        false
    }
}

/// Returns the different environments of atoms with these classes and neighbors.
fn distinct_environments(
    classes: &[Classes],
    neighbors: Vec<Vec<(Orders, Classes)>>,
) -> Vec<Environment> {
    let mut distinct: Vec<Environment> = Vec::new();
    for (&atom, mut neighbors) in classes.iter().zip(neighbors) {
        neighbors.sort_unstable();
        let environment = Environment { atom, neighbors };
        if !distinct.contains(&environment) {
            distinct.push(environment);
        }
    }
    distinct
}

/// Counts a bond of a kind.
fn add(bonds: &mut Vec<Bonds>, mut ends: [Classes; 2], orders: Orders) {
    ends.sort_unstable();
    match bonds.iter_mut().find(|known| known.ends == ends && known.orders == orders) {
        Some(known) => known.count += 1,
        None => bonds.push(Bonds { ends, orders, count: 1 }),
    }
}

/// Returns the class of an element.
fn class_of(number: u8, is_aromatic: bool) -> usize {
    let element = ELEMENTS.iter().position(|(other, _)| *other == number);
    2 * element.unwrap_or(ELEMENTS.len()) + usize::from(is_aromatic)
}

/// Returns the classes of an element, which others may share.
fn classes_of(number: u8) -> Classes {
    0b11 << class_of(number, false)
}

/// Returns all classes of atoms that can match.
fn of_atom(query: &AtomQuery) -> Classes {
    match query {
        AtomQuery::Primitive(primitive) => of_primitive(primitive),
        AtomQuery::And(a, b) => of_atom(a) & of_atom(b),
        AtomQuery::Or(a, b) => of_atom(a) | of_atom(b),
        AtomQuery::Not(inner) => match &**inner {
            AtomQuery::Primitive(AtomPrimitive::Aromatic(true)) => ALL & !AROMATIC,
            AtomQuery::Primitive(AtomPrimitive::Aromatic(false)) => AROMATIC,
            AtomQuery::Primitive(
                primitive @ (AtomPrimitive::AtomicNum(_) | AtomPrimitive::Symbol(_)),
            ) => {
                let classes = of_primitive(primitive);
                let is_shared = classes == classes_of(0);
                if is_shared { ALL } else { ALL & !classes }
            }
            _ => ALL,
        },
    }
}

fn of_primitive(primitive: &AtomPrimitive) -> Classes {
    match primitive {
        AtomPrimitive::AtomicNum(number) => classes_of(*number),
        AtomPrimitive::Symbol(symbol) => {
            let element = ELEMENTS.iter().find(|(_, other)| other == symbol);
            classes_of(element.map_or(0, |(number, _)| *number))
        }
        AtomPrimitive::Aromatic(true) => AROMATIC,
        AtomPrimitive::Aromatic(false) => ALL & !AROMATIC,
        AtomPrimitive::Recursive(inner) => {
            inner.atoms.first().map_or(ALL, |first| of_atom(&first.query))
        }
        _ => ALL,
    }
}

/// Adds the patterns `$(…)` that an atom must match, apart from alternatives.
fn collect_inner(query: &AtomQuery, screens: &mut Vec<Screen>) {
    match query {
        AtomQuery::Primitive(AtomPrimitive::Recursive(inner)) => screens.push(Screen::new(inner)),
        AtomQuery::And(a, b) => {
            collect_inner(a, screens);
            collect_inner(b, screens);
        }
        AtomQuery::Primitive(_) | AtomQuery::Or(..) | AtomQuery::Not(_) => {}
    }
}

/// Returns all orders of bonds that can match.
fn of_bond(query: &BondQuery) -> Orders {
    let exact = |primitive: &BondPrimitive| match primitive {
        BondPrimitive::Single => Some(SINGLE),
        BondPrimitive::Double => Some(DOUBLE),
        BondPrimitive::Triple => Some(TRIPLE),
        BondPrimitive::Quadruple => Some(QUADRUPLE),
        BondPrimitive::Aromatic => Some(AROMATIC_BOND),
        _ => None,
    };
    let found = match query {
        BondQuery::Any => SINGLE | AROMATIC_BOND,
        BondQuery::Primitive(BondPrimitive::Up | BondPrimitive::Down) => SINGLE | AROMATIC_BOND,
        BondQuery::Primitive(primitive) => exact(primitive).unwrap_or(ALL_ORDERS),
        BondQuery::And(a, b) => of_bond(a) & of_bond(b),
        BondQuery::Or(a, b) => of_bond(a) | of_bond(b),
        BondQuery::Not(inner) => match &**inner {
            BondQuery::Primitive(primitive) => {
                exact(primitive).map_or(ALL_ORDERS, |orders| ALL_ORDERS & !orders)
            }
            _ => ALL_ORDERS,
        },
    };
    found | OTHER
}

#[cfg(test)]
mod tests {
    use chematic::smiles::rdkit_added_hs_molecule;

    use super::*;
    use crate::query::Pattern;
    use crate::{Molecule, default_alerts};

    const MOLECULES: [&str; 14] = [
        "CC(=O)Oc1ccccc1C(=O)O",
        "O=[N+]([O-])c1ccc(N=Nc2ccccc2)cc1",
        "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
        "C#CCOC(=S)N",
        "OB(O)c1ccsc1",
        "[Na+].CCS(=O)(=O)[O-]",
        "ClC(Cl)(Br)I",
        "C1CC2CCC1C2=NO",
        "[nH]1cccc1C=C[Si](C)(C)C",
        "C[Se]C",
        "*CC",
        "[2H]C([H])C=O",
        "[CH2-][Fe+]C",
        "CP(=O)(OC)OC",
    ];

    fn patterns() -> Vec<(Screen, Pattern)> {
        let others = [
            "[!#6]",
            "[!#1;!C]~[#7,#8]",
            "[#26]",
            "[!Fe]",
            "C!-C",
            "[c,n]:[c,n]",
            "[$(C=O)]",
            "[$(C=O),$(C#C)]~*",
            "[C;!$(C=O)][H]",
            "[#0]",
            "[Se]",
            "*~*~*",
            "[N,O;H1]",
            "[A]!@[a]",
            "F.Cl",
        ];
        let lines = include_str!("../data/moses_filters.smarts").lines();
        let patterns = default_alerts().chain(lines).chain(others).map(|smarts| {
            let pattern = Pattern::embedded(smarts);
            (Screen::new(pattern.query()), pattern)
        });
        patterns.collect()
    }

    /// The screen never rules out a pattern that matches, and it rules out most of the others.
    #[test]
    fn what_is_ruled_out_does_not_match() {
        let patterns = patterns();
        let (mut ruled_out, mut searched) = (0, 0);
        for smiles in MOLECULES {
            let molecule = Molecule::parse(smiles).unwrap();
            let whole = rdkit_added_hs_molecule(molecule.graph()).unwrap();
            for graph in [molecule.model(), &whole] {
                let census = Census::new(graph);
                for (screen, pattern) in &patterns {
                    let matches = pattern.is_in(graph).unwrap();
                    let passes = screen.passes(&census);
                    assert!(passes || !matches, "{} in {smiles}", pattern.smarts());
                    ruled_out += usize::from(!passes);
                    searched += usize::from(passes && !matches && !census.is_altered);
                }
            }
        }
        assert!(40 * searched < ruled_out, "{searched} searched in vain, {ruled_out} ruled out");
    }
}
