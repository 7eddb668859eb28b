//! Molecules that the toolkit would misinterpret are rejected, because a wrong score is worse than
//! an error.

use grpo_chem::{Descriptor, InvalidSmiles, Molecule, describe};

#[track_caller]
fn refused(smiles: &str, expected: &str) {
    match describe(smiles) {
        Err(InvalidSmiles::Unsupported { detail }) => assert_eq!(detail, expected, "{smiles}"),
        other => panic!("{smiles}: {other:?}"),
    }
}

#[test]
fn numbers_that_would_be_cut_off() {
    for smiles in ["[999999999C]", "[65536C]", "C[70000CH2]C"] {
        refused(smiles, "an isotope above 65535");
    }
    for smiles in ["[CH3:65536]", "C[CH2:1000000000]"] {
        refused(smiles, "an atom-map number above 65535");
    }
    assert_eq!(describe("[65535C]").unwrap().canonical, "[65535C]");
    assert_eq!(describe("[CH3:65535]").unwrap().canonical, "[CH3:65535]");
    // Syntax errors take precedence.
    assert!(matches!(describe("[65536C](").unwrap_err(), InvalidSmiles::Syntax { .. }));
}

/// RDKit takes the text for a name. A policy that is rewarded for the molecule could write anything.
#[test]
fn text_after_a_molecule() {
    for smiles in [
        "CCO ethanol",
        "CCO\tethanol",
        "CCO\nCC",
        "C CO",
        "CCO \u{b}x",
        "CC\u{a0}O",
        "c1ccccc1 |x",
        "CC a|b|",
    ] {
        let error = Molecule::parse(smiles).err().unwrap();
        let end = smiles.find(char::is_whitespace).unwrap();
        match smiles.contains(" |") {
            true => assert!(matches!(error, InvalidSmiles::Unsupported { .. }), "{error}"),
            false => assert_eq!(
                error.to_string(),
                format!("syntax error at position {}: text after the SMILES", end + 1)
            ),
        }
    }
    assert_eq!(describe(" CCO\r\n").unwrap().canonical, "CCO");
}

/// Each of the n phenylenes offers two ways around the macrocycle, which makes 2ⁿ + n rings.
#[test]
fn thousands_of_rings() {
    let ring = |phenylenes: usize| {
        let rest = "-c1ccc(cc1)".repeat(phenylenes - 2);
        format!("c19ccc(cc1){rest}-c1ccc9cc1")
    };
    let kekule = |phenylenes: usize| ring(phenylenes).replace("c1ccc(cc1)", "C1=CC=C(C=C1)");
    for smiles in [ring(10), kekule(10)] {
        refused(&smiles, "a molecule with more than 600 rings");
    }
    let molecule = Molecule::parse(&ring(8)).unwrap();
    assert_eq!(molecule.descriptor(Descriptor::Rings), Ok(264.0));
}
