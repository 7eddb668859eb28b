use grpo_data::TextCodec;
use grpo_molecules::Vocabulary;
use proptest::prelude::*;
use std::path::Path;

/// MolGPT's vocabulary for MOSES, in index order.
const MOSES: &str = "# ( ) - 1 2 3 4 5 6 < = Br C Cl F N O S [H] [SH] [nH] c n o s";

/// MolGPT's vocabulary for GuacaMol, in index order.
const GUACAMOL: &str = "# %10 %11 %12 ( ) - 1 2 3 4 5 6 7 8 9 < = B Br C Cl F I N O P S \
    [B-] [BH-] [BH2-] [BH3-] [B] [C+] [C-] [CH+] [CH-] [CH2+] [CH2] [CH] [F+] [H] [I+] [IH2] [IH] \
    [N+] [N-] [NH+] [NH-] [NH2+] [NH3+] [N] [O+] [O-] [OH+] [O] [P+] [PH+] [PH2+] [PH] [S+] [S-] \
    [SH+] [SH] [Se+] [SeH+] [SeH] [Se] [Si-] [SiH-] [SiH2] [SiH] [Si] [b-] [bH-] [c+] [c-] [cH+] \
    [cH-] [n+] [n-] [nH+] [nH] [o+] [s+] [sH+] [se+] [se] b c n o p s";

