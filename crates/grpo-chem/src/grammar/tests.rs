//! Tests for the SMILES grammar.

use super::*;

/// RDKit 2026.09 parses all of these with `sanitize=False`.
#[test]
fn accepts_what_rdkit_reads() {
    for smiles in [
        "C",
        "[C]",
        "*",
        "[*H]",
        "Cl",
        "[cH-]1cccc1",
        "[se]1cccc1",
        "[13CH4]",
        "[HH]",
        "[H+]",
        "[2H]",
        "[H:1]",
        "[C:0]",
        "[CH0]",
        "[CH-1]",
        "[Fe++]",
        "[C+0]",
        "[#6]",
        "[13#6]",
        "[#0]",
        "[C@@H](F)(Cl)Br",
        "[C@TH2]",
        "[C@AL1]",
        "[Pt@SP3]",
        "[P@TB20](F)(Cl)(Br)(N)I",
        "[Co@OH]",
        "C->[Pt]",
        "[Pt]<-C",
        "C$C",
        "C:C",
        r"C\\C",
        "C(C)(C)C",
        "C(=O)O",
        "C(->[Pt])",
        "C(C.C)C",
        "C(C)1CC1",
        "C=1CC=1",
        "C=1CC1",
        "C=1CC#1",
        "C%10CC%10",
        "C%(0)CC%(0)",
        "C%(12345)CC%(12345)",
        "C0CC0",
        "C1.C1",
        "C1.C2.C12",
        "C.C",
        "cc",
        "C(C)(C)(C)(C)C",
    ] {
        assert!(check(smiles).is_ok(), "{smiles}: {:?}", check(smiles));
    }
}

/// RDKit 2026.09 rejects all of these. The toolkit's parser accepts many of them.
const REFUSED: &[&str] = &[
    "",
    "()",
    "(=)",
    "C()C",
    "C((C))C",
    "C(",
    "C)",
    "(C)",
    "C(=)C",
    "C=(C)C",
    "C-(C)C",
    "C(1CC1)",
    "C=",
    "=C",
    "C==C",
    "C/\\C",
    "C//C",
    ".",
    ".C",
    "C.",
    "C..C",
    "C(.C)C",
    "C=.C",
    "C@C",
    "C@",
    "[C@TH3]",
    "[P@TB21](F)(Cl)(Br)(N)I",
    "[P@TB0](F)(Cl)(Br)(N)I",
    "[H@]",
    "[H@@H]",
    "[C@?]",
    "[@C]",
    "[C",
    "C]",
    "[]",
    "[[C]]",
    "[C:]",
    "[C;H]",
    "[C+-]",
    "[C+++]",
    "[C++2]",
    "[CH-H]",
    "[H2]",
    "[13]",
    "[013C]",
    "[R]",
    "[D]",
    "[cl]",
    "[ge]",
    "[#]",
    "[#119]",
    "[2147483648C]",
    "D",
    "T",
    "Na",
    "se1cccc1",
    "N+",
    "C11",
    "C1",
    "C1C1",
    "C1CC12",
    "C12CC12",
    "1CC1",
    "C%1CC%1",
    "C%01CC%01",
    "C%00",
    "C%",
    "C%(1C",
    "C%(1CC%(1",
    "C%()C",
    "C%(123456)CC%(123456)",
    "C>>C",
    "C>C",
    "C<C",
    "CC\0",
    "é",
    "C–C",
    "🧪",
    "aspirin",
    "C C",
];

#[test]
fn refuses_what_rdkit_refuses() {
    for smiles in REFUSED {
        assert!(check(smiles).is_err(), "{smiles}");
    }
}

#[test]
fn notes_what_the_toolkit_does_not_read() {
    for (smiles, expected) in [
        ("C(C)C.C", Dialect::default()),
        ("C(C.C)C", Dialect { split_branch: true, ..Dialect::default() }),
        (r"C\\C", Dialect { spelling: true, ..Dialect::default() }),
        ("C=1CC-1", Dialect { ignored_bonds: vec![5], ..Dialect::default() }),
        ("C/1CC=1", Dialect { ignored_bonds: vec![1], ..Dialect::default() }),
        (r"C/1CC\1", Dialect::default()),
        ("C/1CC/1", Dialect { ignored_bonds: vec![5], ..Dialect::default() }),
    ] {
        assert_eq!(check(smiles), Ok(expected), "{smiles}");
    }
}

/// Maximum nesting depth of branches within [`MAX_LENGTH`].
const DEEPEST: usize = (MAX_LENGTH - 1) / 3;

#[test]
fn limits_are_inclusive() {
    assert!(check(&"C".repeat(MAX_LENGTH)).is_ok());
    assert!(matches!(check(&"C".repeat(MAX_LENGTH + 1)), Err(InvalidSmiles::TooLong { .. })));
    let rings = |count| check(&"C1CC1".repeat(count));
    assert!(rings(MAX_RING_CLOSURES).is_ok());
    assert_eq!(
        rings(MAX_RING_CLOSURES + 1),
        Err(InvalidSmiles::TooManyRings { limit: MAX_RING_CLOSURES })
    );
    let nested = |depth| check(&("C".to_owned() + &"(C".repeat(depth) + &")".repeat(depth)));
    assert!(nested(DEEPEST).is_ok());
    assert!(matches!(nested(DEEPEST + 1), Err(InvalidSmiles::TooLong { .. })));
}
