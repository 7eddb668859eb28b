//! Operators compared with sets of children that were written by hand.

use std::collections::BTreeSet;

use chematic::core::Element;

use super::graph::KekuleGraph;
use super::mutation::{Bridge, Mutation, OrderChange};
use super::parent::{Parent, accepted};
use super::{Size, crossover, mutate};
use crate::molecule::Molecule;

const MOLECULES: &str = include_str!("../../tests/fixtures/molecules.smi");

/// Returns all children of a mutation.
fn children(smiles: &str, mutation: Mutation) -> BTreeSet<String> {
    let parent = Parent::new(&Molecule::parse(smiles).unwrap()).unwrap();
    let sites = mutation.sites(&parent);
    let child =
        |site: &Vec<usize>| accepted(&mutation.apply(&parent, site)?, &[&parent], 1, f64::INFINITY);
    sites.iter().filter_map(child).collect()
}

fn check(smiles: &str, mutation: Mutation, expected: &str) {
    let expected: BTreeSet<String> = expected.split_whitespace().map(str::to_owned).collect();
    assert_eq!(children(smiles, mutation), expected, "{smiles} {mutation:?}");
}

const C: Element = Element::C;
const N: Element = Element::N;
const O: Element = Element::O;
const F: Element = Element::F;
const S: Element = Element::S;
const CL: Element = Element::CL;
const BR: Element = Element::BR;

/// Every mutation of ethanol and its children, in canonical form.
const ETHANOL: [(Mutation, &str); 45] = [
    (Mutation::InsertAtom(C, 1), "CCCO"),
    (Mutation::InsertAtom(N, 1), "CNCO CCNO"),
    (Mutation::InsertAtom(O, 1), "COCO CCOO"),
    (Mutation::InsertAtom(S, 1), "CSCO CCSO"),
    (Mutation::InsertAtom(C, 2), "C=CCO CC=CO CCC=O"),
    (Mutation::InsertAtom(N, 2), "C=NCO CN=CO CC=NO CCN=O"),
    (Mutation::InsertAtom(C, 3), "C#CCO CC#CO"),
    (Mutation::AppendAtom(C, 1), "CCCO CC(C)O CCOC"),
    (Mutation::AppendAtom(N, 1), "NCCO CC(N)O CCON"),
    (Mutation::AppendAtom(O, 1), "OCCO CC(O)O CCOO"),
    (Mutation::AppendAtom(F, 1), "OCCF CC(O)F CCOF"),
    (Mutation::AppendAtom(S, 1), "OCCS CC(O)S CCOS"),
    (Mutation::AppendAtom(CL, 1), "OCCCl CC(O)Cl CCOCl"),
    (Mutation::AppendAtom(BR, 1), "OCCBr CC(O)Br CCOBr"),
    (Mutation::AppendAtom(C, 2), "C=CCO C=C(C)O"),
    (Mutation::AppendAtom(N, 2), "N=CCO CC(=N)O"),
    (Mutation::AppendAtom(O, 2), "O=CCO CC(=O)O"),
    (Mutation::AppendAtom(C, 3), "C#CCO"),
    (Mutation::AppendAtom(N, 3), "N#CCO"),
    (Mutation::DeleteAtom(Bridge::Chain(1)), "CO CC"),
    (Mutation::DeleteAtom(Bridge::Chain(2)), "CO"),
    (Mutation::DeleteAtom(Bridge::Chain(3)), ""),
    (Mutation::DeleteAtom(Bridge::Chain(4)), ""),
    (Mutation::DeleteAtom(Bridge::Star), ""),
    (Mutation::ChangeElement(C, N), "NCO CNO"),
    (Mutation::ChangeElement(C, O), "OCO COO"),
    (Mutation::ChangeElement(C, F), "OCF"),
    (Mutation::ChangeElement(C, S), "OCS CSO"),
    (Mutation::ChangeElement(C, CL), "OCCl"),
    (Mutation::ChangeElement(C, BR), "OCBr"),
    (Mutation::ChangeElement(O, C), "CCC"),
    (Mutation::ChangeElement(O, N), "CCN"),
    (Mutation::ChangeElement(O, F), "CCF"),
    (Mutation::ChangeElement(O, S), "CCS"),
    (Mutation::ChangeElement(O, CL), "CCCl"),
    (Mutation::ChangeElement(O, BR), "CCBr"),
    (Mutation::ChangeOrder(OrderChange::ToSingle), ""),
    (Mutation::ChangeOrder(OrderChange::SingleToDouble), "C=CO CC=O"),
    (Mutation::ChangeOrder(OrderChange::TripleToDouble), ""),
    (Mutation::ChangeOrder(OrderChange::ToTriple), "C#CO"),
    (Mutation::OpenRing, ""),
    (Mutation::CloseRing(3), "C1CO1"),
    (Mutation::CloseRing(4), ""),
    (Mutation::CloseRing(5), ""),
    (Mutation::CloseRing(6), ""),
];

