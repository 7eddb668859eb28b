//! Checks framing, checksums and fields of the event file with an independent reader based on the
//! format description.

use crate::folder::{Existing, create};
use grpo_metrics::{MetricGroup, MetricSpec, MetricTable};
use grpo_run::{RunFolder, TensorBoard};
use serde_json::{Map, Value, json};
use std::fs;
use tempfile::{TempDir, tempdir};

/// 2026-01-31T12:00:00Z, the start time in `run.json`.
const START: f64 = 1_769_860_800.0;
const NAME: &str = "events.out.tfevents.1769860800.grpo";

fn run() -> (TempDir, RunFolder) {
    let folder = tempdir().unwrap();
    let (run, _) = create(&folder.path().join("one"), Existing::Refuse).unwrap();
    (folder, run)
}

/// Describes one of the metrics.
fn table() -> MetricTable {
    static METRICS: [MetricSpec; 1] = [MetricSpec::new("reward", "points", "mean [reward](a.md)")];
    MetricTable::new([MetricGroup { name: "", section: "", metrics: &METRICS }])
}

fn line(step: u64) -> Map<String, Value> {
    let line = json!({
        "step": step, "reward": 0.5 + step as f64, "rewards/qed/mean": -1e-3, "ratio/max": null, "num_tokens": 1 << 30,
        "step_time": 1.5
    });
    line.as_object().unwrap().clone()
}

/// Bitwise CRC-32C (RFC 3720, appendix B.4) with the mask of TFRecord.
fn masked(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the messages in a file, or the number of valid records before the first error.
fn messages(mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, usize> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().unwrap()))
        };
        let record = || {
            let length = u64::from_le_bytes(bytes.get(..8)?.try_into().unwrap());
            (masked(&bytes[..8]) == number(8)?).then_some(())?;
            let end = 12 + length as usize;
            let message = bytes.get(12..end)?;
            (masked(message) == number(end)?).then(|| message.to_vec())
        };
        let message = record().ok_or(messages.len())?;
        bytes = &bytes[message.len() + 16..];
        messages.push(message);
    }
    Ok(messages)
}

/// Returns the fields of a message as pairs of number and value. Numeric values are returned as
/// bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, bytes[..length].to_vec()));
        bytes = &bytes[length..];
    }
    fields
}

/// Returns wall time, step, the names and values of all metrics, and all descriptions.
fn event(message: &[u8]) -> (f64, u64, Vec<(String, f32)>, Vec<String>) {
    let (mut event, all) = ((0.0, 0, Vec::new(), Vec::new()), fields(message));
    for (number, value) in all {
        match number {
            1 => event.0 = f64::from_le_bytes(value.try_into().unwrap()),
            2 => event.1 = u64::from_le_bytes(value.try_into().unwrap()),
            5 => {
                for (_, value) in fields(&value) {
                    let of_value = fields(&value);
                    let find =
                        |number| of_value.iter().find(|(n, _)| *n == number).unwrap().1.clone();
                    let number = f32::from_le_bytes(find(2).try_into().unwrap());
                    event.2.push((String::from_utf8(find(1)).unwrap(), number));
                    if let Some((_, metadata)) = of_value.iter().find(|(n, _)| *n == 9) {
                        let [(3, description)] = &fields(metadata)[..] else { panic!("metadata") };
                        event.3.push(String::from_utf8(description.clone()).unwrap());
                    }
                }
            }
            other => panic!("field {other}"),
        }
    }
    event
}

fn check(bytes: &[u8], steps: &[u64]) {
    let messages = messages(bytes).unwrap();
    let version = fields(&messages[0]);
    assert_eq!(version[0], (1, START.to_le_bytes().to_vec()));
    assert_eq!(version[1], (3, b"brain.Event:2".to_vec()));
    assert_eq!(messages.len(), steps.len() + 1);
    for (place, (message, &step)) in messages[1..].iter().zip(steps).enumerate() {
        let (wall_time, found, values, descriptions) = event(message);
        // TensorBoard reads the description of the first value.
        let described: &[&str] = if place == 0 { &["mean reward (points)"] } else { &[] };
        assert_eq!(descriptions, described);
        assert_eq!((wall_time, found), (START + 1.5 * (place as f64 + 1.0), step));
        let expected = [
            ("reward", 0.5 + step as f32),
            ("rewards/qed/mean", -1e-3),
            ("num_tokens", (1 << 30) as f32),
            ("step_time", 1.5),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}

#[test]
fn every_number_of_every_line_is_there() {
    let (_folder, run) = run();
    let mut board = TensorBoard::rebuild(&run, &[], table()).unwrap();
    assert_eq!(board.path(), run.path().join(NAME));
    check(&fs::read(board.path()).unwrap(), &[]);
    board.append(&line(1)).unwrap();
    board.append(&line(2)).unwrap();
    let appended = fs::read(board.path()).unwrap();
    check(&appended, &[1, 2]);
    // The file depends only on the lines.
    TensorBoard::rebuild(&run, &[line(1), line(2)], table()).unwrap();
    assert_eq!(fs::read(run.path().join(NAME)).unwrap(), appended);
}

#[test]
fn a_killed_run_and_one_that_went_back_have_whole_files_again() {
    let (_folder, run) = run();
    let mut board = TensorBoard::rebuild(&run, &[line(1)], table()).unwrap();
    board.append(&line(2)).unwrap();
    let path = run.path().join(NAME);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert_eq!(messages(&fs::read(&path).unwrap()), Err(2));
    fs::write(run.path().join("events.out.tfevents.0000000001.grpo"), "older").unwrap();
    let mut board = TensorBoard::rebuild(&run, &[line(1)], table()).unwrap();
    board.append(&line(2)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    let names = fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let files = names.filter(|name| name.to_str().unwrap().contains("tfevents")).count();
    assert_eq!(files, 1, "TensorBoard would show both");
}

#[test]
fn a_flipped_bit_is_found() {
    let (_folder, run) = run();
    TensorBoard::rebuild(&run, &[line(1), line(2)], table()).unwrap();
    let whole = fs::read(run.path().join(NAME)).unwrap();
    assert!(messages(&whole).is_ok());
    for place in 0..whole.len() {
        let mut bent = whole.clone();
        bent[place] ^= 1 << (place % 8);
        assert!(messages(&bent).is_err(), "byte {place}");
    }
}

#[test]
fn a_run_without_a_beginning_is_refused() {
    let (_folder, run) = run();
    let mut info: Map<String, Value> =
        serde_json::from_slice(&fs::read(run.info_path()).unwrap()).unwrap();
    info["started"] = json!("yesterday");
    fs::write(run.info_path(), serde_json::to_string(&info).unwrap()).unwrap();
    let error = TensorBoard::rebuild(&run, &[], table()).unwrap_err().to_string();
    let expected = format!(
        "`{}` has the invalid start time `yesterday`; expected a time such as 2026-01-31T12:00:00Z; restore the file",
        run.info_path().display()
    );
    assert_eq!(error, expected);
    assert!(!run.path().join(NAME).exists());
}
