//! `comparison.json`: evaluations of the policy before and after training, using the same prompts
//! and random numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use grpo_data::regular_file;
use serde::{Deserialize, Serialize};

use crate::{RunError, RunFolder};

/// Evaluations of a run before the first and after the last step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Number of steps before the second evaluation.
    pub step: u64,
    /// Plural noun for the samples, e.g. `molecules`.
    pub samples: String,
    /// Number of samples per evaluation.
    pub count: usize,
    /// Mean reward, or `None` if no sample has a reward.
    pub reward: Option<Measure>,
    /// Means of the reward components, by component name. Empty in files of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Measure>,
    /// Remaining rows of the table, in display order.
    pub measures: Vec<Measure>,
    /// Samples before training. With prompts, there is one sample per displayed prompt. Without
    /// prompts, the samples are evenly spaced by rank, from low to high rewards.
    pub before: Vec<ComparedSample>,
    /// The same number of samples after training, for the same prompts or at the same ranks.
    pub after: Vec<ComparedSample>,
    /// The samples with the highest rewards after training, in descending order and without
    /// duplicate texts.
    pub best: Vec<ComparedSample>,
}

/// A metric before and after training. Non-finite values are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Name of the table row.
    pub name: String,
    /// Value before training.
    pub before: Option<f64>,
    /// Value after training.
    pub after: Option<f64>,
    /// Standard error of the change, computed from paired differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Scale of a diversity metric, or `None` for other metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diversity: Option<DiversityScale>,
}

/// How to interpret the values of a diversity metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiversityScale {
    /// 0 means no diversity, and larger values mean more diversity.
    HigherIsDiverse,
    /// 1 means no diversity, and 0 means maximum diversity. Used for self-BLEU.
    LowerIsDiverse,
}

/// A sample in a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedSample {
    /// Prompt text, if the sample has a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Completion text.
    pub text: String,
    /// Reward, or `None` if the completion was not scored.
    pub reward: Option<f64>,
    /// Reward components by name.
    pub parts: BTreeMap<String, f64>,
}

impl Measure {
    /// Returns the fraction of diversity that was lost, which is negative if diversity increased.
    /// Returns `None` for other metrics, or if there was no diversity before training.
    pub fn diversity_lost(&self) -> Option<f64> {
        let diversity = |value: f64| match self.diversity? {
            DiversityScale::HigherIsDiverse => Some(value),
            DiversityScale::LowerIsDiverse => Some(1.0 - value),
        };
        let (before, after) = (diversity(self.before?)?, diversity(self.after?)?);
        (before > 0.0 && after.is_finite()).then(|| (before - after) / before)
    }
}

impl RunFolder {
    /// Writes `comparison.json`, replacing an existing file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_comparison(&self, comparison: &Comparison) -> Result<(), RunError> {
        let json = serde_json::to_string_pretty(comparison)
            .expect("strings and numbers serialize to JSON");
        self.write_file(COMPARISON, (json + "\n").as_bytes())
    }

    /// Returns the path of `comparison.json`, which may not exist.
    pub fn comparison_path(&self) -> PathBuf {
        self.path().join(COMPARISON)
    }

    /// Reads `comparison.json`. Returns `None` if the file does not exist, because the run has not
    /// finished or does not evaluate any samples.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is damaged.
    pub fn read_comparison(&self) -> Result<Option<Comparison>, RunError> {
        if !self.has(COMPARISON)? {
            return Ok(None);
        }
        let path = self.comparison_path();
        let text = self.folder.open_file(COMPARISON).and_then(regular_file::read_from);
        let text = text.map_err(RunError::read(&path))?;
        let comparison = serde_json::from_slice(&text);
        comparison.map(Some).map_err(RunError::json(&path))
    }
}

pub(crate) const COMPARISON: &str = "comparison.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(diversity: Option<DiversityScale>, before: f64, after: f64) -> Measure {
        let name = "scaffolds".to_owned();
        Measure { name, before: Some(before), after: Some(after), error: None, diversity }
    }

    #[test]
    fn lost_diversity_is_a_fraction_on_both_scales() {
        let higher = Some(DiversityScale::HigherIsDiverse);
        let lower = Some(DiversityScale::LowerIsDiverse);
        assert_eq!(measure(higher, 0.75, 0.1875).diversity_lost(), Some(0.75));
        assert_eq!(measure(higher, 0.5, 0.75).diversity_lost(), Some(-0.5));
        // Self-BLEU increases from 0.5 to 0.75, so half of the diversity is lost.
        assert_eq!(measure(lower, 0.5, 0.75).diversity_lost(), Some(0.5));
        assert_eq!(measure(None, 0.8, 0.2).diversity_lost(), None);
        assert_eq!(measure(higher, 0.0, 0.2).diversity_lost(), None);
        let unknown = Measure { after: None, ..measure(higher, 0.8, 0.2) };
        assert_eq!(unknown.diversity_lost(), None);
    }

    #[test]
    fn a_comparison_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run.json"), "{}").unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        assert_eq!(run.read_comparison().unwrap(), None);
        let sample = ComparedSample { text: "CCO".to_owned(), ..ComparedSample::default() };
        let reward = Measure { error: Some(0.125), after: None, ..measure(None, 0.25, 0.0) };
        let comparison = Comparison {
            step: 80,
            samples: "molecules".to_owned(),
            count: 1000,
            reward: Some(reward),
            measures: vec![measure(Some(DiversityScale::LowerIsDiverse), 0.1, 0.3)],
            best: vec![sample],
            ..Comparison::default()
        };
        run.write_comparison(&comparison).unwrap();
        assert_eq!(run.read_comparison().unwrap(), Some(comparison));
        std::fs::write(folder.path().join("comparison.json"), "{").unwrap();
        let error = run.read_comparison().unwrap_err().to_string();
        assert!(error.contains("comparison.json"), "{error}");
    }
}
