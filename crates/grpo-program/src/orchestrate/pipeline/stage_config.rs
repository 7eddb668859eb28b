//! The configuration of a stage.

use std::path::PathBuf;

use anyhow::Context;
use grpo_data::DataFiles;
use grpo_task::config;
use serde::Deserialize;
use toml::Table;

/// The configuration of a stage, including the files it extends.
pub(super) struct StageConfig {
    pub(super) path: PathBuf,
    pub(super) run: PathBuf,
    /// `KEY=VALUE` pairs of all `--set` options that the command gets.
    pub(super) set: Vec<String>,
    /// Includes the changes by `set`.
    pub(super) keys: Table,
}

impl StageConfig {
    pub(super) fn read(path: PathBuf, set: Vec<String>) -> anyhow::Result<Self> {
        let loaded = config::load::<Table>(&path, &set)?;
        let run = loaded.value.get("run").and_then(toml::Value::as_str);
        let run = run.with_context(|| {
            let place = loaded.origin.place("run");
            format!("{place}the key `run` (run folder) is missing; add it, or pass the file under arguments")
        })?;
        Ok(Self { run: PathBuf::from(run), set, keys: loaded.value, path })
    }

    /// Returns the keys with models and data that the command reads, and their paths.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let keys = ["model", "start", "adapter", "infiller", "data.file", "eval.file"];
        keys.into_iter().flat_map(|name| {
            let value = name.split_once('.').map_or_else(
                || self.keys.get(name),
                |(section, key)| self.keys.get(section)?.get(key),
            );
            let files = value.cloned().and_then(|value| DataFiles::deserialize(value).ok());
            let paths: Vec<PathBuf> = files.iter().flat_map(DataFiles::paths).cloned().collect();
            paths.into_iter().map(move |path| (name, path))
        })
    }
}
