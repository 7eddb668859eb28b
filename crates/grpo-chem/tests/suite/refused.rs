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

/// The toolkit recognizes the aromaticity of these rings in some spellings only.
#[test]
fn bridging_heteroarenes_in_every_spelling() {
    for spellings in [
        ["C1CCCCCCCCc2ccc(s2)C1", "c12sc(CCCCCCCCCC2)cc1", "C1=C2CCCCCCCCCCC(=C1)S2"],
        ["C1=Cc2ccc(o2)C=Cc2ccc1o2", "c12oc(C=Cc3oc(C=C1)cc3)cc2", "C1=CC2=CC=C(C=CC3=CC=C1O3)O2"],
        [
            "C1c2ccc(o2)Cc2ccc(o2)Cc2ccc(o2)Cc2ccc1o2",
            "c1c2oc(c1)Cc1oc(Cc3ccc(Cc4ccc(o4)C2)o3)cc1",
            "C1=C2CC3=CC=C(CC4=CC=C(CC5=CC=C(CC(=C1)O2)O5)O4)O3",
        ],
        [
            "C1=Cc2ccc(o2)C=C2C=CC(=N2)C=c2ccc(o2)=CC1=N",
            "C1C2=Cc3oc(cc3)C=CC(=N)C=c3ccc(=CC(=N2)C=1)o3",
            "N=C1C=CC2=CC=C(C=C3C=CC(=N3)C=C3C=CC(=C1)O3)O2",
        ],
    ] {
        for smiles in spellings {
            refused(
                smiles,
                "the aromaticity of a ring with O or S that bridges a ring of nine or more atoms",
            );
        }
    }
    // Saturated rings, and O and S in rings that bridge no large ring.
    for smiles in ["C1CCCCCC2CCC(C1)O2", "C1CCCCCc2cc(C1)cs2", "C1COCCOCCOCCO1"] {
        assert!(describe(smiles).is_ok(), "{smiles}");
    }
}
