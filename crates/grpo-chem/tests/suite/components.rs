//! Compares descriptors, formulas, topological scaffolds and similarities with RDKit, and checks
//! the layout of mol blocks.
//!
//! `tests/fixtures/components.csv` was generated from `molecules.smi` by
//! `tests/peers/rdkit/components.py`, which also compares arbitrary files and reads mol blocks with
//! RDKit.

use std::collections::HashMap;

use grpo_chem::{Descriptor, InvalidSmiles, Molecule, Morgan, MorganRadius};

type Row = HashMap<String, String>;

fn fixture() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/components.csv");
    let rows: Vec<Row> =
        csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect();
    assert!(rows.len() > 200);
    rows
}

#[test]
fn descriptors_equal_rdkit() {
    let names: Vec<&str> = Descriptor::ALL.map(Descriptor::name).to_vec();
    let mut compared = 0;
    for row in fixture() {
        let molecule = Molecule::parse(&row["input"]).unwrap();
        for (column, value) in row.iter().filter(|(column, _)| names.contains(&column.as_str())) {
            let ours = molecule.descriptor(Descriptor::parse(column).unwrap()).unwrap();
            let theirs: f64 = value.parse().unwrap();
            assert!((ours - theirs).abs() < 1e-9, "{column} of {}: {ours}", row["input"]);
            compared += 1;
        }
        assert_eq!(molecule.formula().unwrap(), row["formula"], "{}", row["input"]);
        assert_eq!(molecule.topological_scaffold().unwrap(), row["framework"], "{}", row["input"]);
    }
    assert!(compared > 2_000);
}

#[test]
fn descriptors_include_the_columns_of_describe() {
    let molecule = Molecule::parse("CC(=O)Oc1ccccc1C(=O)O").unwrap();
    let properties = molecule.properties().unwrap();
    for (descriptor, value) in [
        (Descriptor::Qed, molecule.qed().unwrap()),
        (Descriptor::Sa, molecule.sa().unwrap()),
        (Descriptor::LogP, properties.logp),
        (Descriptor::Mw, properties.mw),
        (Descriptor::Tpsa, properties.tpsa),
        (Descriptor::Hba, properties.hba.into()),
        (Descriptor::Hbd, properties.hbd.into()),
        (Descriptor::Rotatable, properties.rotatable.into()),
        (Descriptor::AromaticRings, properties.aromatic_rings.into()),
        (Descriptor::Alerts, properties.alerts.into()),
    ] {
        // The properties of one molecule are known, those of the other one are not.
        let other = Molecule::parse("CC(=O)Oc1ccccc1C(=O)O").unwrap();
        for molecule in [&molecule, &other] {
            assert_eq!(molecule.descriptor(descriptor).unwrap(), value, "{}", descriptor.name());
        }
    }
}

#[test]
fn similarities_equal_rdkit() {
    let references = ["CC(=O)Oc1ccccc1C(=O)O", "Cn1cnc2c1c(=O)n(C)c(=O)n2C"];
    for row in fixture() {
        let molecule = Molecule::parse(&row["input"]).unwrap();
        for (i, reference) in references.iter().enumerate() {
            let reference = Molecule::parse(reference).unwrap();
            for (name, definition) in [
                ("bits2", Morgan::Bits(MorganRadius::Two)),
                ("bits3", Morgan::Bits(MorganRadius::Three)),
                ("counts2", Morgan::Counts(MorganRadius::Two)),
                ("counts3", Morgan::Counts(MorganRadius::Three)),
            ] {
                let reference = reference.morgan(definition).unwrap();
                let ours = molecule.morgan(definition).unwrap().tanimoto(&reference);
                let theirs: f64 = row[&format!("{name}_{i}")].parse().unwrap();
                assert!((ours - theirs).abs() < 1e-12, "{name}_{i} of {}: {ours}", row["input"]);
            }
        }
    }
}

/// RDKit fails for these scaffolds. Without a scaffold, molecules would escape a diversity filter.
#[test]
fn an_atom_with_five_neighbors_becomes_a_wildcard() {
    let scaffold = |smiles: &str| {
        let molecule = Molecule::parse(smiles).unwrap();
        molecule.topological_scaffold().unwrap()
    };
    let five = "C1CCC(*(C2CCCCC2)(C2CCCCC2)(C2CCCCC2)C2CCCCC2)CC1";
    for smiles in [
        "c1ccccc1P(c1ccccc1)(c1ccccc1)(c1ccccc1)c1ccccc1",
        "Cc1ccc(P(c2ccccc2)(c2ccccc2)(c2ccccc2)c2ccccc2)cc1",
        "n1ccccc1P(c1ccccc1)(c1ccccc1)(c1ccccc1)c1ccccc1",
    ] {
        assert_eq!(scaffold(smiles), five, "{smiles}");
    }
    let six = "c1ccc(S(c2ccccc2)(c2ccccc2)(c2ccccc2)(c2ccccc2)c2ccccc2)cc1";
    assert!(scaffold(six).contains('*') && scaffold(six) != five);
    for smiles in ["Cc1ccc2c(c1)OP1(O2)(Oc2ccccc2O1)c1ccccc1", "C1CCS2(CC1)(CCCC2)C1CC1"] {
        let molecule = Molecule::parse(smiles).unwrap();
        let expected = scaffold(smiles);
        assert!(expected.contains('*'), "{smiles}: {expected}");
        for random in 0..20 {
            let spelling = molecule.randomized_smiles(random).unwrap();
            assert_eq!(scaffold(&spelling), expected, "{smiles} as {spelling}");
        }
    }
}

