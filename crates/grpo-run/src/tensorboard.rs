//! `events.out.tfevents.…`: the values of `metrics.jsonl` for TensorBoard.
//!
//! The file uses TensorFlow's record format. Each record consists of a length, the CRC of the
//! length, a protocol buffer and its CRC. The file is derived from `run.json` and `metrics.jsonl`,
//! so it can be rebuilt at any time.

use crate::folder::TENSORBOARD as BEGINNING;
use crate::{RunError, RunFolder};
use grpo_metrics::MetricTable;
use prost::Message;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the TensorBoard event file of a run.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
    /// Unix time in seconds after the last line, i.e. the start time of the run plus the duration
    /// of all steps.
    wall_time: f64,
    described: Descriptions,
}

/// Descriptions of metrics. TensorBoard shows that of the first value of a tag.
#[derive(Debug)]
struct Descriptions {
    table: MetricTable,
    /// Tags that the file has.
    written: BTreeSet<String>,
}

impl TensorBoard {
    /// Writes the event file for `lines` from scratch, replacing an existing one. Used at the start
    /// of a run, after a roll-back, and when resuming, because the last record may be incomplete. The
    /// tags of metrics that are in `table` have descriptions.
    ///
    /// # Errors
    /// Returns an error if `run.json` cannot be read or contains no valid start time, or if the
    /// file cannot be written. An existing file is then unchanged.
    pub fn rebuild(
        folder: &RunFolder,
        lines: &[Map<String, Value>],
        table: MetricTable,
    ) -> Result<Self, RunError> {
        let started = folder.read_info()?.started;
        let start = chrono::DateTime::parse_from_rfc3339(&started)
            .map_err(|_| RunError::BadStart { path: folder.info_path(), started })?
            .timestamp();
        let name = format!("{BEGINNING}{start:010}{ENDING}");
        let path = folder.file(&name);
        let mut wall_time = start as f64;
        let version =
            Event { wall_time, file_version: Some(VERSION.to_owned()), ..Event::default() };
        let mut described = Descriptions { table, written: BTreeSet::new() };
        let mut bytes = record(&version);
        for line in lines {
            wall_time += step_time(line);
            bytes.extend(record(&event(line, wall_time, &mut described)));
        }
        folder.write_file(&name, &bytes)?;
        remove_others(folder, &name)?;
        let file = folder.folder.open_to_append(&name).map_err(RunError::write(&path))?;
        Ok(Self { path, file, wall_time, described })
    }

    /// Writes the event file for `lines` from scratch, as [`Self::rebuild`] does.
    ///
    /// # Errors
    /// See [`Self::rebuild`].
    pub fn rewrite(
        &mut self,
        folder: &RunFolder,
        lines: &[Map<String, Value>],
    ) -> Result<(), RunError> {
        *self = Self::rebuild(folder, lines, self.described.table.clone())?;
        Ok(())
    }

    /// Appends a line of `metrics.jsonl`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn append(&mut self, line: &Map<String, Value>) -> Result<(), RunError> {
        self.wall_time += step_time(line);
        let bytes = record(&event(line, self.wall_time, &mut self.described));
        self.file.write_all(&bytes).map_err(RunError::write(&self.path))
    }

    /// Returns the path of the event file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

const ENDING: &str = ".grpo";
const VERSION: &str = "brain.Event:2";

/// Deletes our event files with a different start time, because TensorBoard would display them too.
fn remove_others(folder: &RunFolder, name: &str) -> Result<(), RunError> {
    let names = folder.folder.entries("").map_err(RunError::read(folder.path()))?;
    let is_other =
        |other: &str| other.starts_with(BEGINNING) && other.ends_with(ENDING) && other != name;
    for (other, _) in names.iter().filter(|(other, _)| is_other(other)) {
        folder.folder.remove_file(other).map_err(RunError::write(&folder.file(other)))?;
    }
    Ok(())
}

/// Returns the duration of a step in seconds.
fn step_time(line: &Map<String, Value>) -> f64 {
    line.get("step_time").and_then(Value::as_f64).unwrap_or(0.0)
}

impl Descriptions {
    /// Returns the description of a tag that has not been written yet.
    fn of_first(&mut self, tag: &str) -> Option<SummaryMetadata> {
        if self.written.contains(tag) {
            return None;
        }
        self.written.insert(tag.to_owned());
        let spec = self.table.spec(tag)?;
        Some(SummaryMetadata { summary_description: Some(spec.description()) })
    }
}

/// Creates an event from all numbers in a line except its step.
fn event(line: &Map<String, Value>, wall_time: f64, described: &mut Descriptions) -> Event {
    let scalar = |(name, value): (&String, &Value)| {
        let value = value.as_f64()? as f32;
        let metadata = described.of_first(name);
        Some(SummaryValue { tag: name.clone(), simple_value: Some(value), metadata })
    };
    let is_step = |name: &str| ["step", "train_step"].contains(&name);
    let numbers = line.iter().filter(|(name, _)| !is_step(name)).filter_map(scalar);
    Event {
        wall_time,
        step: crate::step_of_line(line).map_or(0, u64::cast_signed),
        file_version: None,
        summary: Some(Summary { value: numbers.collect() }),
    }
}

/// Encodes a record: length, CRC of the length, message and CRC of the message, all little-endian.
fn record(event: &Event) -> Vec<u8> {
    let message = event.encode_to_vec();
    let length = (message.len() as u64).to_le_bytes();
    let crcs = [masked_crc(&length), masked_crc(&message)].map(u32::to_le_bytes);
    [&length[..], &crcs[0], &message, &crcs[1]].concat()
}

/// Computes the masked CRC-32C used by TFRecord files. The CRC is rotated and offset, because
/// computing the CRC of data that contains CRCs is problematic.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

// The fields of TensorFlow's event.proto and summary.proto that are used here, with their numbers.

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, Message)]
struct SummaryValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<SummaryMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct SummaryMetadata {
    #[prost(string, optional, tag = "3")]
    summary_description: Option<String>,
}
