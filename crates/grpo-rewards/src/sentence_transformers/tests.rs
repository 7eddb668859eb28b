use std::fs;

use super::*;
use crate::EmbedderConfig;

/// A tiny encoder with random weights in the format of sentence-transformers 6. Its vectors are
/// verified in the selftest.
fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-selftest/fixtures/models/sentence-new")
}

fn load(folder: &Path) -> Result<SentenceTransformers, FolderError> {
    SentenceTransformers::load(folder, &Device::flex())
}

/// Creates a copy of the fixture that a test can modify.
fn copy() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for path in SentenceTransformers::files(&fixture()).unwrap() {
        let place = copy.path().join(path.strip_prefix(fixture()).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(path, place).unwrap();
    }
    copy
}

#[track_caller]
fn fault(file: &str, change: impl Fn(&str) -> Option<String>, expect: &str) {
    let copy = copy();
    let path = copy.path().join(file);
    match change(&fs::read_to_string(&path).unwrap_or_default()) {
        Some(text) => fs::write(path, text).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
    let fault = load(copy.path()).unwrap_err().to_string();
    assert!(fault.contains(expect), "{fault}");
    assert!(fault.contains(&copy.path().display().to_string()), "{fault}");
}

#[test]
fn lists_all_files_of_a_folder() {
    let encoder = load(&fixture()).unwrap();
    assert_eq!((encoder.width(), encoder.longest, encoder.lower_case), (24, 16, false));
    let copy = copy();
    assert_eq!(load(copy.path()).unwrap().identity(), encoder.identity());
    fs::write(copy.path().join(LENGTH), r#"{"max_seq_length": 9}"#).unwrap();
    assert_ne!(load(copy.path()).unwrap().identity(), encoder.identity());
}

#[test]
fn reports_the_contents_of_a_missing_folder() {
    let config = EmbedderConfig::SentenceTransformers { folder: "no/such".into() };
    let missing = config.build(&Device::flex()).map(drop).unwrap_err().to_string();
    assert_eq!(
        missing,
        "embedder.folder: cannot use no/such as a sentence encoder: the folder does not exist; a sentence-transformers folder contains modules.json, config.json, tokenizer.json, model.safetensors, 1_Pooling/config.json and usually sentence_bert_config.json"
    );
    assert_eq!(config.files().unwrap_err().to_string(), missing);
}

#[test]
fn what_is_not_computed_is_refused() {
    let text = |text: &str| {
        let text = text.to_owned();
        move |_: &str| Some(text.clone())
    };
    fault(MODULES, |_| None, "modules.json is missing");
    fault(MODULES, text("[]"), "supported: a Transformer");
    fault(MODULES, text("{"), "cannot read modules.json");
    fault(
        MODULES,
        |all| Some(all.replace("pooling.Pooling", "dense.Dense")),
        "lists Transformer, Dense",
    );
    for path in ["../../elsewhere", "/elsewhere", "..", "a/b", ""] {
        let to = move |all: &str| Some(all.replace("1_Pooling", path));
        let expect = format!("has path '{path}' for Pooling; expected the name of a subfolder");
        fault(MODULES, to, &expect);
    }
    fault("1_Pooling/config.json", |_| None, "1_Pooling/config.json is missing");
    fault(
        "1_Pooling/config.json",
        text(r#"{"pooling_mode": "cls"}"#),
        r#"pooling_mode = "cls"; only mean pooling is supported"#,
    );
    fault(
        "1_Pooling/config.json",
        text(r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#),
        "pooling_mode_cls_token = true",
    );
    fault("1_Pooling/config.json", text("{}"), "no pooling_mode");
    fault(PROMPTS, text(r#"{"default_prompt_name": "query"}"#), "the default prompt 'query'");
    fault(LENGTH, text(r#"{"max_seq_length": 2}"#), "max_seq_length = 2");
    fault(TOKENIZER, |_| None, TOKENIZER);
    fault("model.safetensors", |_| None, "model.safetensors");
    fault(
        CONFIG,
        |all| Some(all.replace(r#""model_type": "bert""#, r#""model_type": "gpt2""#)),
        "config.json",
    );
}

#[test]
fn each_text_has_its_own_vector() {
    let encoder = load(&fixture()).unwrap();
    let texts = ["The garden", " ", "The garden ", "the train", "", "The garden"];
    let vectors = encoder.embed(&texts).unwrap();
    assert_eq!(vectors[1], vec![0.0; 24]);
    assert_eq!(vectors[4], vec![0.0; 24]);
    assert_eq!(vectors[0], vectors[2]);
    assert_eq!(vectors[0], vectors[5]);
    assert_ne!(vectors[0], vectors[3]);
    for (text, vector) in texts.iter().zip(&vectors) {
        assert_eq!(&encoder.embed(&[text]).unwrap()[0], vector);
    }
}

#[test]
fn a_long_text_keeps_its_beginning_and_the_marks() {
    let encoder = load(&fixture()).unwrap();
    let ids = |text: &str| encoder.ids(text).unwrap().unwrap();
    let (short, long) = (ids("the garden"), ids(&"the garden ".repeat(5_000)));
    assert_eq!((short.len(), long.len()), (4, 16));
    assert_eq!((short[0], short[3]), (long[0], long[15]));
    assert_eq!(short[1..3], long[13..15]);
}

#[test]
fn tokens_have_unit_vectors_whose_mean_is_that_of_the_text() {
    let encoder = load(&fixture()).unwrap();
    let ids = encoder.ids("the dog is sad").unwrap().unwrap();
    let found = encoder.token_vectors("the dog is sad").unwrap();
    let [front, back] = &encoder.marks;
    assert_eq!(found.vectors.len(), ids.len());
    assert_eq!(found.own, front.len()..ids.len() - back.len());
    let hidden = encoder.encoder.hidden(&TokenBatch::from_iter([ids.as_slice()])).into_data();
    let hidden = hidden.try_to_vec::<f32>().unwrap();
    let mut mean = vec![0.0_f64; encoder.width()];
    for (unit, hidden) in found.vectors.iter().zip(hidden.chunks(encoder.width())) {
        let length = hidden.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
        for (place, (unit, hidden)) in unit.iter().zip(hidden).enumerate() {
            assert!((f64::from(*unit) * length - f64::from(*hidden)).abs() < 1e-6);
            mean[place] += f64::from(*hidden);
        }
    }
    // The embedding of the text, which is verified against sentence-transformers, is their mean.
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    let vector = encoder.embed(&["the dog is sad"]).unwrap().remove(0);
    for (mean, vector) in mean.iter().zip(vector) {
        assert!((mean / length - f64::from(vector)).abs() < 1e-6);
    }
    assert_eq!(encoder.token_vectors(" ").unwrap(), TokenVectors::default());
}
