//! Stages as written in a pipeline file, some of them repeated for each seed.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::ensure;
use schemars::JsonSchema;
use serde::Deserialize;

/// A stage as written in the file.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StageSection {
    /// Unique name for messages. `{seed}` in it repeats the stage for each of `seeds`.
    #[schemars(extend("x-basic" = true))]
    pub(super) name: String,
    /// Command of `grpo`: `pretrain`, `train-judge`, `split-data`, `train`, ….
    #[schemars(extend("x-basic" = true))]
    pub(super) command: String,
    /// Configuration file, whose key `run` is the folder of the stage; optional with `outputs`.
    #[serde(default)]
    #[schemars(extend("x-basic" = true))]
    pub(super) config: Option<PathBuf>,
    /// Further arguments, such as `["--set", "seed=7"]`.
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    /// Files that the stage reads; if one changes, the stage runs again.
    #[serde(default)]
    pub(super) inputs: Vec<PathBuf>,
    /// Files and folders that exist when the stage is finished.
    #[serde(default)]
    pub(super) outputs: Vec<PathBuf>,
    /// JSON file whose `passed` must be true, such as `judge.json`.
    #[serde(default)]
    pub(super) gate: Option<PathBuf>,
    /// Metrics that are shown in the table: the first value and that of the kept model, or the last
    /// one. A name that the run did not record prints a warning.
    #[serde(default)]
    pub(super) metrics: Vec<String>,
    /// Whether later stages run even if this one fails, unless they list its results as `inputs`.
    #[serde(default)]
    pub(super) independent: bool,
}

/// Stands for each of the `seeds` in a stage and in the arguments of a summary.
const SEED: &str = "{seed}";

impl StageSection {
    /// Returns whether the stage is repeated for each seed.
    pub(super) fn is_repeated(&self) -> bool {
        self.name.contains(SEED)
    }

    /// Returns the stage once for each seed if its name contains `{seed}`.
    pub(super) fn for_seeds(self, seeds: &[u64]) -> anyhow::Result<Vec<Self>> {
        if !self.is_repeated() {
            let key = self.key_with_seed();
            ensure!(
                key.is_none(),
                "stage `{}` has {SEED} in its {} but not in its name; add it to the name, so that the stage is repeated for each of the seeds",
                self.name,
                key.unwrap_or_default()
            );
            return Ok(vec![self]);
        }
        ensure!(
            !seeds.is_empty(),
            "stage `{}` is repeated for each of the seeds, but there are none; add a list `seeds` at the top of the file",
            self.name
        );
        Ok(seeds.iter().map(|seed| self.for_seed(*seed)).collect())
    }

    /// Returns the first key other than `name` whose value contains `{seed}`.
    fn key_with_seed(&self) -> Option<&'static str> {
        let in_path = |path: &PathBuf| path.to_string_lossy().contains(SEED);
        let in_text = |text: &String| text.contains(SEED);
        let keys = [
            ("arguments", self.arguments.iter().any(in_text)),
            ("config", self.config.iter().any(in_path)),
            ("inputs", self.inputs.iter().any(in_path)),
            ("outputs", self.outputs.iter().any(in_path)),
            ("gate", self.gate.iter().any(in_path)),
            ("metrics", self.metrics.iter().any(in_text)),
            ("command", in_text(&self.command)),
        ];
        keys.into_iter().find_map(|(key, has_seed)| has_seed.then_some(key))
    }

    fn for_seed(&self, seed: u64) -> Self {
        let seed = seed.to_string();
        let text = |text: &String| text.replace(SEED, &seed);
        // Nothing is lost, because paths are strings of a TOML file and thus UTF-8.
        let path = |path: &PathBuf| PathBuf::from(path.to_string_lossy().replace(SEED, &seed));
        Self {
            name: text(&self.name),
            config: self.config.as_ref().map(path),
            arguments: self.arguments.iter().map(text).collect(),
            inputs: self.inputs.iter().map(path).collect(),
            outputs: self.outputs.iter().map(path).collect(),
            gate: self.gate.as_ref().map(path),
            metrics: self.metrics.iter().map(text).collect(),
            ..self.clone()
        }
    }
}

/// Maximum number of seeds. Each is a run of its own.
const MAX_SEEDS: usize = 1000;

/// Validates the seeds of a pipeline with these stages.
pub(super) fn check_seeds(seeds: &[u64], stages: &[StageSection]) -> anyhow::Result<()> {
    ensure!(
        seeds.len() <= MAX_SEEDS,
        "seeds lists {} seeds; expected at most {MAX_SEEDS}",
        seeds.len()
    );
    let mut before = HashSet::new();
    let twice = seeds.iter().find(|seed| !before.insert(**seed));
    ensure!(
        twice.is_none(),
        "seeds lists {} twice; remove one of them",
        twice.copied().unwrap_or_default()
    );
    ensure!(
        seeds.is_empty()
            || stages.iter().any(|stage| stage.is_repeated() || stage.key_with_seed().is_some()),
        "no stage uses seeds; add {SEED} to the name of a stage, so that it is repeated for each of them, or remove seeds"
    );
    Ok(())
}

/// Returns whether a word of a summary stands for all seeds.
pub(super) fn has_seed(word: &str) -> bool {
    word.contains(SEED)
}

/// Replaces what follows `=` in a word with `{seed}` by a list of it for each seed, as `grpo compare`
/// takes the files of a method.
pub(super) fn joined_seeds(word: &str, seeds: &[u64]) -> String {
    if !word.contains(SEED) || seeds.is_empty() {
        return word.to_owned();
    }
    let (name, value) = word.split_at(word.find('=').map_or(0, |at| at + 1));
    let each: Vec<String> =
        seeds.iter().map(|seed| value.replace(SEED, &seed.to_string())).collect();
    format!("{name}{}", each.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_seeds_are_a_list() {
        let joined = |word| joined_seeds(word, &[3, 14]);
        assert_eq!(joined("a=runs/{seed}.jsonl"), "a=runs/3.jsonl,runs/14.jsonl");
        assert_eq!(joined("runs/{seed}"), "runs/3,runs/14");
        assert_eq!(joined("-k=1,5"), "-k=1,5");
    }
}
