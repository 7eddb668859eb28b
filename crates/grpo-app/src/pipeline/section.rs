//! Stages as written in a pipeline file, some of them repeated for each seed.

use std::path::PathBuf;

use anyhow::ensure;
use serde::Deserialize;

/// A stage as written in the file.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageSection {
    pub(super) name: String,
    /// Subcommand of this program.
    pub(super) command: String,
    /// Configuration file of the command. Its `run` key is the folder of the stage.
    #[serde(default)]
    pub(super) config: Option<PathBuf>,
    #[serde(default)]
    pub(super) arguments: Vec<String>,
    /// Files read by the stage. If one changes, the stage runs again.
    #[serde(default)]
    pub(super) inputs: Vec<PathBuf>,
    /// Files and folders that must exist when the stage is finished.
    #[serde(default)]
    pub(super) outputs: Vec<PathBuf>,
    /// JSON file in which `passed` must be true.
    #[serde(default)]
    pub(super) gate: Option<PathBuf>,
    /// Metrics listed in the final table.
    #[serde(default)]
    pub(super) metrics: Vec<String>,
    /// Whether later stages need the results of this stage only if they list them as inputs. They
    /// then run even if this stage fails.
    #[serde(default)]
    pub(super) independent: bool,
}

/// Stands for each of the `seeds` in a stage and in the arguments of a summary.
const SEED: &str = "{seed}";

impl StageSection {
    /// Returns the stage once for each seed if its name contains `{seed}`.
    pub(super) fn for_seeds(self, seeds: &[u64]) -> anyhow::Result<Vec<Self>> {
        let contains = |texts: &[String]| texts.iter().any(|text| text.contains(SEED));
        if !self.name.contains(SEED) {
            ensure!(
                !contains(&self.arguments),
                "stage `{}` has {SEED} in its arguments but not in its name; add it to the name, so that the stage is repeated for each of the seeds",
                self.name
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

    fn for_seed(&self, seed: u64) -> Self {
        let text = |text: &String| text.replace(SEED, &seed.to_string());
        let path = |path: &PathBuf| match path.to_str() {
            Some(name) => PathBuf::from(name.replace(SEED, &seed.to_string())),
            None => path.clone(),
        };
        Self {
            name: text(&self.name),
            config: self.config.as_ref().map(path),
            arguments: self.arguments.iter().map(text).collect(),
            inputs: self.inputs.iter().map(path).collect(),
            outputs: self.outputs.iter().map(path).collect(),
            gate: self.gate.as_ref().map(path),
            ..self.clone()
        }
    }
}

/// Replaces what follows `=` in a word with `{seed}` by a list of it for each seed, as `grpo compare`
/// takes the files of a method.
pub(super) fn joined_seeds(word: &str, seeds: &[u64]) -> String {
    if !word.contains(SEED) || seeds.is_empty() {
        return word.to_owned();
    }
    let (name, value) = word.split_once('=').unwrap_or(("", word));
    let each: Vec<String> =
        seeds.iter().map(|seed| value.replace(SEED, &seed.to_string())).collect();
    let separator = if name.is_empty() { "" } else { "=" };
    format!("{name}{separator}{}", each.join(","))
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
