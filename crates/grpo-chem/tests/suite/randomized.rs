//! Random SMILES are other spellings of the same molecule.

use std::collections::BTreeSet;

use grpo_chem::Molecule;

const MOLECULES: &str = include_str!("../fixtures/molecules.smi");

fn molecules() -> impl Iterator<Item = &'static str> {
    MOLECULES.lines().filter_map(|line| line.split(' ').next())
}

#[test]
fn a_random_smiles_is_the_same_molecule() {
    for smiles in molecules() {
        let molecule = Molecule::parse(smiles).unwrap();
        for random in 0..8 {
            let other = molecule.randomized_smiles(random).unwrap();
            let again = Molecule::parse(&other).unwrap();
            assert_eq!(
                again.canonical_smiles(),
                molecule.canonical_smiles(),
                "{smiles} as {other}"
            );
        }
    }
}

#[test]
fn the_number_alone_determines_the_string() {
    let molecule = Molecule::parse("CC(=O)Oc1ccccc1C(=O)O").unwrap();
    let random = |number| molecule.randomized_smiles(number).unwrap();
    let spellings: BTreeSet<String> = (0..200).map(random).collect();
    // RDKit, too, finds about 100 in 200 draws.
    assert!((60..160).contains(&spellings.len()), "{}", spellings.len());
    assert_eq!((0..200).rev().map(random).collect::<BTreeSet<String>>(), spellings);
    for edge in [u32::MAX, i32::MAX as u32 - 2, i32::MAX as u32 - 1, i32::MAX as u32] {
        assert_eq!(random(edge), random(edge));
    }
    // Another call in between does not change the result.
    let first = random(7);
    random(8);
    assert_eq!(random(7), first);
}

#[test]
fn stereo_marks_and_isotopes_are_kept() {
    for smiles in ["C[C@H](N)C(=O)O", r"F/C=C/Cl", r"F/C=C\Cl", "[2H]C([13CH3])O", "[Na+].[Cl-]"] {
        let molecule = Molecule::parse(smiles).unwrap();
        for random in 0..32 {
            let other = Molecule::parse(&molecule.randomized_smiles(random).unwrap()).unwrap();
            assert_eq!(other.canonical_smiles(), molecule.canonical_smiles());
        }
    }
}

#[test]
fn a_random_smiles_of_another_molecule_is_refused() {
    let complex = "[Ir@OH1](Cl)([P](C)(C)C)([P](C)(C)C)([P](C)(C)C)([H])[H]";
    let molecule = Molecule::parse(complex).unwrap();
    let refused = (0..20).filter_map(|random| molecule.randomized_smiles(random).err());
    let reason = "not supported: random SMILES of this molecule change its stereochemistry";
    assert!(refused.map(|error| error.to_string()).any(|error| error == reason));
}
