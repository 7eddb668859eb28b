//! Molecule or not, against RDKit, on malformed strings and on valid ones that look it.
//!
//! `tests/fixtures/verdicts.csv` is made by `tests/peers/rdkit/make_verdicts.py`, which holds the strings.

use grpo_chem::describe;

#[test]
fn the_verdict_is_rdkits_except_on_purpose() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/verdicts.csv");
    let rows: Vec<(String, u8)> =
        csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect();
    let differing: Vec<String> = rows
        .iter()
        .map(|(json, valid)| (serde_json::from_str::<String>(json).unwrap(), *valid == 1))
        .filter(|(smiles, valid)| describe(smiles).is_ok() != *valid)
        .map(|(smiles, _)| smiles)
        .collect();
    assert!(rows.len() > 600 && differing.len() * 100 <= rows.len() * 3);
    // Two limits of ours: length and ring closures.
    let too_large = ["C".repeat(1_001), "C1CC1".repeat(101)];
    let on_purpose = ON_PURPOSE.iter().map(|smiles| (*smiles).to_owned());
    assert_eq!(differing, on_purpose.chain(too_large).collect::<Vec<_>>());
}

/// RDKit reads all of these.
#[rustfmt::skip]
const ON_PURPOSE: &[&str] = &[
    // A query and an extension, which a molecule without them would silently not be.
    "C~C", "C |$A$|",
    // RDKit cuts off whatever is not printable ASCII at both ends. A generator should not be paid for it.
    "C\0", "\0C", "C\u{8}", "C\u{85}", "\u{feff}C", "C\u{feff}", "Cé", "C₂", "c1ccccc1\u{200b}", "\u{a0}C",
    "C\u{a0}", "C\u{301}",
];
