use grpo_data::{SpecialIds, TextTokenizer};
use std::path::Path;

fn read(files: &[(&str, &str)], with_tokenizer: bool) -> Result<SpecialIds, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer.json");
    let tokenizer = with_tokenizer.then(|| TextTokenizer::from_file(&path).unwrap());
    let prefix = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
    SpecialIds::from_folder(folder.path(), tokenizer.as_ref())
        .map_err(|error| error.to_string().replace(&prefix, ""))
}

const GENERATION: &str = "generation_config.json";
const CONFIG: &str = "config.json";
const NAMES: &str = "tokenizer_config.json";

#[test]
fn ends_are_united_and_beginning_and_padding_the_first() {
    // <|endoftext|> 330, <|im_start|> 331, <|im_end|> 332.
    let files = [
        (GENERATION, r#"{"eos_token_id": [332, 330], "pad_token_id": 330, "bos_token_id": null}"#),
        (CONFIG, r#"{"eos_token_id": 7, "bos_token_id": 331, "pad_token_id": 5}"#),
        (NAMES, r#"{"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>"}"#),
    ];
    let learned_end = Some(332);
    let expect = SpecialIds { bos: Some(331), eos: vec![332, 330, 7], learned_end, pad: Some(330) };
    assert_eq!(read(&files, true).unwrap(), expect);
    assert_eq!(read(&files, false).unwrap(), expect);
    let names = SpecialIds { bos: Some(330), eos: vec![332], learned_end, pad: None };
    assert_eq!(read(&files[2..], true).unwrap(), names);
    assert_eq!(read(&files[2..], false).unwrap(), SpecialIds::default());
    let padded = (NAMES, r#"{"pad_token": "<|endoftext|>"}"#);
    assert_eq!(read(&[padded], true).unwrap().pad, Some(330));
    assert_eq!(read(&[], true).unwrap(), SpecialIds::default());
}

/// Llama 3 lists the end-of-document token first, but its chats end with the tokenizer's EOS token.
#[test]
fn what_is_learned_ends_as_the_tokenizer_says() {
    let list = (GENERATION, r#"{"eos_token_id": [330, 331, 332]}"#);
    let names = (NAMES, r#"{"eos_token": "<|im_end|>"}"#);
    let both = read(&[list, names], true).unwrap();
    assert_eq!((both.learned_end, both.eos), (Some(332), vec![330, 331, 332]));
    assert_eq!(read(&[list], true).unwrap().learned_end, Some(330));
    assert_eq!(read(&[list, names], false).unwrap().learned_end, Some(330));
}

#[test]
fn wrong_files_are_named_with_their_key() {
    let check = |name: &str, text: &str, expect: &str| {
        assert_eq!(read(&[(name, text)], true).unwrap_err(), expect);
    };
    check(
        CONFIG,
        r#"{"eos_token_id": [1, "2"]}"#,
        "`eos_token_id` in `config.json` is the string \"2\"; expected a token id or a list of token ids; correct or remove it",
    );
    check(
        GENERATION,
        r#"{"pad_token_id": -1}"#,
        "`pad_token_id` in `generation_config.json` is the value -1; expected a token id or a list of token ids; correct or remove it",
    );
    check(
        CONFIG,
        r#"{"bos_token_id": 4294967296}"#,
        "`bos_token_id` in `config.json` is the value 4294967296; expected a token id or a list of token ids; correct or remove it",
    );
    check(
        NAMES,
        r#"{"eos_token": "<end>"}"#,
        "`eos_token` in `tokenizer_config.json` is the string \"<end>\"; expected a token of the tokenizer; correct or remove it",
    );
    check(
        NAMES,
        r#"{"eos_token": []}"#,
        "`eos_token` in `tokenizer_config.json` is an empty list; expected a string, or an object with a string `content`; correct or remove it",
    );
    let many: Vec<u32> = (0..1_000_000).collect();
    check(
        GENERATION,
        &format!("{{\"eos_token_id\": {many:?}}}"),
        "`eos_token_id` in `generation_config.json` lists 1000000 ids; expected at most 1000; copy the file from the original model again",
    );
    check(
        GENERATION,
        "{",
        "`generation_config.json` is not a JSON object: unexpected end of input at line 1 column 1; copy the file from the original model again",
    );
}
