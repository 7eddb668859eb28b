//! Data sets of the hub, and where their rows are.

use std::path::Path;

use grpo_hub::DataName;
use serde_json::{Map, Value as Json};

use super::places::last;
use super::source::described;

/// A data set of a TRL configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct DataSet {
    /// Name on the hub, a path, or the name of a file format.
    pub(super) path: String,
    pub(super) config: Option<String>,
    pub(super) split: String,
    /// Paths or patterns of files in it.
    pub(super) data_files: Vec<String>,
    /// Folder of these files.
    pub(super) data_dir: Option<String>,
    /// Share of its records, in a mixture of open-r1.
    pub(super) weight: Option<f64>,
    /// Share of the mixture, in TRL.
    pub(super) fraction: Option<f64>,
}

/// Where the rows of a data set are.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// In files that `data.file` can name.
    Files(Vec<String>),
    /// In a file that Python writes.
    Saved {
        /// Name for the file.
        name: String,
        /// Python expression that loads the rows.
        load: String,
    },
}

/// Endings of files that `data.file` can name.
const ENDINGS: [&str; 4] = [".jsonl", ".jsonl.gz", ".json", ".parquet"];

/// The revision of a data set with its rows in Parquet, which the hub writes for most of them.
const CONVERTED: &str = "refs/convert/parquet";

/// Keys of a data set in a mixture of TRL or open-r1.
const KEYS: [&str; 10] = [
    "path",
    "id",
    "name",
    "config",
    "split",
    "data_files",
    "data_dir",
    "columns",
    "weight",
    "fraction",
];

impl DataSet {
    pub(super) fn new(path: String, split: String) -> Self {
        Self { path, split, ..Self::default() }
    }

    /// Reads an entry of a mixture.
    ///
    /// # Errors
    /// Returns what is wrong with it, to follow its place.
    pub(super) fn read(entry: &Json) -> Result<Self, String> {
        let Some(entry) = entry.as_object() else {
            return Err(format!(
                " is {}; expected keys such as `path: org/name`",
                described(entry)
            ));
        };
        if let Some(key) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!(".{key} is not a key of a data set; expected {}", KEYS.join(", ")));
        }
        let path = text(entry, "path")?.or(text(entry, "id")?);
        let path = path.ok_or(" has no name of a data set; add `path` (TRL) or `id` (open-r1)")?;
        let split = text(entry, "split")?.unwrap_or_else(|| "train".to_owned());
        Ok(Self {
            config: text(entry, "name")?.or(text(entry, "config")?),
            data_files: files(entry, &split)?,
            data_dir: text(entry, "data_dir")?,
            weight: number(entry, "weight")?,
            fraction: number(entry, "fraction")?,
            path,
            split,
        })
    }

    /// Returns where the rows are.
    pub(super) fn find(&self) -> Found {
        let is_record_file = |file: &String| {
            let lower = file.to_ascii_lowercase();
            ENDINGS.iter().any(|ending| lower.ends_with(ending))
        };
        if is_record_file(&self.path) && self.data_files.is_empty() {
            return Found::Files(vec![self.path.clone()]);
        }
        let can_be_named =
            !self.data_files.is_empty() && self.data_files.iter().all(is_record_file);
        let is_local = ["json", "parquet"].contains(&self.path.as_str());
        // A local folder can be an absolute path.
        let start: &[char] = if is_local { &[] } else { &['/'] };
        let folder = self
            .data_dir
            .as_deref()
            .map(|folder| format!("{}/", folder.trim_start_matches(start).trim_end_matches('/')));
        let folder = folder.unwrap_or_default();
        let in_folder = |start: &str| {
            let files = self.data_files.iter().map(|file| format!("{start}{folder}{file}"));
            Found::Files(files.collect())
        };
        match self.path.as_str() {
            _ if is_local && can_be_named && self.split == "train" => in_folder(""),
            path if is_on_hub(path) && can_be_named => in_folder(&format!("hf://datasets/{path}/")),
            path if is_on_hub(path) && self.data_files.is_empty() && folder.is_empty() => {
                let config = self.config.as_deref().unwrap_or("default");
                let split = &self.split;
                if !is_plain(config) || !is_plain(split) {
                    return self.saved();
                }
                let files = format!("hf://datasets/{path}@{CONVERTED}/{config}/{split}/*.parquet");
                Found::Files(vec![files])
            }
            _ => self.saved(),
        }
    }

    /// Describes how Python saves the rows.
    fn saved(&self) -> Found {
        let python = |text: &str| Json::from(text).to_string();
        let mut load = format!("datasets.load_dataset({}", python(&self.path));
        for (name, value) in [("name", &self.config), ("data_dir", &self.data_dir)] {
            let value = value.as_deref().map(|value| format!(", {name}={}", python(value)));
            load += &value.unwrap_or_default();
        }
        if !self.data_files.is_empty() {
            load += &format!(", data_files={}", Json::from(self.data_files.clone()));
        }
        load += &format!(", split={})", python(&self.split));
        Found::Saved { name: last(&self.path).to_owned(), load }
    }
}