/// Returns the output of Python's `json.dumps({token: index})`.
fn json(tokens: &str) -> String {
    let entries: Vec<String> = tokens
        .split_whitespace()
        .enumerate()
        .map(|(index, token)| format!("\"{token}\": {index}"))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

fn parse(json: &str) -> Result<Vocabulary, String> {
    Vocabulary::from_json(json, Path::new("v.json")).map_err(|error| error.to_string())
}

#[test]
fn the_vocabularies_of_molgpt_load_and_have_the_order_that_molecules_give() {
    let check = |tokens: &str, len: usize| {
        let loaded = parse(&json(tokens)).unwrap();
        assert_eq!(loaded.len(), len);
        assert_eq!(
            loaded.tokens().collect::<Vec<_>>(),
            tokens.split_whitespace().collect::<Vec<_>>()
        );
        let molecules = tokens.split_whitespace().rev().filter(|&token| token != "<");
        assert_eq!(Vocabulary::from_smiles(molecules).unwrap(), loaded);
        assert_eq!(loaded.token(loaded.boundary()), "<");
    };
    check(MOSES, 26);
    check(GUACAMOL, 94);
}

#[test]
fn ids_follow_the_file_and_not_the_alphabet() {
    let vocabulary = parse(r#"{"C": 2, "<": 1, "Br": 0}"#).unwrap();
    assert_eq!(vocabulary.encode("CBrC").unwrap(), [2, 0, 2]);
    assert_eq!(vocabulary.boundary(), 1);
    assert_eq!(vocabulary.decode(&[1, 2, 1, 0, 1, 1]), "CBr");
    assert_eq!(vocabulary.id("Br"), Some(0));
    assert_eq!(vocabulary.id("N"), None);
}

#[test]
fn a_vocabulary_survives_its_own_json() {
    let vocabulary = parse(r#"{"C": 2, "<": 1, "\\": 0}"#).unwrap();
    let text = vocabulary.to_json();
    assert_eq!(text, "{\n  \"\\\\\": 0,\n  \"<\": 1,\n  \"C\": 2\n}");
    assert_eq!(parse(&text).unwrap(), vocabulary);
}

#[test]
fn reads_a_file_and_reports_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.json");
    std::fs::write(&path, json(MOSES)).unwrap();
    assert_eq!(Vocabulary::from_json_file(&path).unwrap().len(), 26);
    let error = Vocabulary::from_json_file(Path::new("none.json")).unwrap_err();
    assert_eq!(error.to_string(), "`none.json` does not exist; check the path");
    let error = Vocabulary::from_json_file(folder.path()).unwrap_err();
    assert!(error.to_string().starts_with("cannot read `"), "{error}");
}

#[test]
fn wrong_vocabularies_are_refused_with_their_fault() {
    let check = |json: &str, expect: &str| assert_eq!(parse(json).unwrap_err(), expect);
    check(
        r#"{"<": 0, "C": 2}"#,
        "vocabulary `v.json` assigns index 2 to token `C`; the 2 tokens must have distinct indices from 0 to 1",
    );
    check(
        r#"{"<": 0, "C": 1, "N": 1}"#,
        "vocabulary `v.json` assigns index 1 to token `N`; the 3 tokens must have distinct indices from 0 to 2",
    );
    check(
        r#"{"<": 0, "C": 18446744073709551615}"#,
        "vocabulary `v.json` assigns index 18446744073709551615 to token `C`; the 2 tokens must have distinct indices from 0 to 1",
    );
    check(r#"{"C": 0}"#, "vocabulary `v.json` is missing the end token `<`; add it");
    check("{}", "vocabulary `v.json` is missing the end token `<`; add it");
    check(
        r#"{"<": 0, "l": 1}"#,
        "vocabulary `v.json` has the entry `l`, which is not a single SMILES token; build the vocabulary from tokens, not from characters",
    );
    check(
        r#"{"<": 0, "CC": 1}"#,
        "vocabulary `v.json` has the entry `CC`, which is not a single SMILES token; build the vocabulary from tokens, not from characters",
    );
    check(
        r#"{"<": 0, "": 1}"#,
        "vocabulary `v.json` has the entry ``, which is not a single SMILES token; build the vocabulary from tokens, not from characters",
    );
    for text in ["", "[]", r#"{"<": -1}"#, r#"{"<": 0.5}"#, r#"{"<": 0"#] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("`v.json` is not a vocabulary: "), "{error}");
    }
}

#[test]
fn reports_the_position_of_an_unknown_token() {
    let vocabulary = parse(&json(MOSES)).unwrap();
    let check = |smiles: &str, token: &str, position: usize| {
        let error = vocabulary.encode(smiles).unwrap_err();
        assert_eq!((error.token.as_str(), error.position), (token, position));
    };
    check("CC[Xe]C", "[Xe]", 3);
    check("CIC", "I", 2);
    check("C?!", "?", 2);
    check("C<C", "<", 2);
    check("CBr C", " ", 4);
    assert_eq!(
        vocabulary.encode("CIC").unwrap_err().to_string(),
        "`I` (character 2 of `CIC`) is not in the vocabulary; remove the molecule, or use a vocabulary that contains the token"
    );
    let long = vocabulary.encode(&"I".repeat(10_000)).unwrap_err();
    assert!(long.to_string().len() < 250, "{long}");
    assert_eq!(Vocabulary::from_smiles(["C", "C<"]).unwrap_err().position, 2);
}

#[test]
fn the_fingerprint_tells_vocabularies_apart() {
    let one = parse(r#"{"<": 0, "C": 1, "N": 2}"#).unwrap();
    let same = parse(r#"{ "N":2, "C":1, "<":0 }"#).unwrap();
    let other = parse(r#"{"<": 0, "C": 2, "N": 1}"#).unwrap();
    assert_eq!(one.sha256(), same.sha256());
    assert_ne!(one.sha256(), other.sha256());
    // The SHA-256 hash of all tokens, each prefixed with its length as 8 bytes in little-endian
    // order. Computed with Python's hashlib.
    assert_eq!(one.sha256(), "9810fe7b783786602ccd94bbee23a710c791b9ad3d4af41238b731651fa3411b");
}

#[test]
#[should_panic(expected = "token id 3 is outside a vocabulary of 3 tokens")]
fn decoding_an_id_outside_panics() {
    parse(r#"{"<": 0, "C": 1, "N": 2}"#).unwrap().decode(&[1, 3]);
}

proptest! {
    #[test]
    fn decoding_gives_back_what_was_encoded(ids in prop::collection::vec(0u32..93, 0..60)) {
        let vocabulary = parse(&json(GUACAMOL)).unwrap();
        // The vocabulary has 93 ids in addition to the boundary token.
        let skip = |id| if id < vocabulary.boundary() { id } else { id + 1 };
        let ids: Vec<u32> = ids.into_iter().map(skip).collect();
        let smiles = vocabulary.decode(&ids);
        // Tokens never begin with `l` or `r`, so adjacent tokens cannot merge.
        prop_assert_eq!(vocabulary.encode(&smiles).unwrap(), ids);
    }

    #[test]
    fn any_text_is_a_vocabulary_or_an_error(text: String, smiles: String) {
        let _ = parse(&text);
        let _ = parse(&json(MOSES)).unwrap().encode(&smiles);
    }
}

#[test]
fn molecules_can_start_with_an_atom() {
    let plain = parse(&json(MOSES)).unwrap();
    let carbon = plain.id("C").unwrap();
    let started = plain.clone().starting_with("C").unwrap();
    assert_eq!((started.start(), started.special().bos), (carbon, Some(carbon)));
    assert_eq!(started.special().eos, plain.special().eos);

    // The prompt is the atom, and the text of a completion contains it.
    let [oxygen, end] = ["O", "<"].map(|token| plain.id(token).unwrap());
    assert_eq!(started.encode_prompt("").unwrap(), [carbon]);
    assert_eq!(started.encode_completion("CCO").unwrap(), [carbon, oxygen]);
    assert_eq!(started.decode_completion(&[carbon, oxygen, end]), "CCO");
    assert_eq!(plain.decode_completion(&[carbon, oxygen, end]), "CO");
    assert_eq!(started.sequence(&[carbon, oxygen]), [carbon, oxygen, end]);
    assert_eq!(plain.sequence(&[carbon, oxygen]), [end, carbon, oxygen, end]);
    assert_eq!(
        started.encode_completion("OCC").unwrap_err().to_string(),
        "`OCC` does not start with `C`, the start token of this model; rewrite the SMILES so that it does"
    );

    // The file and the hash tell the two apart.
    assert_eq!(parse(&started.to_json()).unwrap(), started);
    assert!(started.to_json().starts_with("{\n  \"start\": \"C\",\n  \"tokens\": {"));
    assert_ne!(started.sha256(), plain.sha256());
    assert_eq!(plain.clone().starting_with("<").unwrap(), plain);
    assert!(!plain.to_json().contains("start"));
    assert_eq!(
        parse("{\"start\": \"Xe\", \"tokens\": {\"<\": 0, \"C\": 1}}").unwrap_err(),
        "`v.json`: the start token `Xe` is not in the vocabulary; use one of its tokens, such as `C`"
    );
    assert!(parse("{\"start\": \"C\", \"tokens\": {\"<\": 0, \"C\": 2}}").is_err());
}