#[test]
fn all_mutations_of_ethanol() {
    for (mutation, expected) in ETHANOL {
        check("CCO", mutation, expected);
    }
}

#[test]
fn random_mutations_of_ethanol_are_all_of_them() {
    let parent = Molecule::parse("CCO").unwrap();
    let found: BTreeSet<String> =
        (0..5_000).filter_map(|seed| mutate(&parent, &Size::default(), stream(seed))).collect();
    let expected: BTreeSet<String> =
        ETHANOL.iter().flat_map(|row| row.1.split_whitespace()).map(str::to_owned).collect();
    assert_eq!(found, expected);
}

#[test]
fn mutations_of_rings_branches_and_unsaturated_bonds() {
    let delete = |bridge| Mutation::DeleteAtom(bridge);
    let change = |change| Mutation::ChangeOrder(change);
    for (smiles, mutation, expected) in [
        ("CC(C)O", delete(Bridge::Chain(3)), "CCO COC"),
        ("CC(C)(C)C", delete(Bridge::Chain(4)), "CCCC"),
        ("CC(C)(C)C", delete(Bridge::Star), "CC(C)C"),
        ("CC(C)(C)O", delete(Bridge::Star), "CC(C)O"),
        // The neighbors are already bonded.
        ("C1CC1", delete(Bridge::Chain(2)), ""),
        ("CC=O", change(OrderChange::ToSingle), "CCO"),
        ("CC#N", change(OrderChange::TripleToDouble), "CC=N"),
        ("CC#N", change(OrderChange::ToSingle), "CCN"),
        ("CC#N", change(OrderChange::ToTriple), ""),
        ("C1CCCC1", change(OrderChange::SingleToDouble), "C1=CCCC1"),
        // No triple bonds in rings, and no double bonds in small ones.
        ("C1CCCC1", change(OrderChange::ToTriple), ""),
        ("C1CC1", change(OrderChange::SingleToDouble), ""),
        ("C1CCC1", Mutation::AppendAtom(O, 2), "O=C1CCC1"),
        ("C1=CCCC1", change(OrderChange::SingleToDouble), "C1=CCC=C1"),
        ("C1CC1", Mutation::OpenRing, "CCC"),
        ("c1ccccc1", Mutation::OpenRing, "C=CC=CC=C CC=CC=CC"),
        // The bond that both rings share would leave a ring of ten atoms.
        ("C1CCC2CCCCC2C1", Mutation::OpenRing, "CCCCC1CCCCC1 CCCC1CCCCC1C CCC1CCCCC1CC"),
        ("CCCCC", Mutation::CloseRing(5), "C1CCCC1"),
        ("CCCCC", Mutation::CloseRing(4), "CC1CCC1"),
        ("CCCCC", Mutation::CloseRing(6), ""),
        ("CCc1ccccc1C", Mutation::CloseRing(5), "c1ccc2c(c1)CCC2"),
        ("CCc1ccccc1CC", Mutation::CloseRing(6), "c1ccc2c(c1)CCCC2"),
        // Except those of the parent.
        ("C1CCCCCC1", Mutation::AppendAtom(O, 2), "O=C1CCCCCC1"),
        ("C1=CC1", Mutation::AppendAtom(F, 1), "FC1=CC1 FC1C=C1"),
        // Ring sizes and cumulated double bonds.
        ("C1CCCCC1", Mutation::InsertAtom(C, 1), ""),
        ("C1CCCCC1", Mutation::InsertAtom(C, 3), ""),
        ("CC=C=CC", Mutation::CloseRing(5), ""),
        ("CC#CCC", Mutation::CloseRing(5), ""),
    ] {
        check(smiles, mutation, expected);
    }
}

#[test]
fn mutations_of_atoms_with_charges_and_several_valences() {
    let delete_end = Mutation::DeleteAtom(Bridge::Chain(1));
    for (smiles, mutation, expected) in [
        ("c1cc[nH]c1", Mutation::AppendAtom(C, 1), "Cn1cccc1 Cc1cc[nH]c1 Cc1ccc[nH]1"),
        ("C[NH3+]", Mutation::AppendAtom(C, 1), "CC[NH3+] C[NH2+]C"),
        ("C[NH3+]", Mutation::ChangeElement(N, O), ""),
        ("CC(=O)[O-]", Mutation::InsertAtom(C, 1), "CCC(=O)[O-] CC(=O)C[O-] CC([O-])CO"),
        ("C[N+](=O)[O-]", Mutation::InsertAtom(O, 1), "CO[N+](=O)[O-] C[NH+]([O-])OO"),
        ("C[N+](=O)[O-]", delete_end, "O=[NH+][O-] C[NH2+][O-]"),
        ("CS(C)=O", delete_end, "CSC"),
        ("CS(C)=O", Mutation::InsertAtom(C, 1), "CCS(C)=O"),
        // Valences don't increase.
        ("CSC", Mutation::InsertAtom(C, 3), "C#CSC"),
        ("CC(C)=O", Mutation::ChangeElement(C, S), "CC(=O)S CS(C)=O"),
        ("CC(C)(C)C", Mutation::ChangeElement(C, S), "CC(C)(C)S"),
        ("[Na+].CC(=O)[O-]", delete_end, "O=C[O-] CC[O-]"),
        ("[2H]C", Mutation::AppendAtom(F, 1), "[2H]CF"),
    ] {
        check(smiles, mutation, expected);
    }
}

