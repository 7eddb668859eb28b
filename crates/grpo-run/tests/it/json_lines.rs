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

/// Runs itself in a shell that limits the size of files, as a full disk would.
#[cfg(unix)]
#[test]
fn each_record_that_is_lost_is_an_error() {
    const VARIABLE: &str = "GRPO_JSON_LINES_ON_A_FULL_DISK";
    const SCRIPT: &str = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact json_lines::each_record_that_is_lost_is_an_error";
    if let Some(path) = std::env::var_os(VARIABLE) {
        let path = Path::new(&path);
        let mut writer = JsonLinesWriter::open(path).unwrap();
        writer.append(&step(0)).unwrap();
        let before = fs::read(path).unwrap();
        let long = json!({"step": 1, "text": "x".repeat(50_000)});
        for _ in 0..2 {
            let error = writer.append(&long).unwrap_err().to_string();
            assert!(error.contains("File too large (os error 27); free some space"), "{error}");
            assert_eq!(fs::read(path).unwrap(), before);
        }
        writer.append(&step(1)).unwrap();
        return;
    }
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", SCRIPT]).arg(std::env::current_exe().unwrap()).env(VARIABLE, &path);
    let ended = shell.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!(read_json_lines::<Value>(&path).unwrap().len(), 2);
}

/// What happened to a file while it is written, and whether that is an error.
#[test]
fn a_file_that_is_no_longer_the_one_of_the_writer_is_an_error() {
    type Change = fn(&Path) -> std::io::Result<()>;
    let changes: [(&str, Change); 6] = [
        ("removed", |path| fs::remove_file(path)),
        ("replaced", |path| {
            let text = fs::read(path)?;
            fs::remove_file(path)?;
            fs::write(path, text)
        }),
        ("renamed", |path| fs::rename(path, path.with_file_name("y"))),
        ("truncated", |path| fs::File::options().write(true).open(path)?.set_len(10)),
        ("emptied", |path| fs::write(path, "")),
        ("extended", |path| fs::File::options().write(true).open(path)?.set_len(5 << 30)),
    ];
    for (what, change) in changes {
        let folder = tempdir().unwrap();
        let path = folder.path().join("x");
        let mut writer = JsonLinesWriter::open(&path).unwrap();
        writer.append(&step(0)).unwrap();
        writer.check().unwrap();
        change(&path).unwrap();
        let expect = format!("`{}` is no longer the file that this run writes", path.display());
        for error in [writer.check().unwrap_err(), writer.append(&step(1)).unwrap_err()] {
            assert!(error.to_string().starts_with(&expect), "{what}: {error}");
        }
    }
}

#[test]
fn long_lines_and_large_files_are_refused_without_being_read() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x");
    let check = |size: u64, expect: &str| {
        fs::write(&path, "{}\n").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
        for error in [
            read_json_lines::<Value>(&path).map(drop).unwrap_err(),
            JsonLinesWriter::resume(&path, |_: &Value| true).map(drop).unwrap_err(),
        ] {
            assert!(error.to_string().contains(expect), "{error}");
        }
        assert_eq!(path.metadata().unwrap().len(), size);
    };
    check(5 << 30, "x` is larger than 1 GiB, the limit for files of a run");
    check((32 << 20) + 10, "line 2 of `");
    check(1 << 30, "is damaged: it is longer than 32 MiB; remove the line");
    // 32 MiB are allowed.
    let line = format!("{{\"a\":\"{}\"}}\n", "x".repeat((32 << 20) - 8));
    fs::write(&path, line.repeat(2)).unwrap();
    assert_eq!(read_json_lines::<Value>(&path).unwrap().len(), 2);
}

#[cfg(unix)]
#[test]
fn a_copy_of_hard_links_is_not_changed_by_the_original() {
    let folder = tempdir().unwrap();
    let (path, copy) = (folder.path().join("x"), folder.path().join("copy"));
    fs::write(&path, "{\"step\":1}\n").unwrap();
    fs::hard_link(&path, &copy).unwrap();
    let mut writer = JsonLinesWriter::resume(&path, |_: &Value| true).unwrap();
    writer.append(&step(2)).unwrap();
    assert_eq!(fs::read_to_string(&copy).unwrap(), "{\"step\":1}\n");
    assert_eq!(read_json_lines::<Value>(&path).unwrap().len(), 2);
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
