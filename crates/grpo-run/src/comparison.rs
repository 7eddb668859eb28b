//! `comparison.json`: the policy before and after its training, evaluated on the same prompts with the same random numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use grpo_data::regular_file;
use serde::{Deserialize, Serialize};

use crate::{RunError, RunFolder, atomic_write};

/// Two evaluations of a run: one before its first step, one after its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The step after which the trained policy was evaluated.
    pub step: u64,
    /// What the samples are called, in the plural, as `molecules`.
    pub samples: String,
    /// The number of samples of each evaluation.
    pub count: usize,
    /// The mean reward; `None` if no sample has one.
    pub reward: Option<Measure>,
    /// The other rows of the table, in its order.
    pub measures: Vec<Measure>,
    /// Samples before the training. With prompts, one sample of each prompt shown; without, samples at equal distances of
    /// the reward, from the lowest to the highest.
    pub before: Vec<ComparedSample>,
    /// As many samples after the training, of the same prompts or at the same ranks.
    pub after: Vec<ComparedSample>,
    /// The samples with the highest rewards after the training, each text once, the best first.
    pub best: Vec<ComparedSample>,
}

/// A number before and after the training. A value that is not finite is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The name of the row.
    pub name: String,
    /// Before the training.
    pub before: Option<f64>,
    /// After the training.
    pub after: Option<f64>,
    /// The standard error of the change, from paired differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// How the row measures diversity, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diversity: Option<DiversityScale>,
}

/// What the values of a measure of diversity mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiversityScale {
    /// 0 is no diversity; larger values are more diverse.
    HigherIsDiverse,
    /// 1 is no diversity, 0 is the largest diversity, as for self-BLEU.
    LowerIsDiverse,
}

/// A sample that is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedSample {
    /// The prompt, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The completion.
    pub text: String,
    /// Its reward, if it has one.
    pub reward: Option<f64>,
    /// Its reward components by name.
    pub parts: BTreeMap<String, f64>,
}

impl Measure {
    /// Returns the fraction of the diversity that was lost: negative for a gain, `None` for a row that does not measure
    /// diversity, or without any before.
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
    /// Writes `comparison.json`, in place of the one that may be there.
    ///
    /// # Errors
    /// Writing failed.
    pub fn write_comparison(&self, comparison: &Comparison) -> Result<(), RunError> {
        let json = serde_json::to_string_pretty(comparison)
            .expect("strings and numbers serialize to JSON");
        atomic_write(&self.comparison_path(), (json + "\n").as_bytes())
    }

    /// Where `comparison.json` is, if it is there.
    pub fn comparison_path(&self) -> PathBuf {
        self.path().join(COMPARISON)
    }

    /// Reads `comparison.json`; `None` if the run has none, because it has not finished or evaluates no samples.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub fn read_comparison(&self) -> Result<Option<Comparison>, RunError> {
        let path = self.comparison_path();
        if !path.exists() {
            return Ok(None);
        }
        let text = regular_file::read(&path).map_err(RunError::read(&path))?;
        let comparison = serde_json::from_slice(&text);
        comparison.map(Some).map_err(RunError::json(&path))
    }
}

const COMPARISON: &str = "comparison.json";

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
        // Self-BLEU rises from 0.5 to 0.75: half of what was different is gone.
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
