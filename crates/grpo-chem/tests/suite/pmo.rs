//! Compares the oracles of the PMO benchmark with PyTDC.
//!
//! `tests/fixtures/pmo.csv` was generated from `pmo.smi` by `tests/peers/pmo/oracles.py`, which also
//! compares arbitrary files. The molecules are the targets of the tasks, unusual molecules written
//! for this test, and every 528th of `data/molecules`.

use std::collections::HashMap;

use grpo_chem::Molecule;
use grpo_chem::pmo::Oracle;

#[test]
fn scores_equal_pytdc() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pmo.csv");
    let mut differences = Vec::new();
    let mut different_from_zero = [0; 20];
    for row in csv::Reader::from_path(path).unwrap().into_deserialize() {
        let row: HashMap<String, String> = row.unwrap();
        let scores = Molecule::parse(&row["smiles"])
            .map_or([0.0; 20], |molecule| Oracle::score_all(&molecule));
        for (index, (oracle, ours)) in Oracle::ALL.into_iter().zip(scores).enumerate() {
            let theirs: f64 = row[oracle.name()].parse().unwrap();
            assert!((0.0..=1.0).contains(&ours), "{}: {ours}", row["smiles"]);
            different_from_zero[index] += usize::from(theirs > 1e-3);
            // The fixture has ten significant digits.
            if (ours - theirs).abs() > 1e-10 + 1e-9 * theirs {
                differences.push(format!(
                    "{} of {}: {ours}, PyTDC {theirs}",
                    oracle.name(),
                    row["smiles"]
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Every oracle is tested with scores other than 0.
    assert!(different_from_zero.iter().all(|count| *count >= 2), "{different_from_zero:?}");
}

#[test]
fn one_score_is_the_same_as_all_scores() {
    let molecule = Molecule::parse("CN(C=O)Cc1ccc(cc1)-c1ccccc1S(=O)(=O)N").unwrap();
    let all = Oracle::score_all(&molecule);
    assert_eq!(Oracle::ALL.map(|oracle| oracle.score(&molecule)), all);
}
