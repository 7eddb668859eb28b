//! The list of rings against the definition of relevant cycles (Vismara 1997): cycles that are not
//! the sum of shorter ones.

use std::collections::BTreeSet;

use proptest::prelude::*;

type Bonds = Vec<(usize, usize, bool)>;

/// Returns the bonds of all simple cycles as bits.
fn all_cycles(atoms: usize, bonds: &Bonds) -> BTreeSet<u64> {
    fn extend(path: &[usize], used: u64, bonds: &Bonds, found: &mut BTreeSet<u64>) {
        let last = path[path.len() - 1];
        for (bond, &(a, b, is_eligible)) in bonds.iter().enumerate() {
            if !is_eligible || used & (1 << bond) != 0 || (a != last && b != last) {
                continue;
            }
            let next = if a == last { b } else { a };
            if next == path[0] {
                found.insert(used | (1 << bond));
            } else if next > path[0] && !path.contains(&next) {
                extend(&[path, &[next]].concat(), used | (1 << bond), bonds, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    (0..atoms).for_each(|start| extend(&[start], 0, bonds, &mut found));
    found
}

/// Returns the cycles that are not sums of shorter ones.
fn relevant(cycles: &BTreeSet<u64>) -> BTreeSet<u64> {
    let reduced = |mut cycle: u64, basis: &[u64]| {
        for element in basis {
            cycle = cycle.min(cycle ^ element);
        }
        cycle
    };
    let mut basis: Vec<u64> = Vec::new();
    let mut relevant = BTreeSet::new();
    for size in 3..64 {
        let of_size = || cycles.iter().filter(move |cycle| cycle.count_ones() == size);
        relevant.extend(of_size().filter(|cycle| reduced(**cycle, &basis) != 0));
        for cycle in of_size() {
            let rest = reduced(*cycle, &basis);
            if rest != 0 {
                basis.push(rest);
                basis.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
    }
    relevant
}

fn bonds_of(ring: &[usize], bonds: &Bonds) -> u64 {
    let next = ring.iter().cycle().skip(1);
    let is_of = |bond: &(usize, usize, bool), a, b| {
        (bond.0, bond.1) == (a, b) || (bond.0, bond.1) == (b, a)
    };
    let bond = |(&a, &b): (&usize, &usize)| bonds.iter().position(|bond| is_of(bond, a, b));
    ring.iter().zip(next).map(|pair| 1u64 << bond(pair).expect("ring atoms are bonded")).sum()
}

/// Random graphs with at most four bonds per atom, as in most molecules. Some bonds are dative.
fn graphs() -> impl Strategy<Value = (usize, Bonds)> {
    let pairs = prop::collection::vec((0..9usize, 0..9usize, prop::bool::weighted(0.95)), 6..18);
    (6..9usize, pairs).prop_map(|(atoms, pairs)| {
        let mut bonds: Bonds = Vec::new();
        let mut degree = vec![0; atoms];
        for (a, b, is_eligible) in pairs {
            let (a, b) = (a % atoms, b % atoms);
            let is_known = bonds.iter().any(|&(c, d, _)| (c, d) == (a, b) || (c, d) == (b, a));
            if a != b && !is_known && degree[a] < 4 && degree[b] < 4 {
                degree[a] += 1;
                degree[b] += 1;
                bonds.push((a, b, is_eligible));
            }
        }
        (atoms, bonds)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn all_relevant_cycles_smallest_first((atoms, bonds) in graphs()) {
        let rings = chematic_perception::rdkit_symmetrized_sssr(atoms, &bonds).unwrap();
        let found: BTreeSet<u64> = rings.iter().map(|ring| bonds_of(ring, &bonds)).collect();
        prop_assert_eq!(found.len(), rings.len());
        prop_assert_eq!(found, relevant(&all_cycles(atoms, &bonds)));
        prop_assert!(rings.is_sorted_by_key(Vec::len));
    }
}

/// A furan whose positions 2 and 5 are bridged: the toolkit's original list may begin with the large
/// ring.
#[test]
fn small_rings_come_first() {
    let mut bonds: Bonds = (0..12).map(|atom| (atom, atom + 1, true)).collect();
    bonds.extend([(0, 12, true), (0, 4, true)]);
    let rings = chematic_perception::rdkit_symmetrized_sssr(13, &bonds).unwrap();
    assert_eq!(rings.iter().map(Vec::len).collect::<Vec<_>>(), [5, 10]);
}

/// A ladder of squares in which each step can be passed on two sides has too many relevant cycles.
#[test]
fn more_than_the_largest_number_of_rings_is_none() {
    // A ring of n four-membered cycles, joined at opposite corners: 2^n large cycles of equal size.
    let ring = |n: usize| -> (usize, Bonds) {
        let corner = |i: usize| 3 * (i % n);
        let bonds = (0..n).flat_map(|i| {
            let (upper, lower) = (3 * i + 1, 3 * i + 2);
            [(corner(i), upper), (upper, corner(i + 1)), (corner(i), lower), (lower, corner(i + 1))]
        });
        (3 * n, bonds.map(|(a, b)| (a, b, true)).collect())
    };
    let (atoms, bonds) = ring(4);
    let rings = chematic_perception::rdkit_symmetrized_sssr(atoms, &bonds).unwrap();
    assert_eq!(rings.len(), 4 + 16);
    let (atoms, bonds) = ring(12);
    const { assert!(4096 > chematic_perception::MAX_RINGS) };
    assert_eq!(chematic_perception::rdkit_symmetrized_sssr(atoms, &bonds), None);
}

/// Bonds to metals that RDKit makes dative are not part of rings.
#[test]
fn dative_bonds_close_no_ring() {
    let rings = |smiles: &str| {
        let molecule = chematic_smiles::parse_template(smiles).unwrap();
        chematic_perception::rdkit_sssr_ring_order(&molecule).unwrap().len()
    };
    assert_eq!(rings("C1CN->[Pt]<-N1"), 0);
    assert_eq!(rings("C1CCNCN1"), 1);
}