/// Returns whether a path is the name of a data set on the hub.
fn is_on_hub(path: &str) -> bool {
    let name = DataName::parse(&format!("hf://datasets/{path}/x"));
    let is_name = name.is_ok_and(|name| name.is_some_and(|name| name.repo.id() == path));
    is_name && !Path::new(path).exists()
}

/// Returns whether a text is the name of a configuration or split, not `train[:10%]` or `train+test`.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

fn text(entry: &Map<String, Json>, key: &str) -> Result<Option<String>, String> {
    match entry.get(key).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!(".{key} is {}; expected a text", described(other))),
    }
}

fn number(entry: &Map<String, Json>, key: &str) -> Result<Option<f64>, String> {
    match entry.get(key).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!(".{key} is {}; expected a number", described(value))),
        },
    }
}

/// Returns `data_files`: a path, a list of paths, or both by split.
fn files(entry: &Map<String, Json>, split: &str) -> Result<Vec<String>, String> {
    let given = entry.get("data_files").filter(|value| !value.is_null());
    let value = match given {
        Some(Json::Object(splits)) => splits.get(split),
        other => other,
    };
    let fault = |found: &Json| {
        format!(
            ".data_files is {}; expected a path or a list of paths, perhaps by split",
            described(found)
        )
    };
    match (value, given) {
        (None, None) => Ok(Vec::new()),
        (None, Some(splits)) => Err(fault(splits)),
        (Some(Json::String(file)), _) => Ok(vec![file.clone()]),
        (Some(list @ Json::Array(files)), _) => {
            let all: Option<Vec<String>> =
                files.iter().map(|file| file.as_str().map(str::to_owned)).collect();
            all.ok_or_else(|| fault(list))
        }
        (Some(other), _) => Err(fault(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(entry: Json, expect: &[&str]) {
        let found = DataSet::read(&entry).unwrap().find();
        assert_eq!(found, Found::Files(expect.iter().map(|&file| file.to_owned()).collect()));
    }

    #[test]
    fn files_that_can_be_named() {
        check(
            json!({"path": "a/b"}),
            &["hf://datasets/a/b@refs/convert/parquet/default/train/*.parquet"],
        );
        check(
            json!({"id": "a/b", "config": "all", "split": "test", "columns": ["x"], "weight": 0.5}),
            &["hf://datasets/a/b@refs/convert/parquet/all/test/*.parquet"],
        );
        check(
            json!({"path": "a/b", "data_files": ["x.jsonl", "y-*.parquet"], "data_dir": "d"}),
            &["hf://datasets/a/b/d/x.jsonl", "hf://datasets/a/b/d/y-*.parquet"],
        );
        check(
            json!({"path": "a/b", "data_files": {"train": "x.jsonl", "test": "y.jsonl"}, "split": "test"}),
            &["hf://datasets/a/b/y.jsonl"],
        );
        check(json!({"path": "json", "data_files": "my/x.jsonl"}), &["my/x.jsonl"]);
        check(
            json!({"path": "json", "data_files": "x.jsonl", "data_dir": "/my/rows/"}),
            &["/my/rows/x.jsonl"],
        );
        check(json!({"path": "my/rows.parquet"}), &["my/rows.parquet"]);
        // Each name is one that `data.file` reads.
        let name = "hf://datasets/a/b@refs/convert/parquet/default/train/*.parquet";
        let name = DataName::parse(name).unwrap().unwrap();
        assert_eq!(name.repo.revision(), CONVERTED);
        assert_eq!(name.pattern, "default/train/*.parquet");
    }

    #[test]
    fn rows_that_python_saves() {
        for (entry, expect) in [
            (json!({"path": "gsm8k", "name": "main"}), r#"("gsm8k", name="main", split="train")"#),
            (json!({"path": "a/b", "split": "train[:10%]"}), r#"("a/b", split="train[:10%]")"#),
            (json!({"path": "a/b", "data_dir": "d"}), r#"("a/b", data_dir="d", split="train")"#),
            (
                json!({"path": "csv", "data_files": "x.csv"}),
                r#"("csv", data_files=["x.csv"], split="train")"#,
            ),
            (json!({"path": "./folder"}), r#"("./folder", split="train")"#),
        ] {
            let Found::Saved { load, .. } = DataSet::read(&entry).unwrap().find() else {
                panic!("{entry}");
            };
            assert_eq!(load, format!("datasets.load_dataset{expect}"));
        }
    }

    #[test]
    fn entries_that_are_not_data_sets() {
        for (entry, expect) in [
            (json!("a/b"), " is \"a/b\"; expected keys such as `path: org/name`"),
            (
                json!({"split": "train"}),
                " has no name of a data set; add `path` (TRL) or `id` (open-r1)",
            ),
            (json!({"path": 3}), ".path is 3; expected a text"),
            (json!({"path": "a/b", "weight": "x"}), ".weight is \"x\"; expected a number"),
            (
                json!({"path": "a/b", "data_files": 3}),
                ".data_files is 3; expected a path or a list of paths, perhaps by split",
            ),
        ] {
            assert_eq!(DataSet::read(&entry).unwrap_err(), expect);
        }
        let unknown = DataSet::read(&json!({"path": "a/b", "wieght": 2})).unwrap_err();
        assert!(
            unknown.starts_with(".wieght is not a key of a data set; expected path, "),
            "{unknown}"
        );
    }
}
