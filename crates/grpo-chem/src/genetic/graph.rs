//! A molecule that can be edited: atoms and bonds of a Kekulé structure.
//!
//! Hydrogen atoms fill the valences: a removed bond is replaced with hydrogen, a new bond replaces
//! hydrogen. The valence of an atom never increases, except if its element is changed.

use chematic::core::ez_markers::{EzFact, EzFactEnd, read_ez_facts, write_ez_facts};
use chematic::core::{
    Atom, AtomIdx, BondOrder, Chirality, Element, Molecule as Model, MoleculeBuilder,
    STEREO_H_SENTINEL, apply_kekule, implicit_hcount, kekulize,
};
use chematic::perception::rdkit_symmetrized_sssr;
use chematic::smiles::{parse_template, write};

use crate::guard::guarded;
use crate::molecule::{Molecule, sanitized};

/// A Kekulé structure. The index of an atom never changes.
#[derive(Clone)]
pub(super) struct KekuleGraph {
    atoms: Vec<Option<Node>>,
    /// Double bonds with a known geometry.
    geometries: Vec<Geometry>,
}

#[derive(Clone)]
struct Node {
    /// The atom without aromaticity. Its number of hydrogen atoms is set when it is written.
    label: Atom,
    /// Neighbors and bond orders.
    bonds: Vec<(usize, u8)>,
    /// The sum of bond orders and hydrogen atoms.
    valence: u32,
    /// Whether the valence may decrease to a smaller one of the element. Otherwise, it is constant,
    /// e.g. for charged atoms, radicals and metals.
    is_variable: bool,
    /// The neighbors in the order that the chirality refers to.
    chiral_order: Vec<usize>,
}

/// A hydrogen atom in `chiral_order`.
const HYDROGEN: usize = usize::MAX;

/// A hydrogen atom in `chiral_order` that replaces a removed neighbor.
const VACANCY: usize = usize::MAX - 1;

/// The two ends of a double bond, a neighbor of each end, and its side.
#[derive(Clone)]
struct Geometry([(usize, usize, bool); 2]);

impl KekuleGraph {
    /// Returns the largest component of a molecule, i.e. a salt without its counterion. `None` for
    /// molecules with wildcards or with bonds that have no order, e.g. dative bonds.
    pub(super) fn new(molecule: &Molecule) -> Option<Self> {
        // The atoms of the canonical SMILES, so that children don't depend on the spelling.
        let canonical = molecule.canonical_smiles();
        if molecule.smiles() == canonical {
            return guarded(|| Self::from_model(molecule.model())).ok()?;
        }
        let model = guarded(|| parse_template(canonical).map(|graph| sanitized(&graph)));
        guarded(|| Self::from_model(&model.ok()?.ok()?)).ok()?
    }

    fn from_model(model: &Model) -> Option<Self> {
        let kekule = apply_kekule(model, &kekulize(model).ok()?);
        let mut graph = Self { atoms: Vec::new(), geometries: Vec::new() };
        for (index, atom) in model.atoms() {
            if atom.wildcard {
                return None;
            }
            let bonds: Vec<(usize, u8)> = kekule
                .neighbors(index)
                .map(|(neighbor, bond)| {
                    Some((neighbor.0 as usize, order_of(kekule.bond(bond).order)?))
                })
                .collect::<Option<_>>()?;
            let mut node = Node {
                label: Atom { aromatic: false, atom_map: None, cip_code: None, ..atom.clone() },
                bonds,
                valence: 0,
                is_variable: true,
                chiral_order: chiral_order(model, index),
            };
            let hydrogens = u32::from(implicit_hcount(model, index));
            node.valence = node.order_sum() + hydrogens;
            node.is_variable = atom.charge == 0 && node.hydrogens() == Some(hydrogens);
            graph.atoms.push(Some(node));
        }
        for fact in read_ez_facts(model).unwrap_or_default().0 {
            graph.geometries.push(Geometry(fact.ends.map(|end| {
                let reference = model.bond(end.reference);
                let other =
                    if reference.atom1 == end.atom { reference.atom2 } else { reference.atom1 };
                (end.atom.0 as usize, other.0 as usize, end.up)
            })));
        }
        graph.keep_largest_component();
        Some(graph)
    }

