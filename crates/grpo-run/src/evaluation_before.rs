//! `evaluation-before.jsonl`: the evaluation before training, which a resumed run does not repeat.

use grpo_data::{Completion, CompletionParts, Group, Outcome, Prompt, SampledUnder, regular_file};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::{RunError, RunFolder};

/// A line of the file: a prompt with its completions.
#[derive(Serialize, Deserialize)]
struct Line {
    prompt: Prompt,
    samples: Vec<Scored>,
}

/// A scored completion.
#[derive(Serialize, Deserialize)]
struct Scored {
    text: String,
    outcome: Option<Outcome>,
    completion: Completion,
}

impl Line {
    fn of(group: &Group) -> Self {
        let samples = group.samples.iter().map(|sample| {
            // The sets of possible tokens are large and can be computed from the policy.
            let parts = CompletionParts::from(sample.completion.clone());
            let sampled_under = SampledUnder { kept: None, ..parts.sampled_under };
            let completion = Completion::new(CompletionParts { sampled_under, ..parts });
            Scored { text: sample.text.clone(), outcome: sample.outcome.clone(), completion }
        });
        Self { prompt: group.prompt.clone(), samples: samples.collect() }
    }

    fn into_group(self) -> Group {
        let Self { prompt, samples } = self;
        let mut group = Group::new(prompt, Vec::new());
        group.samples.extend(samples.into_iter().map(|Scored { text, outcome, completion }| {
            grpo_data::Sample { text, outcome, ..completion.into() }
        }));
        group
    }
}

impl RunFolder {
    /// Returns the path of `evaluation-before.jsonl`, which may not exist.
    pub fn evaluation_before_path(&self) -> PathBuf {
        self.path().join(EVALUATION_BEFORE)
    }

    /// Writes the evaluation before training. A resumed run must get exactly the same values, so
    /// nothing is written if JSON cannot represent them, e.g. because a reward component is NaN.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_evaluation_before(&self, groups: &[Group]) -> Result<(), RunError> {
        let lines = groups.iter().map(|group| serde_json::to_string(&Line::of(group)));
        let Ok(lines) = lines.collect::<Result<Vec<_>, _>>() else { return Ok(()) };
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        let is_exact = parsed(&text).is_some_and(|read| is_same(&read, groups));
        match is_exact {
            true => self.write_file(EVALUATION_BEFORE, text.as_bytes()),
            false => Ok(()),
        }
    }

    /// Reads the evaluation before training if it has `group_size` scored completions for each of
    /// `prompts`. Returns `None` if the file is missing, damaged or belongs to other prompts: the
    /// evaluation can be repeated.
    pub fn read_evaluation_before(
        &self,
        prompts: &[Prompt],
        group_size: usize,
    ) -> Option<Vec<Group>> {
        let text = self.files().open_file(EVALUATION_BEFORE).and_then(regular_file::read_data_from);
        let groups = parsed(std::str::from_utf8(&text.ok()?).ok()?)?;
        let is_whole = |(group, prompt): (&Group, &Prompt)| {
            group.prompt == *prompt
                && group.samples.len() == group_size
                && group.samples.iter().all(|sample| sample.outcome.is_some())
        };
        let is_of_run = groups.len() == prompts.len() && groups.iter().zip(prompts).all(is_whole);
        is_of_run.then_some(groups)
    }
}

fn parsed(text: &str) -> Option<Vec<Group>> {
    let lines = text.lines().map(serde_json::from_str::<Line>);
    Some(lines.collect::<Result<Vec<_>, _>>().ok()?.into_iter().map(Line::into_group).collect())
}

/// Compares what a comparison of evaluations depends on.
fn is_same(read: &[Group], groups: &[Group]) -> bool {
    let is_same_group = |(read, group): (&Group, &Group)| {
        let scored = |group: &Group| -> Vec<(String, Option<Outcome>)> {
            let samples = group.samples.iter();
            samples.map(|sample| (sample.text.clone(), sample.outcome.clone())).collect()
        };
        read.prompt == group.prompt && scored(read) == scored(group)
    };
    read.len() == groups.len() && read.iter().zip(groups).all(is_same_group)
}

pub(crate) const EVALUATION_BEFORE: &str = "evaluation-before.jsonl";

#[cfg(test)]
mod tests {
    use grpo_data::{Finish, Sample, SampleKey, Scored};

    use super::*;

    fn group(outcomes: Vec<Outcome>) -> Group {
        let completion = |sample: u32| {
            Completion::new(CompletionParts {
                prefix: Default::default(),
                ids: vec![0, 3],
                action_mask: vec![false, true],
                sampling_logprobs: Some(vec![-0.1]),
                finish: Finish::Length,
                key: SampleKey { seed: 1, step: 0, prompt: 0, sample },
                policy_version: 0,
                sampled_under: SampledUnder { temperature: 0.7, ..SampledUnder::default() },
            })
        };
        let mut group = Group::new(Prompt::of_ids(0, vec![0]), (0..2).map(completion));
        for (sample, outcome) in group.samples.iter_mut().zip(outcomes) {
            let (text, outcome) = ("C\u{2028}\"".to_owned(), Some(outcome));
            *sample = Sample { text, outcome, ..sample.clone() };
        }
        group
    }

    #[test]
    fn an_evaluation_is_read_exactly_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run.json"), "{}").unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        let scored = |total: f64, part: f64| {
            let parts = vec![("valid".into(), part), ("a.b".into(), 1e-310)];
            Outcome::Scored(Scored { total, ..Scored::new(vec![(0.3, total)], parts) })
        };
        let prompts = [Prompt::of_ids(0, vec![0])];
        assert_eq!(run.read_evaluation_before(&prompts, 2), None);
        let failed = Outcome::failed("a".to_owned());
        for outcomes in [
            vec![scored(0.1 + 0.2, 1.0), Outcome::abstained()],
            vec![scored(-1.797e308, 0.1f64.cbrt()), failed],
        ] {
            let groups = [group(outcomes)];
            run.write_evaluation_before(&groups).unwrap();
            assert_eq!(run.read_evaluation_before(&prompts, 2).as_deref(), Some(&groups[..]));
        }
        assert_eq!(run.read_evaluation_before(&prompts, 1), None);
        assert_eq!(run.read_evaluation_before(&[Prompt::of_ids(0, vec![1])], 2), None);
        std::fs::write(run.evaluation_before_path(), "{").unwrap();
        assert_eq!(run.read_evaluation_before(&prompts, 2), None);
        std::fs::remove_file(run.evaluation_before_path()).unwrap();
        // JSON has no NaN.
        run.write_evaluation_before(&[group(vec![scored(1.0, f64::NAN); 2])]).unwrap();
        assert!(!run.evaluation_before_path().exists());
    }
}
