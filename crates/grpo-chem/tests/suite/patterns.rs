//! Compares SMARTS patterns with RDKit, and checks the limits.
//!
//! `tests/fixtures/patterns.csv` was generated from `patterns.smarts` by
//! `tests/peers/rdkit/components.py`. It contains the number of matches in every fifth molecule of
//! `molecules.smi`, or nothing if RDKit rejects the pattern.

use std::time::{Duration, Instant};

use grpo_chem::{Descriptor, InvalidSmarts, InvalidSmiles, Molecule, Pattern, default_alerts};

#[test]
fn counts_and_verdicts_equal_rdkit() {
    let molecules: Vec<Molecule> = include_str!("../fixtures/molecules.smi")
        .lines()
        .step_by(5)
        .map(|line| Molecule::parse(line.split(' ').next().unwrap()).unwrap())
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/patterns.csv");
    let rows: Vec<(String, String)> =
        csv::Reader::from_path(path).unwrap().into_deserialize().map(Result::unwrap).collect();
    let mut invalid = 0;
    for (smarts, counts) in rows {
        let theirs: Vec<usize> = counts.split_whitespace().map(|n| n.parse().unwrap()).collect();
        if theirs.is_empty() {
            assert!(Pattern::parse(&smarts).is_err(), "{smarts}");
            invalid += 1;
            continue;
        }
        let pattern = Pattern::parse(&smarts).unwrap_or_else(|error| panic!("{smarts}: {error}"));
        assert_eq!(theirs.len(), molecules.len());
        for (molecule, count) in molecules.iter().zip(theirs) {
            let name = molecule.canonical_smiles();
            assert_eq!(pattern.count(molecule), Ok(count), "{smarts} in {name}");
            assert_eq!(pattern.matches(molecule), Ok(count > 0), "{smarts} in {name}");
        }
    }
    assert!(invalid > 50);
}

/// Since release 2026.09, RDKit counts all relevant cycles. Each of the four phenylenes of this
/// molecule offers two ways of the same length around the macrocycle, which makes 16 + 4 rings.
#[test]
fn all_relevant_rings_are_counted() {
    let molecule = Molecule::parse("c19ccc(cc1)-c1ccc(cc1)-c1ccc(cc1)-c1ccc9cc1").unwrap();
    for (smarts, count) in [("[R1]", 0), ("[R9]", 16), ("[R17]", 8)] {
        assert_eq!(Pattern::parse(smarts).unwrap().count(&molecule), Ok(count), "{smarts}");
    }
    for (descriptor, value) in [
        (Descriptor::Rings, 20.0),
        (Descriptor::AliphaticRings, 16.0),
        (Descriptor::LargestRing, 16.0),
    ] {
        assert_eq!(molecule.descriptor(descriptor), Ok(value), "{}", descriptor.name());
    }
}

#[test]
fn an_error_has_a_position_and_a_reason() {
    for (smarts, message) in [
        (" ", "the pattern is empty"),
        ("  C=", "syntax error at position 5: expected an atom"),
        (
            "CCX",
            "syntax error at position 3: only B, C, N, O, P, S, F, Cl, Br and I can be written without brackets",
        ),
        ("CH", "syntax error at position 2: hydrogen must be written as [H]"),
        ("[C;D", "syntax error at position 1: a bracket is opened but never closed"),
        ("CC(C", "syntax error at position 3: a branch is opened but never closed"),
        ("CC)C", "syntax error at position 3: a branch is closed but was never opened"),
        ("C1CC", "syntax error at position 2: a ring closure is opened but never closed"),
        (
            "C1C1",
            "syntax error at position 4: a ring closure joins two atoms that are already bonded",
        ),
        ("[C,]", "syntax error at position 4: expected a condition on the atom"),
        ("C=", "syntax error at position 3: expected an atom"),
        (
            "[$(CC]",
            "syntax error at position 6: expected an atom, a bond, a branch or a ring-closure label",
        ),
        ("[D{2}]", "syntax error at position 5: expected a range such as {1-3}, {1-} or {-3}"),
        ("[^7]", "syntax error at position 2: expected a hybridization from 0 to 5 after '^'"),
        ("C-,C", "syntax error at position 4: expected a bond"),
        ("C C", "syntax error at position 2: whitespace within the pattern"),
        (
            "Cé",
            "syntax error at position 2: expected an atom, a bond, a branch or a ring-closure label",
        ),
        (
            "[$([$([$([$([$([$([$([$([$(C)])])])])])])])])]",
            "not supported at position 26: more than 8 nested '$(…)'",
        ),
        ("C%(12)CC%(12)", "not supported at position 2: a ring-closure label in parentheses"),
        (
            "[se,as]",
            "not supported at position 5: 'as', which the toolkit reads as 'a' and 's'; write $([#33;a])",
        ),
    ] {
        match Pattern::parse(smarts) {
            Err(error) => assert_eq!(error.to_string(), message, "{smarts}"),
            Ok(_) => panic!("{smarts} is accepted"),
        }
    }
}