    fn keep_largest_component(&mut self) {
        let mut largest: Vec<usize> = Vec::new();
        let mut known = vec![false; self.atoms.len()];
        for start in 0..self.atoms.len() {
            if !known[start] {
                let component = self.component(start, &[]);
                component.iter().for_each(|atom| known[*atom] = true);
                let heavy =
                    |atoms: &[usize]| atoms.iter().filter(|atom| self.is_heavy(**atom)).count();
                if largest.is_empty() || heavy(&component) > heavy(&largest) {
                    largest = component;
                }
            }
        }
        self.retain(&largest);
    }

    /// Returns the indices of all atoms.
    pub(super) fn atoms(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.atoms.len()).filter(|atom| self.atoms[*atom].is_some())
    }

    /// Returns the two ends of each bond, the smaller index first.
    pub(super) fn bonds(&self) -> impl Iterator<Item = [usize; 2]> + '_ {
        self.atoms().flat_map(move |atom| {
            let larger = self.neighbors(atom).filter(move |other| atom < *other);
            larger.map(move |other| [atom, other])
        })
    }

    pub(super) fn neighbors(&self, atom: usize) -> impl Iterator<Item = usize> + '_ {
        self.atoms[atom].iter().flat_map(|node| node.bonds.iter().map(|bond| bond.0))
    }

    /// Returns the order of the bond between two atoms, or 0 if there is none.
    pub(super) fn order(&self, a: usize, b: usize) -> u8 {
        let bonds = self.atoms[a].iter().flat_map(|node| &node.bonds);
        bonds.filter(|bond| bond.0 == b).map(|bond| bond.1).next().unwrap_or(0)
    }

    /// Returns the number of hydrogen atoms that are bonded to an atom.
    pub(super) fn hydrogens(&self, atom: usize) -> u32 {
        self.atoms[atom].as_ref().and_then(Node::hydrogens).unwrap_or(0)
    }

    pub(super) fn element(&self, atom: usize) -> Option<Element> {
        self.atoms[atom].as_ref().map(|node| node.label.element)
    }

    pub(super) fn is_charged(&self, atom: usize) -> bool {
        self.atoms[atom].as_ref().is_some_and(|node| node.label.charge != 0)
    }

    fn is_heavy(&self, atom: usize) -> bool {
        self.element(atom).is_some_and(|element| element != Element::H)
    }

    /// Returns the number of atoms except explicit hydrogen atoms, e.g. deuterium.
    pub(super) fn heavy_atoms(&self) -> usize {
        self.atoms().filter(|atom| self.is_heavy(*atom)).count()
    }

    /// Returns the atoms that are connected to `start` without the bonds in `cut`, in ascending
    /// order.
    pub(super) fn component(&self, start: usize, cut: &[[usize; 2]]) -> Vec<usize> {
        let mut is_found = vec![false; self.atoms.len()];
        is_found[start] = true;
        let mut open = vec![start];
        while let Some(atom) = open.pop() {
            for other in self.neighbors(atom) {
                let is_cut = cut.contains(&[atom, other]) || cut.contains(&[other, atom]);
                if !is_cut && !is_found[other] {
                    is_found[other] = true;
                    open.push(other);
                }
            }
        }
        (0..is_found.len()).filter(|atom| is_found[*atom]).collect()
    }

    /// Returns the rings. `None` if there are too many.
    pub(super) fn rings(&self) -> Option<Vec<Vec<usize>>> {
        let bonds: Vec<_> = self.bonds().map(|[a, b]| (a, b, true)).collect();
        guarded(|| rdkit_symmetrized_sssr(self.atoms.len(), &bonds)).ok()?
    }

    /// Adds an atom without bonds and returns its index.
    pub(super) fn add_atom(&mut self, element: Element) -> usize {
        self.atoms.push(Some(Node {
            label: Atom::organic(element),
            bonds: Vec::new(),
            valence: valences(element).first().copied().unwrap_or(0),
            is_variable: true,
            chiral_order: Vec::new(),
        }));
        self.atoms.len() - 1
    }

    /// Removes an atom and its bonds.
    pub(super) fn remove_atom(&mut self, atom: usize) {
        let neighbors: Vec<usize> = self.neighbors(atom).collect();
        neighbors.into_iter().for_each(|other| self.set_order(atom, other, 0));
        self.atoms[atom] = None;
    }

    /// Removes all atoms except those in `kept`, which is in ascending order.
    pub(super) fn retain(&mut self, kept: &[usize]) {
        for atom in 0..self.atoms.len() {
            if kept.binary_search(&atom).is_err() && self.atoms[atom].is_some() {
                self.remove_atom(atom);
            }
        }
    }

    /// Adds, changes or removes (order 0) a bond. A chiral center keeps its configuration: the new
    /// neighbor takes the place of the one that was removed before, or of hydrogen.
    pub(super) fn set_order(&mut self, a: usize, b: usize, order: u8) {
        for (atom, other) in [(a, b), (b, a)] {
            let Some(node) = &mut self.atoms[atom] else { continue };
            let bonds = node.bonds.len();
            node.bonds.retain(|bond| bond.0 != other);
            let was_bonded = node.bonds.len() < bonds;
            if order > 0 {
                node.bonds.push((other, order));
            }
            match (was_bonded, order > 0) {
                (true, false) => node.replace_neighbor(&[other], VACANCY),
                (false, true) => node.replace_neighbor(&[VACANCY, HYDROGEN], other),
                _ => {}
            }
        }
    }

    /// Changes the element of an atom. It gets the smallest valence of the new element that is
    /// sufficient for its bonds.
    pub(super) fn set_element(&mut self, atom: usize, element: Element) {
        let Some(node) = &mut self.atoms[atom] else { return };
        let sum = node.order_sum();
        node.label = Atom::organic(element);
        node.valence = valences(element).iter().copied().find(|v| *v >= sum).unwrap_or(0);
        node.is_variable = true;
        node.chiral_order.clear();
    }

    /// Adds the atoms and bonds of another graph. Returns the number that is added to their
    /// indices.
    pub(super) fn append(&mut self, other: &Self) -> usize {
        let offset = self.atoms.len();
        for node in &other.atoms {
            let mut node = node.clone();
            if let Some(node) = &mut node {
                node.bonds.iter_mut().for_each(|bond| bond.0 += offset);
                let order = node.chiral_order.iter_mut().filter(|atom| **atom < VACANCY);
                order.for_each(|atom| *atom += offset);
            }
            self.atoms.push(node);
        }
        for Geometry(ends) in &other.geometries {
            let shifted = |(end, reference, up)| (end + offset, reference + offset, up);
            self.geometries.push(Geometry(ends.map(shifted)));
        }
        offset
    }

    /// Returns `true` if no atom has too many bonds.
    pub(super) fn has_valid_valences(&self) -> bool {
        self.atoms.iter().flatten().all(|node| node.hydrogens().is_some())
    }

    /// Returns a SMILES string with the stereochemistry of atoms that still have the same number of
    /// neighbors, and of double bonds that still exist. `None` if an atom has too many bonds or if
    /// the toolkit cannot write the molecule.
    pub(super) fn to_smiles(&self) -> Option<String> {
        let mut indices = vec![AtomIdx(0); self.atoms.len()];
        let mut builder = MoleculeBuilder::new();
        for atom in self.atoms() {
            let node = self.atoms[atom].as_ref()?;
            let mut label = node.label.clone();
            if !node.is_chirality_valid() {
                label.chirality = Chirality::None;
            }
            // Without brackets, the SMILES is shorter than the limit of the parser.
            let hydrogens = u8::try_from(node.hydrogens()?).ok()?;
            let is_organic = node.is_variable
                && label.element.is_organic_subset()
                && label.chirality == Chirality::None;
            label.hydrogen_count = (!is_organic).then_some(hydrogens);
            indices[atom] = builder.add_atom(label);
        }
        for [a, b] in self.bonds() {
            let order = match self.order(a, b) {
                1 => BondOrder::Single,
                2 => BondOrder::Double,
                3 => BondOrder::Triple,
                _ => BondOrder::Quadruple,
            };
            builder.add_bond(indices[a], indices[b], order).ok()?;
        }
        for atom in self.atoms() {
            let node = self.atoms[atom].as_ref()?;
            if node.is_chirality_valid() && !node.chiral_order.is_empty() {
                let new =
                    |old: &usize| indices.get(*old).map_or(STEREO_H_SENTINEL, |index| index.0);
                let order = node.chiral_order.iter().map(new).collect();
                builder.set_stereo_neighbor_order(indices[atom], order);
            }
        }
        let mut model = builder.build();
        guarded(|| {
            let facts: Vec<EzFact> = self
                .geometries
                .iter()
                .filter_map(|geometry| self.fact(geometry, &model, &indices))
                .collect();
            // If it fails, the double bonds have no geometry.
            write_ez_facts(&mut model, &facts);
            write(&model)
        })
        .ok()
    }

    /// Returns the geometry of a double bond, if the bond and its two neighbors still exist.
    fn fact(&self, geometry: &Geometry, model: &Model, indices: &[AtomIdx]) -> Option<EzFact> {
        let [(a, before, _), (b, after, _)] = geometry.0;
        let exists =
            self.order(a, b) == 2 && self.order(a, before) == 1 && self.order(b, after) == 1;
        let bond = |a: usize, b: usize| Some(model.bond_between(indices[a], indices[b])?.0);
        if !exists {
            return None;
        }
        let end = |(end, reference, up): (usize, usize, bool)| {
            Some(EzFactEnd { atom: indices[end], reference: bond(end, reference)?, up })
        };
        Some(EzFact { double: bond(a, b)?, ends: [end(geometry.0[0])?, end(geometry.0[1])?] })
    }
}

