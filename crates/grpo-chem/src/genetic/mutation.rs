//! The seven kinds of mutations.

use chematic::core::Element;

use super::graph::KekuleGraph;
use super::parent::Parent;
use super::random::{Random, index, weighted};

/// A kind of edit. It has several sites in a molecule, each of which results in a child.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mutation {
    /// Inserts an atom into a bond. The bond to the first atom of the site has this order.
    InsertAtom(Element, u8),
    /// Adds an atom with a bond of this order.
    AppendAtom(Element, u8),
    /// Deletes an atom and connects its neighbors.
    DeleteAtom(Bridge),
    /// Replaces an element by another.
    ChangeElement(Element, Element),
    /// Changes the order of a bond.
    ChangeOrder(OrderChange),
    /// Deletes a bond of a ring.
    OpenRing,
    /// Adds a bond that closes a ring of this size.
    CloseRing(usize),
}

/// How the neighbors of a deleted atom are connected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bridge {
    /// A chain of this number of neighbors, in any order.
    Chain(usize),
    /// One of four neighbors is connected to the others.
    Star,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum OrderChange {
    /// From any other order to a single bond.
    ToSingle,
    SingleToDouble,
    TripleToDouble,
    /// From a single or double bond outside of rings to a triple bond.
    ToTriple,
}

/// Elements and their weights when an element is replaced.
const ELEMENTS: [Element; 7] =
    [Element::C, Element::N, Element::O, Element::F, Element::S, Element::CL, Element::BR];
const ELEMENT_WEIGHTS: [u32; 7] = [15, 15, 14, 14, 14, 14, 14];

/// Weights of single, double and triple bonds of new atoms.
const ORDER_WEIGHTS: [u32; 3] = [60, 35, 5];

impl Mutation {
    /// Draws a mutation with the probabilities of Jensen's paper.
    pub(super) fn draw(parent: &Parent, random: &mut Random) -> Self {
        let any =
            |elements: &[Element], random: &mut Random| elements[index(random, elements.len())];
        match weighted(random, [15, 14, 14, 14, 14, 14, 15]) {
            0 => {
                let order = weighted(random, ORDER_WEIGHTS);
                Self::InsertAtom(any(INSERTED[order], random), order as u8 + 1)
            }
            1 => Self::ChangeOrder(match weighted(random, [45, 45, 5, 5]) {
                0 => OrderChange::ToSingle,
                1 => OrderChange::SingleToDouble,
                2 => OrderChange::TripleToDouble,
                _ => OrderChange::ToTriple,
            }),
            2 => Self::OpenRing,
            3 => Self::CloseRing(weighted(random, [5, 5, 45, 45]) + 3),
            4 => Self::DeleteAtom(match weighted(random, [2500, 2500, 2500, 1875, 625]) {
                4 => Bridge::Star,
                chain => Bridge::Chain(chain + 1),
            }),
            5 => Self::draw_elements(parent, random),
            _ => {
                let order = weighted(random, ORDER_WEIGHTS);
                Self::AppendAtom(any(APPENDED[order], random), order as u8 + 1)
            }
        }
    }

    /// Draws an element of the parent and a different one.
    fn draw_elements(parent: &Parent, random: &mut Random) -> Self {
        let mut weights = ELEMENT_WEIGHTS;
        for (weight, element) in weights.iter_mut().zip(ELEMENTS) {
            let mut elements = parent.graph.atoms().filter_map(|atom| parent.graph.element(atom));
            if !elements.any(|found| found == element) {
                *weight = 0;
            }
        }
        // If the parent has none of the elements, the mutation has no sites.
        let from = weighted(random, weights);
        let mut weights = ELEMENT_WEIGHTS;
        weights[from] = 0;
        Self::ChangeElement(ELEMENTS[from], ELEMENTS[weighted(random, weights)])
    }

    /// Returns all sites: the atoms that [`apply`](Self::apply) edits.
    pub(super) fn sites(self, parent: &Parent) -> Vec<Vec<usize>> {
        let graph = &parent.graph;
        match self {
            Self::InsertAtom(_, order) => {
                let sites = graph.bonds().flat_map(|[a, b]| [[a, b], [b, a]]);
                // Triple bonds are only added outside of rings.
                sites
                    .filter(|[a, b]| {
                        parent.is_editable(*a, *b) && !(order == 3 && parent.is_in_ring(*a))
                    })
                    .map(Vec::from)
                    .collect()
            }
            Self::AppendAtom(_, order) => graph
                .atoms()
                .filter(|atom| graph.hydrogens(*atom) >= u32::from(order))
                .map(|atom| vec![atom])
                .collect(),
            Self::DeleteAtom(bridge) => deleted_atoms(parent, bridge),
            Self::ChangeElement(from, _) => {
                let neutral = graph.atoms().filter(|atom| !graph.is_charged(*atom));
                neutral
                    .filter(|atom| graph.element(*atom) == Some(from))
                    .map(|atom| vec![atom])
                    .collect()
            }
            Self::ChangeOrder(change) => {
                let bonds = graph.bonds().filter(|[a, b]| parent.is_editable(*a, *b));
                bonds
                    .filter(|[a, b]| match (change, graph.order(*a, *b)) {
                        (OrderChange::ToSingle, order) => order != 1,
                        (OrderChange::SingleToDouble, order) => order == 1,
                        (OrderChange::TripleToDouble, order) => order == 3,
                        (OrderChange::ToTriple, order) => order < 3 && !parent.is_ring_bond(*a, *b),
                    })
                    .map(Vec::from)
                    .collect()
            }
            Self::OpenRing => {
                let bonds = parent.ring_bonds.iter().filter(|[a, b]| parent.is_editable(*a, *b));
                bonds.map(|bond| bond.to_vec()).collect()
            }
            Self::CloseRing(size) => open_paths(parent, size),
        }
    }

