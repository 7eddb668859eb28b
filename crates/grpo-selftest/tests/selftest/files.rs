//! Tests invalid golden files.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use grpo_selftest::golden::{read_advantages, read_losses};
use grpo_selftest::{Options, run};
use serde_json::{Value, json};

fn built_in(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns a file with three small cases in which the value at `key` is replaced in the last case.
/// If `key` starts with `-`, the key is removed.
fn changed(name: &str, key: &str, value: Value) -> String {
    let mut file = built_in(name);
    let is_small = |case: &Value| {
        let of = |pointer| case.pointer(pointer).map(|rows| rows.as_array().unwrap().len());
        of("/inputs/mask") == Some(1) || of("/weights") == Some(1)
    };
    let cases = file["cases"].as_array_mut().unwrap();
    cases.retain(is_small);
    cases.truncate(3);
    let case = file["cases"].get_mut(2).unwrap();
    match key.strip_prefix('-') {
        Some(key) => {
            let (parent, key) = key.rsplit_once('/').unwrap();
            // An empty pointer refers to the case itself.
            case.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        }
        None => *case.pointer_mut(key).unwrap() = value,
    }
    file.to_string()
}

#[track_caller]
fn check_losses(key: &str, value: Value, expected: &str) {
    let error = read_losses(&changed("losses.json", key, value), "l.json").unwrap_err();
    assert_eq!(error.to_string(), format!("`l.json`, case 2, key {expected}"));
}

#[track_caller]
fn check_advantages(key: &str, value: Value, expected: &str) {
    let error = read_advantages(&changed("advantages.json", key, value), "a.json").unwrap_err();
    assert_eq!(error.to_string(), format!("`a.json`, case 2, key {expected}"));
}

#[test]
fn losses() {
    check_losses(
        "/config/loss_type",
        json!("gppo"),
        "`config.loss_type`: unknown variant `gppo`, expected one of `grpo`, `bnpo`, `dr_grpo`, `dapo`, `cispo`, `sapo`, `vespo`, `luspo`",
    );
    check_losses(
        "/config/is_correction",
        json!("icepop"),
        "`config.is_correction`: unknown variant `icepop`, expected one of `token_truncate`, `token_mask`, `sequence_truncate`, `sequence_mask`",
    );
    check_losses(
        "/config",
        json!(3),
        "`config`: invalid type: integer `3`, expected an object with named values",
    );
    check_losses("-/config/beta", Value::Null, "`config.beta`: missing");
    check_losses("-/inputs/ref", Value::Null, "`inputs.ref`: missing");
    check_losses("-/expected/loss", Value::Null, "`expected.loss`: missing");
    check_losses(
        "/inputs/logp/0/0",
        json!("a"),
        "`inputs.logp[0][0]`: invalid type: string \"a\", expected f64",
    );
    check_losses(
        "/inputs/logp/0/0",
        Value::Null,
        "`inputs.logp[0][0]`: invalid type: null, expected f64",
    );
    check_losses(
        "/inputs/old",
        json!([[0.0, 0.0]]),
        "`inputs.old`: row 0 has 2 numbers, expected 1",
    );
    check_losses("/inputs/sampling", json!([]), "`inputs.sampling`: 0 rows, expected 1");
    check_losses("/inputs/advantages", json!([0, 1]), "`inputs.advantages`: 2 values, expected 1");
    check_losses("/inputs/mask", json!([[0.5]]), "`inputs.mask`: 0.5 in a mask, expected 0 or 1");
    check_losses("/inputs/mask", json!([]), "`inputs.mask`: empty, expected at least one token");
    check_losses("/inputs/mask", json!([[]]), "`inputs.mask`: empty, expected at least one token");
    check_losses(
        "/expected/grad_entropy",
        json!([[0.5], [0.5]]),
        "`expected.grad_entropy`: 2 rows, expected 1",
    );
    check_losses(
        "/expected/importance_sampling_ratio",
        json!([[0.5, 0.5]]),
        "`expected.importance_sampling_ratio`: row 0 has 2 numbers, expected 1",
    );
    check_losses(
        "/config/beta",
        json!(-1),
        "`config`: kl_coef = -1 is out of range; it must be 0 or more and finite",
    );
    check_losses(
        "/config/steps_per_generation",
        json!(3),
        "`config.steps_per_generation`: 3, expected a divisor of 1 tokens × 1",
    );
    check_losses(
        "/config/gradient_accumulation_steps",
        json!(0),
        "`config.gradient_accumulation_steps`: 0, expected 1 or more",
    );
}

#[test]
fn advantages() {
    check_advantages(
        "/scale_rewards",
        json!("groups"),
        "`scale_rewards`: unknown variant `groups`, expected one of `group`, `batch`, `none`",
    );
    check_advantages("-/weights", Value::Null, "`weights`: missing");
    check_advantages(
        "/rewards/1",
        json!([1, 2, 3, 4]),
        "`rewards`: row 1 has 4 numbers, expected 1",
    );
    check_advantages(
        "/num_generations",
        json!(0),
        "`num_generations`: 0, expected a divisor of the 4 rows of rewards",
    );
    check_advantages(
        "/expected/advantages",
        json!([1.0]),
        "`expected.advantages`: 1 values, expected 4",
    );
    check_advantages(
        "/expected/is_std_zero",
        json!(["no"]),
        "`expected.is_std_zero[0]`: invalid type: string \"no\", expected a boolean",
    );
}

#[test]
fn no_json_and_no_cases() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(read_losses(text, "l.json").unwrap_err().to_string(), expected);
        assert_eq!(read_advantages(text, "l.json").unwrap_err().to_string(), expected);
    }
    check(
        r#"{"cases": [{"#,
        "`l.json` is not valid JSON: unexpected end of input at line 1 column 12",
    );
    check("", "`l.json` is not valid JSON: it is empty");
    check(
        r#"{"cases": [1e999]}"#,
        "`l.json` is not valid JSON: a number is too large at line 1 column 16",
    );
    check("{}", "`l.json` has nothing under the key `cases`; expected a list of at least one case");
    check("3", "`l.json` has nothing under the key `cases`; expected a list of at least one case");
    check(
        r#"{"cases": []}"#,
        "`l.json` has an empty list under the key `cases`; expected a list of at least one case",
    );
    check(
        r#"{"cases": {}}"#,
        "`l.json` has something else under the key `cases`; expected a list of at least one case",
    );
}