impl Node {
    fn order_sum(&self) -> u32 {
        self.bonds.iter().map(|bond| u32::from(bond.1)).sum()
    }

    /// Returns the number of hydrogen atoms, or `None` if there are too many bonds.
    ///
    /// Atoms with more than the smallest valence of their element need a double bond and have no
    /// hydrogen. This excludes e.g. `CS(C)(C)C` and `C[SH]=O`, which RDKit accepts.
    fn hydrogens(&self) -> Option<u32> {
        let sum = self.order_sum();
        if !self.is_variable {
            return self.valence.checked_sub(sum);
        }
        let allowed = valences(self.label.element);
        let valence = allowed.iter().copied().find(|valence| *valence >= sum)?;
        let is_hypervalent = Some(&valence) != allowed.first();
        let is_invalid =
            is_hypervalent && (valence != sum || self.bonds.iter().all(|bond| bond.1 == 1));
        (valence <= self.valence && !is_invalid).then(|| valence - sum)
    }

    /// Replaces the first of `old` that is in the chiral order.
    fn replace_neighbor(&mut self, old: &[usize], new: usize) {
        let position = old.iter().find_map(|old| self.chiral_order.iter().position(|n| n == old));
        if let Some(position) = position {
            self.chiral_order[position] = new;
        }
    }

