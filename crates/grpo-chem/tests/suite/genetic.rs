//! Children of all kinds of molecules are valid, and a small genetic algorithm improves its
//! molecules.

use std::collections::BTreeMap;

use grpo_chem::Molecule;
use grpo_chem::genetic::{Size, crossover, mutate};
use grpo_chem::pmo::Oracle;

const MOLECULES: &str = include_str!("../fixtures/molecules.smi");
const VERDICTS: &str = include_str!("../fixtures/verdicts.csv");

fn molecules() -> Vec<Molecule> {
    let smiles = MOLECULES.lines().filter_map(|line| line.split(' ').next());
    smiles.map(|smiles| Molecule::parse(smiles).unwrap()).collect()
}

/// A linear congruential generator.
fn stream(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    }
}

/// Returns the number of atoms of each element, except hydrogen.
fn elements(molecule: &Molecule) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let formula = molecule.formula().unwrap();
    let formula = formula.split(['+', '-']).next().unwrap_or_default();
    let mut rest = formula;
    while !rest.is_empty() {
        let end =
            rest[1..].find(|c: char| c.is_ascii_uppercase()).map_or(rest.len(), |end| end + 1);
        let (symbol, count) =
            rest[..end].split_at(rest[..end].find(|c: char| c.is_ascii_digit()).unwrap_or(end));
        if symbol != "H" {
            counts.insert(symbol.to_owned(), count.parse().unwrap_or(1));
        }
        rest = &rest[end..];
    }
    counts
}

fn heavy_atoms(molecule: &Molecule) -> usize {
    elements(molecule).values().sum()
}

/// Checks what is true for all children.
fn check(child: &str, parents: &[&Molecule]) -> Molecule {
    let molecule = Molecule::parse(child).unwrap();
    assert_eq!(molecule.canonical_smiles(), child);
    assert!(!child.contains('.'), "{child} is not connected");
    for parent in parents {
        assert_ne!(parent.canonical_smiles(), child);
    }
    molecule
}

#[test]
fn mutants_have_at_most_one_atom_more_or_less() {
    let (mut found, mut attempts) = (0, 0);
    for (i, parent) in molecules().iter().enumerate() {
        // The counterion of a salt is removed.
        if parent.canonical_smiles().contains('.') {
            continue;
        }
        for seed in 0..4 {
            attempts += 1;
            if let Some(child) = mutate(parent, &Size::default(), stream(4 * i as u64 + seed)) {
                let child = check(&child, &[parent]);
                assert!(heavy_atoms(parent).abs_diff(heavy_atoms(&child)) <= 1);
                found += 1;
            }
        }
    }
    assert!(found > attempts * 49 / 50, "{found} children in {attempts} attempts");
}

#[test]
fn children_consist_of_the_atoms_of_their_parents() {
    let molecules = molecules();
    let mut found = 0;
    for (i, a) in molecules.iter().enumerate() {
        let b = &molecules[(7 * i + 3) % molecules.len()];
        let Some(child) = crossover(a, b, &Size::default(), stream(i as u64)) else { continue };
        let of_parents = [elements(a), elements(b)];
        for (element, count) in elements(&check(&child, &[a, b])) {
            let available: usize =
                of_parents.iter().filter_map(|counts| counts.get(&element)).sum();
            assert!(count <= available, "{child} has too much {element}");
        }
        found += 1;
    }
    // Small molecules may have no bond that can be cut.
    assert!(found > molecules.len() / 2, "{found}");
}