/// These patterns would match nothing, or more than they say.
#[test]
fn patterns_that_cannot_work_are_refused() {
    let stereo = "stereochemistry, which the search would ignore; remove '/' and '\\' between atoms and '@' in brackets";
    for (smarts, position) in [
        ("C/C=C/C", 2),
        (r"F\\C=CF", 2),
        ("C-,/C=C/C", 4),
        ("[C@H](F)(Cl)Br", 3),
        ("[$([C@@](F)(Cl)Br)]", 6),
        ("[C@TH1](F)Cl", 3),
    ] {
        let error = Pattern::parse(smarts).err().unwrap().to_string();
        assert_eq!(error, format!("not supported at position {position}: {stereo}"), "{smarts}");
    }
    for smarts in ["[#1]", "[H]", "[H][H]", "[2H]C", "[#1]-[#1]", "C[#1;+]~[#1]", "[#6]~[$([#1]O)]"]
    {
        let error = Pattern::parse(smarts).err().unwrap().to_string();
        assert!(error.contains("only matches molecules with explicit hydrogen atoms"), "{error}");
    }
    // A ring bond is not stereochemistry, and hydrogen is one of several elements or excluded.
    for smarts in ["C@C", "C!@C", "[#1,#6]", "[!#1]", "[C,$([#1])]", "[!$([#1])]", "[*H]", "[CH3]"]
    {
        assert!(Pattern::parse(smarts).is_ok(), "{smarts}");
    }
}

/// Alerts with hydrogen atoms, as in RDKit's PAINS file.
#[test]
fn hydrogen_atoms_are_conditions_on_their_neighbors() {
    let hydrazone =
        "c:1(:c(:c(:c(:c(:c:1-[#1])-[#1])-[#7](-[#1])-[#1])-[#1])-[#1])-[#6]=[#7]-[#7]-[#1]";
    for (smarts, smiles, expected) in [
        (hydrazone, "Nc1ccc(C=NN)cc1", true),
        (hydrazone, "CNc1ccc(C=NN)cc1", false),
        (hydrazone, "Nc1ccc(C=NN(C)C)cc1", false),
        ("C([H])([H])([H])[H]", "C", true),
        ("C([H])([H])([H])[H]", "CC", false),
        ("[H]OC", "CO", true),
        ("[H]OC", "COC", false),
    ] {
        let (pattern, molecule) =
            (Pattern::parse(smarts).unwrap(), Molecule::parse(smiles).unwrap());
        assert_eq!(pattern.matches(&molecule), Ok(expected), "{smarts} in {smiles}");
        assert_eq!(pattern.smarts(), smarts);
    }
}

/// None of these patterns may overflow the stack or take long.
#[test]
fn hostile_patterns_are_refused() {
    for smarts in [
        "C(".repeat(10_000),
        format!("{}C{}", "C(".repeat(600), ")".repeat(600)),
        format!("{}C{}", "[$(".repeat(10_000), ")]".repeat(10_000)),
        format!("{}C{}", "[$(".repeat(9), ")]".repeat(9)),
        "C".repeat(1_000_000),
        format!("[{}]", "C,".repeat(500_000)),
    ] {
        let start = Instant::now();
        let error = Pattern::parse(&smarts).err().unwrap();
        let is_limit =
            matches!(error, InvalidSmarts::TooLong { .. } | InvalidSmarts::Unsupported { .. });
        assert!(is_limit, "{error}");
        assert!(start.elapsed() < Duration::from_secs(1), "{error}");
    }
}

#[test]
fn searches_are_finite() {
    let (chain, dots) = ("C".repeat(999), ["C"; 400].join("."));
    let cage = "C12C3C4C1C5C2C3C45".to_owned();
    let aromatics = "c1ccc2c(c1)ccc1c2ccc2c1ccc1c2cccc1".to_owned();
    for molecule in [chain, dots, cage, aromatics] {
        let molecule = Molecule::parse(&molecule).unwrap();
        for smarts in [
            ["*"; 12].join("."),
            ["[C,N,O,S]"; 200].join("."),
            "C".repeat(1_900),
            "*~".repeat(900) + "*",
            "*(~*)".repeat(300),
            format!("[{}C]", "!".repeat(1_900)),
            format!("[{}C]", "N,".repeat(900)),
            format!("{}*{}", "[$(*~*~*~*~".repeat(8), ")]".repeat(8)),
            format!("[$(*{})]", "~[$(*~*~*~*~*)]".repeat(100)),
        ] {
            let start = Instant::now();
            let pattern = Pattern::parse(&smarts).unwrap();
            for result in
                [pattern.count(&molecule).map(|_| ()), pattern.matches(&molecule).map(|_| ())]
            {
                assert!(matches!(result, Ok(()) | Err(InvalidSmiles::Unsupported { .. })));
            }
            let elapsed = start.elapsed();
            assert!(elapsed < Duration::from_secs(10), "{smarts:.60}: {elapsed:?}");
        }
    }
}

#[test]
fn the_default_alerts_are_the_alerts_of_qed() {
    let patterns: Vec<Pattern> =
        default_alerts().map(|smarts| Pattern::parse(smarts).unwrap()).collect();
    assert_eq!(patterns.len(), 116);
    for smiles in ["CCCCBr", "O=C1C=CC(=O)C=C1", "CC(=O)Oc1ccccc1C(=O)O", "CCO"] {
        let molecule = Molecule::parse(smiles).unwrap();
        let alerts = patterns.iter().filter(|alert| alert.matches(&molecule).unwrap()).count();
        assert_eq!(alerts as u32, molecule.properties().unwrap().alerts, "{smiles}");
    }
}
