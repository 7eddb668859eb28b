//! Compares all columns of `describe` with RDKit for a set of molecules.
//!
//! `tests/fixtures/rdkit.csv` was generated from `molecules.smi` by
//! `tests/peers/rdkit/make_fixture.py`. See `tests/peers/rdkit/compare.py` for a comparison on
//! arbitrary files.

use std::collections::HashMap;
use std::fmt::Debug;

use grpo_chem::{Descriptor, Molecule, describe, qed_and_sa};

type Row = HashMap<String, String>;

#[test]
fn every_column_equals_rdkit() {
    for row in fixture() {
        let ours = describe(&row["input"]).unwrap();
        same(&row, "canonical", &ours.canonical);
        same(&row, "scaffold", &ours.scaffold);
        same(&row, "hba", &ours.properties.hba);
        same(&row, "hbd", &ours.properties.hbd);
        same(&row, "rotatable", &ours.properties.rotatable);
        same(&row, "aromatic_rings", &ours.properties.aromatic_rings);
        same(&row, "alerts", &ours.properties.alerts);
        close(&row, "mw", ours.properties.mw);
        close(&row, "logp", ours.properties.logp);
        close(&row, "tpsa", ours.properties.tpsa);
        close(&row, "qed", ours.qed);
        close(&row, "sa", ours.sa);
    }
}

#[test]
fn the_rewards_path_gives_the_same_scores() {
    for row in fixture() {
        let (whole, scores) =
            (describe(&row["input"]).unwrap(), qed_and_sa(&row["input"]).unwrap());
        // RDKit maps scores from 8 to 9 to smaller ones.
        let is_turned = scores.sa == 8.0 && whole.sa < 8.0;
        assert!(whole.sa == scores.sa || is_turned, "{row:?}: {} {}", whole.sa, scores.sa);
        assert_eq!((whole.canonical, whole.qed), (scores.canonical, scores.qed));
    }
}

/// RDKit's score is below 4 for these molecules because it turns round at 8.
#[test]
fn hard_molecules_have_no_easy_score_in_rewards() {
    for smiles in [
        "C#C[Si]12C[Si]3(CC(=O)C1C3)C1CCCC2S1(=O)=O",
        "O2S[C@@H]1[C@@H]P[Ge][Si]1NS2",
        "[Si]1C[C@@H]C[Si]2CN[Ge]B1[C@@H]C2",
        "[C@H][Si][Ge]1[Ge]2[C@@H]ONBO2[C@H]1N",
    ] {
        let molecule = Molecule::parse(smiles).unwrap();
        assert!(molecule.sa().unwrap() < 4.0, "{smiles}");
        assert_eq!(molecule.monotonic_sa(), Ok(8.0), "{smiles}");
        assert_eq!(molecule.descriptor(Descriptor::Sa), Ok(8.0), "{smiles}");
        assert_eq!(qed_and_sa(smiles).unwrap().sa, 8.0, "{smiles}");
    }
}

/// RDKit accepts these strings, but the toolkit's parser doesn't. The result must be the same as
/// for the equivalent plain form.
#[test]
fn unusual_spellings_give_the_same_molecule() {
    for (spelling, plain) in [
        ("C(C.O)N", "CCN.O"),
        ("C(C(F.Cl)Br.O)N", "FC(Br)CN.Cl.O"),
        ("C1(C2.C1)CC2.C3CC3", "C1(C2)CC2.C1.C3CC3"),
        ("C1CC2(CC.C12)O", "C1CC(CC)(O)C1"),
        (r"C/C=C\\C", r"C/C=C\C"),
        ("C%(7)CCCCC%(7)", "C1CCCCC1"),
        ("C=1CCCCC#1", "C1=CCCCC1"),
        ("C-1CCCCC=1", "C1CCCCC1"),
        ("[#6H4]", "C"),
        ("[13#6H3][#7H2]", "[13CH3]N"),
        ("  CCO\t", "CCO"),
    ] {
        let (spelling_of, plain_of) = (describe(spelling).unwrap(), describe(plain).unwrap());
        assert_eq!(spelling_of.canonical, plain_of.canonical, "{spelling}");
    }
}

fn fixture() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rdkit.csv");
    let rows: Vec<Row> =
        csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect();
    assert!(rows.len() > 200);
    rows
}

fn same<T: ToString + Debug>(row: &Row, column: &str, ours: &T) {
    let theirs =
        row[column].parse::<f64>().map_or(row[column].clone(), |number| number.to_string());
    assert_eq!(ours.to_string(), theirs, "{column} of {}", row["input"]);
}

/// The tolerance only allows for rounding errors, because sums have the same order as in RDKit.
fn close(row: &Row, column: &str, ours: f64) {
    let theirs: f64 = row[column].parse().unwrap();
    assert!((ours - theirs).abs() < 1e-9, "{column} of {}: {ours}, RDKit {theirs}", row["input"]);
}