    /// Returns `true` if the atom has the neighbors that its chirality refers to.
    fn is_chirality_valid(&self) -> bool {
        let hydrogens = self.hydrogens().unwrap_or(0) as usize;
        let hydrogen = |n: &usize| if *n == VACANCY { HYDROGEN } else { *n };
        let mut expected: Vec<usize> = self.chiral_order.iter().map(hydrogen).collect();
        let mut found: Vec<usize> = self.bonds.iter().map(|bond| bond.0).collect();
        found.extend(std::iter::repeat_n(HYDROGEN, hydrogens));
        expected.sort_unstable();
        found.sort_unstable();
        expected == found
    }
}

/// Returns the valences of a neutral atom, the smallest first, as in RDKit. Empty for elements
/// whose number of hydrogen atoms is not changed.
fn valences(element: Element) -> &'static [u32] {
    match element.atomic_number() {
        5 | 7 => &[3],
        6 | 14 => &[4],
        8 => &[2],
        9 | 17 | 35 | 53 => &[1],
        15 => &[3, 5],
        16 | 34 => &[2, 4, 6],
        _ => &[],
    }
}

fn order_of(order: BondOrder) -> Option<u8> {
    match order {
        BondOrder::Single | BondOrder::Up | BondOrder::Down => Some(1),
        BondOrder::Double => Some(2),
        BondOrder::Triple => Some(3),
        BondOrder::Quadruple => Some(4),
        _ => None,
    }
}

/// Returns the order of the neighbors of a tetrahedral center. Empty for other atoms.
fn chiral_order(model: &Model, atom: AtomIdx) -> Vec<usize> {
    let order = model.stereo_neighbor_order(atom).unwrap_or_default();
    if !model.atom(atom).chirality.is_tetrahedral() || !(3..=4).contains(&order.len()) {
        return Vec::new();
    }
    order
        .iter()
        .map(|neighbor| if *neighbor == STEREO_H_SENTINEL { HYDROGEN } else { *neighbor as usize })
        .collect()
}