    /// Edits a copy of the parent at a site. `None` if a new bond already exists. Atoms of the
    /// child may have too many bonds.
    pub(super) fn apply(self, parent: &Parent, site: &[usize]) -> Option<KekuleGraph> {
        let mut child = parent.graph.clone();
        match (self, site) {
            (Self::InsertAtom(element, order), &[a, b]) => {
                child.set_order(a, b, 0);
                let inserted = child.add_atom(element);
                child.set_order(a, inserted, order);
                child.set_order(inserted, b, 1);
            }
            (Self::AppendAtom(element, order), &[atom]) => {
                let appended = child.add_atom(element);
                child.set_order(atom, appended, order);
            }
            (Self::DeleteAtom(bridge), [atom, neighbors @ ..]) => {
                child.remove_atom(*atom);
                for pair in bridge.bonds(neighbors) {
                    if child.order(pair[0], pair[1]) > 0 {
                        return None;
                    }
                    child.set_order(pair[0], pair[1], 1);
                }
            }
            (Self::ChangeElement(_, element), &[atom]) => child.set_element(atom, element),
            (Self::ChangeOrder(change), &[a, b]) => child.set_order(a, b, change.order()),
            (Self::OpenRing, &[a, b]) => child.set_order(a, b, 0),
            (Self::CloseRing(_), [first, .., last]) => child.set_order(*first, *last, 1),
            _ => return None,
        }
        Some(child)
    }
}

/// Elements of inserted atoms with a single, double and triple bond.
const INSERTED: [&[Element]; 3] =
    [&[Element::C, Element::N, Element::O, Element::S], &[Element::C, Element::N], &[Element::C]];

/// Elements of appended atoms with a single, double and triple bond.
const APPENDED: [&[Element]; 3] =
    [&ELEMENTS, &[Element::C, Element::N, Element::O], &[Element::C, Element::N]];

impl OrderChange {
    fn order(self) -> u8 {
        match self {
            Self::ToSingle => 1,
            Self::SingleToDouble | Self::TripleToDouble => 2,
            Self::ToTriple => 3,
        }
    }
}

impl Bridge {
    fn neighbors(self) -> usize {
        match self {
            Self::Chain(neighbors) => neighbors,
            Self::Star => 4,
        }
    }

    /// Returns the bonds between the neighbors of a deleted atom.
    fn bonds(self, neighbors: &[usize]) -> Vec<[usize; 2]> {
        match self {
            Self::Chain(_) => neighbors.windows(2).map(|pair| [pair[0], pair[1]]).collect(),
            Self::Star => neighbors[1..].iter().map(|other| [neighbors[0], *other]).collect(),
        }
    }
}

/// Returns neutral atoms with the right number of neighbors, each followed by its neighbors in
/// every order.
fn deleted_atoms(parent: &Parent, bridge: Bridge) -> Vec<Vec<usize>> {
    let graph = &parent.graph;
    let mut sites = Vec::new();
    for atom in graph.atoms().filter(|atom| !graph.is_charged(*atom)) {
        let mut neighbors: Vec<usize> = graph.neighbors(atom).collect();
        if neighbors.len() == bridge.neighbors() {
            neighbors.sort_unstable();
            extend_orders(vec![atom], &neighbors, &mut sites);
        }
    }
    sites
}

/// Appends `rest` to `site` in every order.
fn extend_orders(site: Vec<usize>, rest: &[usize], sites: &mut Vec<Vec<usize>>) {
    if rest.is_empty() {
        return sites.push(site);
    }
    for next in rest {
        let others: Vec<usize> = rest.iter().copied().filter(|other| other != next).collect();
        extend_orders([site.as_slice(), &[*next]].concat(), &others, sites);
    }
}

/// Returns paths of `size` atoms whose ends have hydrogen and can be joined.
///
/// The ends, and the atom next to the first end, must not be in rings. In rings of four and six
/// atoms, this is also required for the atom next to the last end. Other atoms may be part of a
/// ring, to which the new one is fused.
fn open_paths(parent: &Parent, size: usize) -> Vec<Vec<usize>> {
    let graph = &parent.graph;
    let is_end = |atom: usize| graph.hydrogens(atom) > 0 && !parent.is_in_ring(atom);
    let mut paths: Vec<Vec<usize>> =
        graph.atoms().filter(|a| is_end(*a)).map(|a| vec![a]).collect();
    for index in 1..size {
        let may_be_in_ring = size > 4 && (index == 2 || index == 3);
        let extended = paths.iter().flat_map(|path| {
            let neighbors = path.last().into_iter().flat_map(|last| graph.neighbors(*last));
            neighbors
                .filter(|next| {
                    !path.contains(next) && (may_be_in_ring || !parent.is_in_ring(*next))
                })
                .filter(|next| index < size - 1 || is_end(*next))
                .map(|next| [path.as_slice(), &[next]].concat())
        });
        paths = extended.collect();
    }
    paths
}