/// The fields of V2000 have fixed widths.
#[test]
fn mol_blocks_have_the_fields_of_v2000() {
    for row in fixture() {
        let molecule = Molecule::parse(&row["input"]).unwrap();
        let block = molecule.mol_block("a title").unwrap();
        let lines: Vec<&str> = block.lines().collect();
        assert_eq!(lines[0], "a title");
        assert_eq!(&lines[1][20..22], "2D");
        let number = |text: &str| text.trim().parse::<usize>().unwrap();
        let (atoms, bonds) = (number(&lines[3][..3]), number(&lines[3][3..6]));
        assert!(lines[3].len() == 39 && lines[3].ends_with(" V2000"), "{}", lines[3]);
        let heavy = molecule.descriptor(Descriptor::HeavyAtoms).unwrap() as usize;
        assert!(atoms >= heavy, "{}", row["input"]);
        for atom in &lines[4..4 + atoms] {
            assert_eq!(atom.len(), 69, "{atom}");
            for field in [&atom[..10], &atom[10..20], &atom[20..30]] {
                let coordinate: f64 = field.trim().parse().unwrap();
                assert!(coordinate.is_finite() && field.as_bytes()[5] == b'.', "{atom}");
            }
            assert!(atom.as_bytes()[30] == b' ' && atom.as_bytes()[31].is_ascii_uppercase());
        }
        for bond in &lines[4 + atoms..4 + atoms + bonds] {
            assert!((1..=atoms).contains(&number(&bond[..3])), "{bond}");
            assert!((1..=atoms).contains(&number(&bond[3..6])), "{bond}");
            assert!((1..=3).contains(&number(&bond[6..9])), "{bond}");
        }
        assert_eq!(lines.last(), Some(&"M  END"));
    }
}

#[test]
fn a_mol_block_keeps_charges_isotopes_and_chirality() {
    let block = |smiles| Molecule::parse(smiles).unwrap().mol_block("").unwrap();
    assert!(block("C[NH3+]").contains("\nM  CHG  1   2   1\n"));
    assert!(block("[13CH3]O").contains("\nM  ISO  1   1  13\n"));
    let wedge = |smiles| {
        let block = block(smiles);
        let bonds = block.lines().skip(4).filter(|line| line.len() == 12);
        bonds.map(|bond| bond[9..].trim().to_owned()).find(|stereo| stereo != "0")
    };
    assert_eq!(wedge("CC(O)F"), None);
    let (one, other) = (wedge("C[C@H](O)F"), wedge("C[C@@H](O)F"));
    assert!(one.is_some() && other.is_some() && one != other, "{one:?} {other:?}");
}

/// The third double bond is next to a directed bond, but has no configuration itself. RDKit would
/// read one from the coordinates.
#[test]
fn a_double_bond_that_the_layout_cannot_show_is_unspecified() {
    let molecule = Molecule::parse("N=C1/C(=C/c2ccc(O)c(Br)c2)C(=O)N=C2SN=C(C)N12").unwrap();
    let block = molecule.mol_block("").unwrap();
    assert!(block.lines().any(|line| line.len() == 12 && line.ends_with("  2  3")), "{block}");
    let block = Molecule::parse("C/C=C/C").unwrap().mol_block("").unwrap();
    assert!(!block.lines().any(|line| line.ends_with("  2  3")), "{block}");
}

#[test]
fn a_title_is_one_line_that_cannot_end_a_record() {
    let molecule = Molecule::parse("CCO").unwrap();
    let title =
        |title: &str| molecule.mol_block(title).unwrap().lines().next().map(ToOwned::to_owned);
    assert_eq!(title("ethanol\nM  END").unwrap(), "ethanol M  END");
    assert_eq!(title("$$$$").unwrap(), " $$$$");
    assert_eq!(title(&"ä".repeat(100)).unwrap().chars().count(), 80);
}

#[test]
fn molecules_that_v2000_cannot_represent_are_refused() {
    for smiles in ["C".repeat(1_000), "CN->[Pt]".to_owned()] {
        let molecule = Molecule::parse(&smiles).unwrap();
        let error = molecule.mol_block("").unwrap_err();
        assert!(matches!(error, InvalidSmiles::Unsupported { .. }), "{error}");
    }
}
