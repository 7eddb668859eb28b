//! Crossover: two molecules are cut into two pieces each, and a piece of one is joined to a piece
//! of the other.

use super::graph::KekuleGraph;
use super::parent::Parent;
use super::random::{Random, index};

/// Number of attempts to cut a ring of a parent.
const RING_CUTS: usize = 10;

/// A parent in two pieces. One bond is cut, or two bonds of a ring.
pub(super) struct Cut {
    pub(super) bonds: Vec<[usize; 2]>,
    pub(super) pieces: [Piece; 2],
}

pub(super) struct Piece {
    /// The atoms in ascending order.
    pub(super) atoms: Vec<usize>,
    /// The atom at each cut bond. They may be the same.
    ends: Vec<usize>,
}

/// How two pieces are joined.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Joint {
    /// The piece of each parent.
    pub(super) pieces: [usize; 2],
    bonds: Vec<NewBond>,
}

/// A bond between two pieces.
#[derive(Debug, Clone, PartialEq)]
struct NewBond {
    /// Its end in the list of each piece.
    ends: [usize; 2],
    order: u8,
}

/// Cuts both parents, either outside of rings or in a ring. `None` if this is impossible.
pub(super) fn draw(parents: [&Parent; 2], random: &mut Random) -> Option<[Cut; 2]> {
    let cuts = if index(random, 2) == 0 {
        [chain_cut(parents[0], random), chain_cut(parents[1], random)]
    } else {
        [ring_cut(parents[0], random), ring_cut(parents[1], random)]
    };
    let [Some(a), Some(b)] = cuts else { return None };
    Some([a, b])
}

/// Cuts a random single bond outside of rings.
fn chain_cut(parent: &Parent, random: &mut Random) -> Option<Cut> {
    let is_cuttable = |[a, b]: &[usize; 2]| {
        parent.graph.order(*a, *b) == 1
            && !parent.is_ring_bond(*a, *b)
            && parent.is_editable(*a, *b)
    };
    let bonds: Vec<[usize; 2]> = parent.graph.bonds().filter(is_cuttable).collect();
    cut(parent, vec![*bonds.get(index(random, bonds.len()))?])
}

/// Cuts two random bonds of a ring. With equal probability, they have one bond between them, or
/// they share an atom with at least three neighbors.
fn ring_cut(parent: &Parent, random: &mut Random) -> Option<Cut> {
    (0..RING_CUTS).find_map(|_| {
        let length = 4 - index(random, 2);
        let paths = ring_paths(parent, length);
        let path = paths.get(index(random, paths.len()))?;
        cut(parent, vec![[path[0], path[1]], [path[length - 2], path[length - 1]]])
    })
}

/// Returns paths of three or four atoms along ring bonds.
fn ring_paths(parent: &Parent, length: usize) -> Vec<Vec<usize>> {
    let directed = parent.ring_bonds.iter().flat_map(|[a, b]| [vec![*a, *b], vec![*b, *a]]);
    let mut paths: Vec<Vec<usize>> = directed.collect();
    for _ in 2..length {
        let extended = paths.iter().flat_map(|path| {
            let last = path[path.len() - 1];
            let neighbors = parent.graph.neighbors(last);
            neighbors
                .filter(move |next| parent.is_ring_bond(last, *next) && !path.contains(next))
                .map(|next| [path.as_slice(), &[next]].concat())
        });
        paths = extended.collect();
    }
    if length == 3 {
        paths.retain(|path| parent.graph.neighbors(path[1]).count() > 2);
    }
    paths
}

/// Cuts bonds. `None` if this doesn't result in two pieces.
fn cut(parent: &Parent, bonds: Vec<[usize; 2]>) -> Option<Cut> {
    let graph = &parent.graph;
    let side = |start: usize| {
        let atoms = graph.component(start, &bonds);
        let ends = bonds.iter().flatten().copied().filter(|end| atoms.binary_search(end).is_ok());
        Piece { ends: ends.collect(), atoms }
    };
    let [first, second] = bonds[0];
    let pieces = [side(first), side(second)];
    let is_divided = pieces.iter().all(|piece| piece.ends.len() == bonds.len())
        && pieces[0].atoms.binary_search(&second).is_err();
    let is_editable = bonds.iter().all(|[a, b]| parent.is_editable(*a, *b));
    (is_divided && is_editable).then_some(Cut { bonds, pieces })
}

/// Returns all ways to join a piece of one parent to a piece of the other.
pub(super) fn joints(cuts: &[Cut; 2]) -> Vec<Joint> {
    let pairs = [[0, 0], [0, 1], [1, 0], [1, 1]];
    if cuts[0].bonds.len() == 1 {
        return pairs
            .map(|pieces| Joint { pieces, bonds: vec![NewBond { ends: [0, 0], order: 1 }] })
            .to_vec();
    }
    let mut joints = Vec::new();
    for pieces in pairs {
        for other in [0, 1] {
            for [first, second] in [[1, 1], [1, 2], [2, 1], [2, 2]] {
                let bonds = vec![
                    NewBond { ends: [0, other], order: first },
                    NewBond { ends: [1, 1 - other], order: second },
                ];
                joints.push(Joint { pieces, bonds });
            }
        }
    }
    joints
}

/// Joins two pieces. `None` if two atoms would be joined twice. Atoms of the child may have too
/// many bonds.
pub(super) fn join(parents: [&Parent; 2], cuts: &[Cut; 2], joint: &Joint) -> Option<KekuleGraph> {
    let part = |side: usize| {
        let mut graph = parents[side].graph.clone();
        cuts[side].bonds.iter().for_each(|[a, b]| graph.set_order(*a, *b, 0));
        graph.retain(&cuts[side].pieces[joint.pieces[side]].atoms);
        graph
    };
    let mut child = part(0);
    let offset = child.append(&part(1));
    let ends = [0, 1].map(|side| &cuts[side].pieces[joint.pieces[side]].ends);
    for bond in &joint.bonds {
        let (a, b) = (ends[0][bond.ends[0]], ends[1][bond.ends[1]] + offset);
        if child.order(a, b) > 0 {
            return None;
        }
        child.set_order(a, b, bond.order);
    }
    Some(child)
}
