//! Tokenizers in `vocab.json` and `merges.txt`. The folders and their ids are those of
//! `tests/fixtures/make_tokenizer_parts.py`.

use std::path::Path;

use grpo_data::{Codec, Codecs, TextTokenizer};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

fn fixture() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer_parts.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Writes a folder of the fixture.
fn write(fixture: &Value, of: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let mut vocabulary = fixture["vocab"].as_object().unwrap().clone();
    if of["has_end_of_text"] == true {
        vocabulary.insert("<|endoftext|>".to_owned(), vocabulary.len().into());
    }
    write("vocab.json", &Value::from(vocabulary).to_string());
    write("merges.txt", fixture["merges"].as_str().unwrap());
    for (name, content) in of["files"].as_object().unwrap() {
        write(name, &content.to_string());
    }
    folder
}

fn read(folder: &Path) -> Result<Codec, String> {
    let read = Codecs::default().read(folder);
    read.map_err(|error| error.to_string().replace(folder.to_str().unwrap(), "m"))
}

#[test]
fn ids_and_texts_are_those_of_transformers() {
    let fixture = fixture();
    let folders = fixture["folders"].as_array().unwrap();
    assert_eq!(folders.len(), 5);
    for of in folders {
        let codec = read(write(&fixture, of).path()).unwrap();
        // What is saved with a model is a tokenizer that other programs read.
        let (name, json) = &codec.files()[0];
        assert_eq!(name, "tokenizer.json");
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join(name), json).unwrap();
        let tokenizer = TextTokenizer::from_file(&copy.path().join(name)).unwrap();
        assert_eq!(codec.token_count(), Some(tokenizer.len()));
        for (at, text) in fixture["texts"].as_array().unwrap().iter().enumerate() {
            let (text, folder) = (text.as_str().unwrap(), &of["name"]);
            let ids: Vec<u32> = serde_json::from_value(of["ids"][at].clone()).unwrap();
            let special: Vec<u32> = serde_json::from_value(of["special"][at].clone()).unwrap();
            assert_eq!(tokenizer.encode(text).unwrap(), ids, "{folder} {text:?}");
            assert_eq!(tokenizer.encode_with_special(text).unwrap(), special, "{folder} {text:?}");
            assert_eq!(tokenizer.decode_all(&ids), of["decoded_all"][at], "{folder} {text:?}");
            assert_eq!(tokenizer.decode(&ids), of["decoded"][at], "{folder} {text:?}");
        }
    }
}

#[test]
fn folders_that_need_a_conversion_are_refused_with_its_command() {
    let fixture = fixture();
    let remedy = "; write one in Python with transformers: AutoTokenizer.from_pretrained(\"m\").save_pretrained(\"m\")";
    let check = |files: Value, expected: &str| {
        let of = json!({ "files": files });
        assert_eq!(
            read(write(&fixture, &of).path()).unwrap_err(),
            format!(
                "`m` has vocab.json and merges.txt, from which GPT2Tokenizer and Qwen2Tokenizer are built, but {expected}, and there is no tokenizer.json{remedy}"
            )
        );
    };
    check(
        json!({"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer"}}),
        "its tokenizer_class is RobertaTokenizer",
    );
    check(json!({"config.json": {"model_type": "llama"}}), "no file names its tokenizer_class");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.model"), "").unwrap();
    assert_eq!(
        read(folder.path()).unwrap_err(),
        format!(
            "`m` has the SentencePiece model tokenizer.model, which is not read, but no tokenizer.json{remedy}"
        )
    );
    // Without a tokenizer, a model reads and writes ids.
    std::fs::remove_file(folder.path().join("tokenizer.model")).unwrap();
    assert!(!read(folder.path()).unwrap().is_text());
}

#[test]
fn files_that_do_not_fit_are_refused_with_their_fault() {
    let fixture = fixture();
    let size = fixture["vocab"].as_object().unwrap().len();
    let check = |name: &str, content: &str, expected: &str| {
        let of = json!({ "files": {"config.json": {"model_type": "qwen2"}} });
        let folder = write(&fixture, &of);
        std::fs::write(folder.path().join(name), content).unwrap();
        let error = read(folder.path()).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    };
    check("vocab.json", "[]", "`m/vocab.json` is not a vocabulary: found a list");
    check("vocab.json", r#"{"a": -1}"#, "`m/vocab.json` is not a vocabulary: ");
    check("vocab.json", r#"{"a": 1, "a": 2}"#, "`m/vocab.json` is not a vocabulary: ");
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    check("vocab.json", &nested, "`m/vocab.json` is not a vocabulary: ");
    let merge = "expected two tokens of vocab.json that merge into a third one";
    check("merges.txt", "#version: 0.2\na b c\n", &format!("m/merges.txt:2: {merge}"));
    check("merges.txt", "ab\n", &format!("m/merges.txt:1: {merge}"));
    check("merges.txt", "a §\n", &format!("m/merges.txt:1: {merge}"));
    check("merges.txt", "\n", &format!("m/merges.txt:1: {merge}"));
    let config = |added: Map<String, Value>| {
        json!({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added}).to_string()
    };
    let added = |id: &str| config(Map::from_iter([(id.to_owned(), json!({"content": "<a>"}))]));
    check(
        "tokenizer_config.json",
        &added(&(size + 7).to_string()),
        &format!(
            "`m`: the added token `<a>` has the id {}, but after the {size} tokens of vocab.json and the added tokens before it, it gets {size}; ",
            size + 7
        ),
    );
    check(
        "tokenizer_config.json",
        &added("x"),
        "`m/tokenizer_config.json`: the id x of an added token is not a token id",
    );
}
