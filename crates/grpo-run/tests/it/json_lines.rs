use grpo_run::{JsonLinesWriter, read_json_lines};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use tempfile::tempdir;

#[derive(Serialize)]
struct Step {
    step: u64,
    reward: f64,
    kl: f32,
}

fn step(step: u64) -> Step {
    Step { step, reward: f64::NAN, kl: 0.1 }
}

#[test]
fn a_record_is_a_line_with_its_keys_in_order() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut writer = JsonLinesWriter::open(&path).unwrap();
    writer.append(&step(0)).unwrap();
    let first = "{\"step\":0,\"reward\":null,\"kl\":0.1}\n";
    assert_eq!(fs::read_to_string(&path).unwrap(), first);
    drop(writer);
    let mut writer = JsonLinesWriter::open(&path).unwrap();
    let mut map = Map::new();
    map.insert("step".into(), 1.into());
    map.insert("b".into(), f64::INFINITY.into());
    map.insert("a".into(), "é\n".into());
    writer.append(&map).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("{first}{{\"step\":1,\"b\":null,\"a\":\"é\\n\"}}\n"));
    let read: Vec<Map<String, Value>> = read_json_lines(&path).unwrap();
    assert_eq!(read[1], map);
    assert_eq!(read[1].keys().collect::<Vec<_>>(), ["step", "b", "a"]);
}

#[test]
#[should_panic(expected = "a record must be a JSON object, found [1]")]
fn a_record_that_is_no_object_panics() {
    let folder = tempdir().unwrap();
    let mut writer = JsonLinesWriter::open(&folder.path().join("x")).unwrap();
    let _ = writer.append(&[1]);
}

#[test]
fn each_record_that_is_lost_is_an_error() {
    let path = Path::new("/dev/full");
    if !path.exists() {
        return; // only Linux has a device that is always full
    }
    let mut writer = JsonLinesWriter::open(path).unwrap();
    let error = writer.append(&step(0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot write `/dev/full`: No space left on device (os error 28); free some space or choose a writable folder"
    );
    assert_eq!(writer.append(&step(1)).unwrap_err().to_string(), error);
}

#[test]
fn an_unfinished_last_line_is_left_out() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "{\"step\":1}\n{\"step\":2}").unwrap();
    assert_eq!(read_json_lines::<Value>(&path).unwrap(), [json!({"step": 1})]);
    fs::write(&path, "{\"st").unwrap();
    assert!(read_json_lines::<Value>(&path).unwrap().is_empty());
    fs::write(&path, "").unwrap();
    assert!(read_json_lines::<Value>(&path).unwrap().is_empty());
}

#[test]
fn reports_a_damaged_line() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "{\"step\":1}\n{\"st\n{\"step\":3}\n").unwrap();
    let error = read_json_lines::<Value>(&path).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "line 2 of `{}` is damaged: unexpected end of input",
            path.display()
        )),
        "{error}"
    );
    let keep_all = |_: &Value| true;
    assert!(JsonLinesWriter::resume(&path, keep_all).is_err());
    assert_eq!(fs::read(&path).unwrap().len(), 27);
    let none = read_json_lines::<Value>(Path::new("none.jsonl")).unwrap_err();
    assert!(none.to_string().starts_with("cannot read `none.jsonl`: "), "{none}");
}

#[test]
fn a_resumed_file_has_each_step_once() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    // Lines are copied unchanged, including numbers that would be formatted differently.
    fs::write(&path, "{\"step\":1,\"x\":1.10}\n{\"step\":2}\n{\"step\":3}\n{\"st").unwrap();
    let before = |limit: u64| move |line: &Value| line["step"].as_u64().unwrap() < limit;
    let mut writer = JsonLinesWriter::resume(&path, before(2)).unwrap();
    writer.append(&json!({"step": 2, "again": true})).unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "{\"step\":1,\"x\":1.10}\n{\"step\":2,\"again\":true}\n"
    );
    let new = folder.path().join("new");
    JsonLinesWriter::resume(&new, before(2)).unwrap();
    assert_eq!(fs::read_to_string(&new).unwrap(), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn numbers_come_back_as_they_were(values in prop::collection::vec(-1e6f32..1e6, 1..8)) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x");
        let mut writer = JsonLinesWriter::open(&path).unwrap();
        for value in &values {
            writer.append(&json!({ "value": value })).unwrap();
        }
        let read: Vec<Map<String, Value>> = read_json_lines(&path).unwrap();
        let read: Vec<f32> = read.iter().map(|line| line["value"].as_f64().unwrap() as f32).collect();
        prop_assert_eq!(read, values);
    }

    #[test]
    fn any_bytes_are_records_or_an_error(bytes: Vec<u8>) {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, bytes).unwrap();
        let _ = read_json_lines::<Value>(&path);
    }
}
