use grpo_data::TextTokenizer;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

static TOKENIZER: LazyLock<TextTokenizer> =
    LazyLock::new(|| TextTokenizer::from_file(&fixture("tokenizer.json")).unwrap());

/// Loads the fixture's tokenizer after modifying its JSON with `change`.
fn changed(change: impl FnOnce(&mut Value)) -> Result<TextTokenizer, String> {
    let text = std::fs::read_to_string(fixture("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    change(&mut json);
    read(json.to_string().as_bytes())
}

fn read(bytes: &[u8]) -> Result<TextTokenizer, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, bytes).unwrap();
    let tokenizer = TextTokenizer::from_file(&path);
    tokenizer.map_err(|error| error.to_string().replace(path.to_str().unwrap(), "t.json"))
}

#[test]
fn ids_and_texts_are_those_of_the_python_package() {
    let text = std::fs::read_to_string(fixture("tokenizer_cases.json")).unwrap();
    let fixture: Value = serde_json::from_str(&text).unwrap();
    let cases = fixture["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 9);
    for case in cases {
        let ids = |key: &str| -> Vec<u32> { serde_json::from_value(case[key].clone()).unwrap() };
        let text = case["text"].as_str().unwrap();
        assert_eq!(TOKENIZER.encode(text).unwrap(), ids("ids"), "{text:?}");
        assert_eq!(TOKENIZER.encode_with_special(text).unwrap(), ids("special"), "{text:?}");
        assert_eq!(TOKENIZER.decode(&ids("ids")), case["decoded"], "{text:?}");
        assert_eq!(TOKENIZER.decode_all(&ids("special")), case["decoded_all"], "{text:?}");
    }
    assert_eq!(TOKENIZER.len(), fixture["len"]);
}

#[test]
fn a_special_token_that_is_written_in_a_text_is_found() {
    let find = |text| TOKENIZER.special_token_in(text, &[]).unwrap();
    assert_eq!(find("two<|im_end|>two"), Some("<|im_end|>"));
    assert_eq!(find("two <|im_end| > <think> \u{e000}"), None);
    // An extra mark that is not special in `tokenizer.json`.
    let think = TOKENIZER.token_id("<think>").unwrap();
    assert_eq!(TOKENIZER.special_token_in("a <think>", &[think]).unwrap(), Some("<think>"));

    // Unknown text is encoded as `<unk>`, although the text does not contain it literally.
    let words = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 0, "content": "<unk>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "two": 1}, "unk_token": "<unk>"},
    });
    let words = read(words.to_string().as_bytes()).unwrap();
    assert_eq!(words.encode("two three").unwrap(), [1, 0]);
    assert_eq!(words.special_token_in("two three", &[]).unwrap(), None);
    assert_eq!(words.special_token_in("two <unk>", &[]).unwrap(), Some("<unk>"));
}

#[test]
fn special_tokens_in_a_text_are_one_id_each() {
    let start = TOKENIZER.token_id("<|im_start|>").unwrap();
    let think = TOKENIZER.token_id("<think>").unwrap();
    assert_eq!(TOKENIZER.encode("<|im_start|><think>").unwrap(), [start, think]);
    assert_eq!(TOKENIZER.decode(&[start, think]), "<think>");
    assert_eq!(TOKENIZER.decode_all(&[start, think]), "<|im_start|><think>");
    assert_eq!(TOKENIZER.token_id("<|im_middle|>"), None);
}

#[test]
fn nothing_is_cut_and_nothing_padded() {
    // The fixture is configured for a maximum of 4 ids and a minimum of 8.
    assert_eq!(TOKENIZER.encode(&"x".repeat(1000)).unwrap().len(), 1000);
    assert_eq!(TOKENIZER.encode("x").unwrap().len(), 1);
    assert_eq!(TOKENIZER.encode_with_special("x").unwrap().len(), 2);
}