#[test]
fn folders() {
    #[track_caller]
    fn check(golden: &Path, expected: &str) {
        let options = Options {
            golden: Some(golden.to_owned()),
            device: Device::flex(),
            families: crate::families(),
        };
        let error = run(&options).unwrap_err().to_string();
        let shown = golden.display().to_string();
        assert_eq!(error.replace(&shown, "G"), expected);
    }
    let folder = tempfile::tempdir().unwrap();
    let losses = folder.path().join("losses.json");
    check(
        &folder.path().join("absent"),
        "`G` is not a folder; expected one with advantages.json, losses.json or model folders with an expected.json",
    );
    check(
        folder.path(),
        "`G` contains neither advantages.json nor losses.json nor a model folder with an expected.json",
    );
    fs::create_dir(&losses).unwrap();
    check(folder.path(), "cannot read `G/losses.json`");
    check(
        &losses,
        "`G` contains neither advantages.json nor losses.json nor a model folder with an expected.json",
    );
    fs::remove_dir(&losses).unwrap();
    fs::write(&losses, "[").unwrap();
    check(
        folder.path(),
        "`G/losses.json` is not valid JSON: unexpected end of input at line 1 column 1",
    );
}

/// A file that is truncated at any position results in an error and never in a panic.
#[test]
fn cut_anywhere() {
    let text = changed("losses.json", "/config/beta", json!(0.1));
    for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)).step_by(7) {
        assert!(read_losses(&text[..end], "l.json").is_err());
    }
}
