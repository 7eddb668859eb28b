//! Molecules that the toolkit would misinterpret are rejected, because a wrong score is worse than
//! an error.

use grpo_chem::{InvalidSmiles, describe};

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

/// For the first molecule, RDKit 2026.09.1 computes a logP of 2.5548 with an aromatic thiazole. The
/// toolkit computes 2.4278 because it misses this ring.
#[test]
fn aromatic_rings_that_bridge_a_macrocycle() {
    let detail = "the aromaticity of a ring with O or S that bridges a ring of nine or more atoms";
    for smiles in [
        "CN1CCO[C@H](CCNCc2cnc(-c1cccs3)s2)C3",
        "C1CCCCCCCCc2ccc(s2)C1",
        "C12CCCCCCC(=CC=1)S2",
        "C12C(=C3CCCCCCCC=2S3)C=CC=C1",
        "C1=C2CC3=CC=C(CC4=CC=C(CC5=CC=C(CC(=C1)O2)O5)O4)O3",
    ] {
        refused(smiles, detail);
    }
    // These are supported because the bridge is at carbon or nitrogen atoms, the ring is saturated,
    // or the other ring is small.
    for (smiles, canonical) in [
        ("C1CCCCCCCCc2csc1c2", "c1sc2cc1CCCCCCCCC2"),
        ("C1CCCCCCCCc2ccc1[nH]2", "c1cc2[nH]c1CCCCCCCCC2"),
        ("C1CCCCCCCCC2CCC1S2", "C1CCCCC2CCC(CCCC1)S2"),
        ("c1ccc2c(c1)oc1ccccc12", "c1ccc2c(c1)oc1ccccc12"),
    ] {
        assert_eq!(describe(smiles).unwrap().canonical, canonical, "{smiles}");
    }
}