#[test]
fn the_length_is_past_the_largest_id() {
    let words = r#"{"type": "WordLevel", "vocab": {"b": 7, "a": 0}, "unk_token": "a"}"#;
    let tokenizer = read(format!(r#"{{"version": "1.0", "model": {words}}}"#).as_bytes()).unwrap();
    assert_eq!(tokenizer.len(), 8);
}

#[test]
fn ids_outside_are_skipped_and_half_characters_replaced() {
    let x = TOKENIZER.encode("x").unwrap()[0];
    assert_eq!(TOKENIZER.decode(&[x, u32::MAX, TOKENIZER.len() as u32, x]), "xx");
    assert_eq!(TOKENIZER.decode(&[]), "");
    let crab = TOKENIZER.encode("🦀").unwrap();
    assert_eq!(crab.len(), 4);
    assert_eq!(TOKENIZER.decode(&crab[..2]), "\u{fffd}");
}

#[test]
fn files_that_are_no_tokenizer_are_refused_with_their_fault() {
    let check = |found: Result<TextTokenizer, String>, expect: &str| {
        let error = found.unwrap_err();
        assert!(error.starts_with("`t.json` is not a usable tokenizer: "), "{error}");
        assert!(error.contains(expect), "{error}");
        assert!(
            error.ends_with("; expected the `tokenizer.json` of a Hugging Face model"),
            "{error}"
        );
    };
    check(read(b""), "it is empty");
    check(read(b"[]"), "found a list; expected an object");
    check(read(br#"{"version": "1.0"}"#), "Model missing");
    // The `tokenizers` crate would panic on this input.
    check(read(br#"{"decoder": {1}}"#), "tokenizer: a key has no double quotes at line 1");
    check(changed(|json| json["version"] = json!("9")), "Unknown tokenizer version '9'");
    check(changed(|json| json["model"]["dropout"] = json!(0.1)), "`model.dropout` is 0.1");
    check(
        changed(|json| json["added_tokens"][4]["id"] = json!(1000)),
        "it assigns `</think>` the id 1000, which would be decoded as 334",
    );
    check(
        changed(|json| json["added_tokens"][4]["id"] = json!(-1)),
        "a whole number that is not negative",
    );
    check(changed(|json| json["model"]["merges"][0] = json!(3)), "unsupported value");
    let shared = r#"{"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 1}, "unk_token": "a"}"#;
    check(
        read(format!(r#"{{"version": "1.0", "model": {shared}}}"#).as_bytes()),
        "its tokens `b` and `c` have the same id 1",
    );
    let empty = r#"{"type": "WordLevel", "vocab": {}, "unk_token": "?"}"#;
    check(read(format!(r#"{{"version": "1.0", "model": {empty}}}"#).as_bytes()), "no tokens");
    assert!(changed(|json| json["model"]["dropout"] = json!(0.0)).is_ok());
    let error = TextTokenizer::from_file(Path::new("none.json")).unwrap_err();
    assert_eq!(error.to_string(), "`none.json` does not exist; check the path");
    let error = read(b"\xff").unwrap_err();
    assert!(error.starts_with("cannot read `t.json`: "), "{error}");
}

#[test]
fn a_text_without_ids_is_an_error() {
    let words = r#"{"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}"#;
    let tokenizer = read(format!(r#"{{"version": "1.0", "model": {words}}}"#).as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("a").unwrap(), [0]);
    let error = tokenizer.encode(&"b".repeat(1000)).unwrap_err().to_string();
    assert!(error.contains("cannot encode `bbb") && error.contains("…`: "), "{error}");
    assert!(error.ends_with("; remove the text, or use a tokenizer with an unknown token"));
}

#[test]
fn panics_of_the_tokenizers_crate_are_errors() {
    // A template with an unknown special token. The crate would panic on the missing map key.
    let broken = changed(|json| {
        json["post_processor"]["special_tokens"] = json!({});
        json["post_processor"]["single"][0]["SpecialToken"]["id"] = json!("<none>");
    });
    if let Ok(tokenizer) = broken {
        let error = tokenizer.encode_with_special("x").unwrap_err().to_string();
        assert!(error.contains("its content is inconsistent or damaged"), "{error}");
        assert_eq!(tokenizer.decode(&tokenizer.encode("x").unwrap()), "x");
    } else {
        panic!("{broken:?}");
    }
    // A decoder that strips more characters than the token has.
    let strip = json!({"type": "Strip", "content": "x", "start": 0, "stop": 4});
    let broken = changed(|json| json["decoder"] = strip).unwrap();
    assert_eq!(broken.decode(&broken.encode("x").unwrap()), "x");
}

proptest! {
    #[test]
    fn any_text_comes_back(text: String) {
        // The fixture's NFC normalizer leaves ASCII and Hangul syllables unchanged.
        let text: String = text.chars().filter(|c| c.is_ascii() || ('가'..='힣').contains(c)).collect();
        prop_assert_eq!(TOKENIZER.decode_all(&TOKENIZER.encode(&text).unwrap()), text);
    }

    #[test]
    fn any_ids_decode(ids: Vec<u32>, small in prop::collection::vec(0u32..340, 0..50), text: String) {
        TOKENIZER.decode(&ids);
        TOKENIZER.decode_all(&small);
        let ids = TOKENIZER.encode(&text).unwrap();
        prop_assert!(ids.iter().all(|&id| (id as usize) < TOKENIZER.len()));
    }
}

/// A tokenizer that marks the beginning of every text, like that of Llama 2.
const MARKING: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    ]},
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {
        "type": "BPE", "dropout": null, "unk_token": null,
        "vocab": {"▁": 0, "a": 1, "b": 2, "▁a": 3, "▁b": 4, "\n": 5, "x": 6, "▁x": 7, "\na": 8},
        "merges": ["▁ a", "▁ b", "▁ x", "\n a"]
    }
}"#;

#[test]
fn a_text_behind_another_has_no_mark_of_a_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, MARKING).unwrap();
    let marking = TextTokenizer::from_file(&path).unwrap();
    assert_eq!(marking.encode("b").unwrap(), [4]);
    assert_eq!(marking.encode_behind("b").unwrap(), [2]);
    assert_eq!(marking.encode_behind(" b").unwrap(), [4]);
    assert_eq!(marking.encode_behind("").unwrap(), [0_u32; 0]);
    // `\na` is a single token, so the anchor cannot be separated from the text.
    let fault = marking.encode_behind("a").unwrap_err().to_string();
    assert!(fault.contains("merge with a preceding line break"), "{fault}");

    let plain = &*TOKENIZER;
    for text in ["b", " b", "\n\n", ""] {
        assert_eq!(plain.encode_behind(text).unwrap(), plain.encode(text).unwrap());
    }
}