/// Metals, radicals, wildcards, isotopes and other strings that RDKit accepts.
#[test]
fn unusual_molecules_have_valid_children_or_none() {
    let ethanol = Molecule::parse("CCO").unwrap();
    let mut reader = csv::Reader::from_reader(VERDICTS.as_bytes());
    let smiles = reader.deserialize().map(|row: Result<(String, u8), _>| {
        serde_json::from_str::<String>(&row.unwrap().0).unwrap()
    });
    let mut found = 0;
    for (i, parent) in smiles.filter_map(|smiles| Molecule::parse(&smiles).ok()).enumerate() {
        let children = [
            mutate(&parent, &Size::default(), stream(i as u64)),
            crossover(&parent, &ethanol, &Size::default(), stream(i as u64)),
        ];
        for child in children.iter().flatten() {
            check(child, &[&parent]);
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
    for smiles in ["*CC", "N->[Pt]"] {
        let parent = Molecule::parse(smiles).unwrap();
        assert_eq!(mutate(&parent, &Size::default(), stream(1)), None, "{smiles}");
    }
}

#[test]
fn the_size_is_limited() {
    let hexane = Molecule::parse("CCCCCC").unwrap();
    let sizes = |size: Size| -> Vec<usize> {
        let children = (0..200).filter_map(|seed| mutate(&hexane, &size, stream(seed)));
        let mut sizes: Vec<usize> =
            children.map(|child| heavy_atoms(&check(&child, &[&hexane]))).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    let limit = |min, mean, deviation| Size { min, mean, deviation };
    assert_eq!(sizes(Size::default()), [5, 6, 7]);
    assert_eq!(sizes(limit(6, f64::INFINITY, 0.0)), [6, 7]);
    assert_eq!(sizes(limit(1, 7.0, 0.0)), [5, 6]);
    assert_eq!(sizes(limit(8, f64::INFINITY, 0.0)), [0; 0]);
    // A random limit: several attempts per child.
    assert_eq!(sizes(limit(7, 6.0, 1.0)), [7]);
}

#[test]
fn children_depend_only_on_the_molecule_and_the_numbers() {
    let parents = ["CC(=O)Oc1ccccc1C(=O)O", "C[C@H](N)C(=O)N1CCC[C@H]1C(=O)O"]
        .map(|smiles| Molecule::parse(smiles).unwrap());
    // The numbers determine the child on every machine.
    let seeds = || (0..3).map(stream);
    let mutants: Vec<_> =
        seeds().map(|random| mutate(&parents[0], &Size::default(), random)).collect();
    assert_eq!(mutants, EXPECTED_MUTANTS.map(|child| Some(child.to_owned())));
    let child = |[a, b]: [&Molecule; 2], seed| crossover(a, b, &Size::JENSEN, stream(seed));
    for seed in 0..20 {
        let expected = child([&parents[0], &parents[1]], seed);
        assert!(expected.is_some());
        for random in 0..3 {
            let spelled = [0, 1]
                .map(|i| Molecule::parse(&parents[i].randomized_smiles(random).unwrap()).unwrap());
            assert_eq!(child([&spelled[0], &spelled[1]], seed), expected);
        }
    }
}

const EXPECTED_MUTANTS: [&str; 3] =
    ["O=C(O)Oc1ccccc1C(=O)O", "CC(=O)OC1=CCCC=C1C(=O)O", "CC(=O)OC1=CC=CCC1C(=O)O"];

/// Twenty generations of ten children. The similarity of a random molecule to celecoxib is 0.1.
#[test]
fn a_genetic_algorithm_finds_molecules_similar_to_celecoxib() {
    let oracle = Oracle::from_name("celecoxib_rediscovery").unwrap();
    let mut random = stream(1);
    let scored = |smiles: String| {
        let molecule = Molecule::parse(&smiles).unwrap();
        (smiles, oracle.score(&molecule))
    };
    // The best 20, the best first.
    let select = |population: &mut Vec<(String, f64)>| {
        population.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        population.dedup();
        population.truncate(20);
    };
    let molecules = molecules();
    let first = molecules[..40].iter().map(|molecule| molecule.canonical_smiles().to_owned());
    let mut population: Vec<(String, f64)> = first.map(scored).collect();
    select(&mut population);
    let first = population[0].1;
    for _generation in 0..20 {
        for _child in 0..10 {
            let mut parent = || {
                let index = random() as usize % 20;
                Molecule::parse(&population[index].0).unwrap()
            };
            let parents = [parent(), parent()];
            let child = crossover(&parents[0], &parents[1], &Size::JENSEN, &mut random)
                .or_else(|| mutate(&parents[0], &Size::JENSEN, &mut random));
            let Some(child) = child else { continue };
            let mutant = mutate(&Molecule::parse(&child).unwrap(), &Size::JENSEN, &mut random);
            population.extend(mutant.map(scored));
            population.push(scored(child));
        }
        select(&mut population);
    }
    let last = population[0].1;
    assert!(first < 0.2 && last > first + 0.1, "{first} to {last}");
}