/// Each child was written by hand with the old neighbor replaced by the new one, and made canonical
/// with RDKit 2026.09.
#[test]
fn edits_keep_the_configuration_of_stereocenters() {
    for (smiles, mutation, expected) in [
        ("C[C@H](N)O", Mutation::ChangeElement(N, S), "C[C@@H](O)S"),
        ("C[C@H](N)O", Mutation::InsertAtom(S, 1), "CS[C@H](N)O C[C@@H](O)SN C[C@H](N)SO"),
        ("C[C@H](N)O", Mutation::DeleteAtom(Bridge::Chain(1)), "NCO CCN CCO"),
        (
            "C[C@](N)(O)F",
            Mutation::DeleteAtom(Bridge::Chain(1)),
            "N[C@@H](O)F C[C@H](O)F C[C@@H](N)F C[C@H](N)O",
        ),
        ("F/C=C/Cl", Mutation::AppendAtom(C, 1), r"C/C(F)=C\Cl C/C(Cl)=C\F"),
        ("F/C=C/Cl", Mutation::ChangeOrder(OrderChange::ToSingle), "FCCCl"),
    ] {
        check(smiles, mutation, expected);
    }
}

#[test]
fn the_atoms_of_a_child_are_those_of_two_pieces() {
    let parents: Vec<Parent> = MOLECULES
        .lines()
        .filter_map(|line| Parent::new(&Molecule::parse(line.split(' ').next()?).ok()?))
        .collect();
    let (mut rings, mut chains) = (0, 0);
    for (i, a) in parents.iter().enumerate() {
        let pair = [a, &parents[(i * 7 + 3) % parents.len()]];
        let mut random = stream(i as u64);
        let Some(cuts) = super::crossover::draw(pair, &mut random) else { continue };
        for joint in super::crossover::joints(&cuts) {
            let pieces = [0, 1].map(|side| cuts[side].pieces[joint.pieces[side]].atoms.len());
            let Some(child) = super::crossover::join(pair, &cuts, &joint) else { continue };
            let atoms: Vec<usize> = child.atoms().collect();
            assert_eq!(atoms.len(), pieces[0] + pieces[1]);
            assert_eq!(child.component(atoms[0], &[]), atoms, "the child is not connected");
            let count = if cuts[0].bonds.len() == 2 { &mut rings } else { &mut chains };
            *count += 1;
        }
    }
    assert!(rings > 500 && chains > 100, "{rings} {chains}");
}

#[test]
fn crossover_joins_pieces_of_both_parents() {
    for (a, b, expected) in [
        ("CCO", "CN", "CC NCO CCC CCN CO NO"),
        ("CCO", "CCO", "CC CCCO CCCC OCCO OCO CO CCC OO"),
        // Pieces of two and four atoms, with single or double bonds.
        ("C1CCCCC1", "C1CCC1", "C1=CCCCC1 C1=CCCC=C1"),
        // Rings and chains cannot be joined, and a ring of three atoms has no two opposite bonds.
        ("C1CCCCC1", "CCO", ""),
        ("C1CC1", "C1CC1", ""),
        ("C", "CCO", ""),
    ] {
        let parents = [a, b].map(|smiles| Molecule::parse(smiles).unwrap());
        let child = |seed| crossover(&parents[0], &parents[1], &Size::default(), stream(seed));
        let found: BTreeSet<String> = (0..400).filter_map(child).collect();
        let expected: BTreeSet<String> = expected.split_whitespace().map(str::to_owned).collect();
        assert_eq!(found, expected, "{a} {b}");
    }
}

#[test]
fn an_unedited_molecule_keeps_its_stereochemistry() {
    let mut compared = 0;
    for line in MOLECULES.lines() {
        let smiles = line.split(' ').next().unwrap();
        let molecule = Molecule::parse(smiles).unwrap();
        if molecule.canonical_smiles().contains(['.', '*']) {
            continue;
        }
        let Some(graph) = KekuleGraph::new(&molecule) else { continue };
        let again = Molecule::parse(&graph.to_smiles().unwrap()).unwrap();
        assert_eq!(again.canonical_smiles(), molecule.canonical_smiles(), "{smiles}");
        compared += 1;
    }
    assert!(compared > 200, "{compared}");
}

/// A stream of random numbers (SplitMix64).
fn stream(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}
