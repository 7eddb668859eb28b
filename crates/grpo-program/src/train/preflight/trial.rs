//! The trial batch, i.e. completions that are sampled and scored before training.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use grpo_data::{Codec, Completion, Finish, Group, Purpose, Sample, Shortened, counted};
use grpo_model::{Frozen, Policy};
use grpo_rewards::Votes;
use grpo_rollout::StepKey;
use grpo_runtime::Ranks;
use grpo_task::generate::decoder;
use grpo_task::output::four_decimals;
use grpo_train::{EngineFactory, Grpo, TrainError};

use crate::train::command::{StepScores, all_due};
use crate::train_file::TrainFile;
use crate::train_file::prompts::Prompts;

/// Token sampling for the trial batch before training.
const PREFLIGHT: Purpose = Purpose::new(8);

/// A scored trial batch.
pub(super) struct Trial {
    groups: Vec<Group>,
    /// Number of completions whose reward failed but that are only left out, and the first reason.
    left_out: Option<(usize, String)>,
    /// Why no completion for a prompt can succeed, for each such prompt.
    doubts: Vec<String>,
    /// The answers, if the reward or a part of it compares answers.
    answers: Option<Answers>,
    /// Whether the reward has no fixed score for invalid completions.
    scores_invalid: bool,
    /// Sampling time.
    time: Duration,
}

/// Largest standard deviation of rewards at which the trial warns. The published checklist requires
/// more.
const LITTLE: f64 = 0.01;

/// Smallest share of groups that can have different rewards, below which the trial warns.
const FEW: f64 = 0.5;

/// Returns the population standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n).sqrt()
}

/// Completion lengths in tokens.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) mean: f64,
    pub(super) longest: usize,
}

/// Fewest completions that show that a reward does not work, unless the trial has no others.
const CONCLUSIVE: usize = 8;

/// Trial completions that the reward had to score, and of which it scored none.
struct Unscored<'a> {
    /// Number of all trial completions.
    all: usize,
    /// Number of those that it had to score.
    due: usize,
    /// Why it failed, for each of them for which it did.
    failures: Vec<&'a str>,
    /// Why it failed for the first of those that are left out for this reason.
    left_out: Option<&'a str>,
}

impl Unscored<'_> {
    /// Returns whether these are enough to conclude that the reward does not work.
    fn is_conclusive(&self) -> bool {
        self.due == self.all || self.due >= CONCLUSIVE.max(self.all.div_ceil(4))
    }

    fn message(&self) -> String {
        let Self { all, due, .. } = *self;
        let which = all_due(due, all, "trial completion");
        let (what, check, reason) = match (self.failures.first(), self.left_out) {
            (Some(reason), _) if self.failures.len() == due => {
                (format!("the reward failed for {which}"), "correct the reward", Some(*reason))
            }
            (Some(reason), _) => (
                format!("the reward failed or abstained for {which}"),
                "correct the reward",
                Some(*reason),
            ),
            (None, Some(reason)) => (
                format!("the reward failed for {which}, left out because on_failure = \"abstain\""),
                "correct the reward",
                Some(reason),
            ),
            (None, None) => (format!("the reward abstained for {which}"), "check [reward]", None),
        };
        let skip = match self.is_conclusive() {
            true => ", or skip the trial with preflight.samples = 0 if later steps can have scores",
            false => "",
        };
        let reason = reason.map(|reason| format!("; first reason: {reason}")).unwrap_or_default();
        format!("{what}, so the policy cannot learn; {check}{skip}{reason}")
    }
}

impl Trial {
    /// Samples and scores groups as in a training step, but fewer of them. Returns `None` if the
    /// trial batch is disabled.
    pub(super) fn of(
        file: &TrainFile,
        grpo: &Grpo<Policy>,
        prompts: &Prompts,
        codec: &Codec,
        engine: &dyn EngineFactory<Policy>,
    ) -> anyhow::Result<Option<Self>> {
        let samples = file.settings.preflight.samples as usize;
        if samples == 0 {
            return Ok(None);
        }
        let (decode, policy) = (decoder(codec), grpo.policy());
        let mut config = file.grpo();
        config.train.group_size = config.train.group_size.min(samples);
        let groups = samples.div_ceil(config.train.group_size) as u32;
        let prompts = prompts.first(groups.min(config.train.prompts_per_step))?;
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
        let size = config.train.group_size;
        let sampler = config.sampler(policy, engine, size, longest, &decode)?;
        let key =
            StepKey { seed: file.settings.seed, purpose: PREFLIGHT, step: 0, policy_version: 0 };
        let frozen = Frozen::snapshot_in(policy, config.sampling.weights);
        let begun = Instant::now();
        let sampled = sampler.sample(&frozen, &prompts, key).map_err(TrainError::Rollout);
        let mut groups = sampled.map_err(|error| error.with_products_in(config.train.precision))?;
        let time = begun.elapsed();
        let rewards = grpo.rewards().clone().distributed_over(Ranks::alone());
        let calls = rewards.score_groups(&mut groups, None, &*decode)?;
        let left_out = calls.and_then(|calls| Some((calls.left_out, calls.reason?)));
        let doubts =
            groups.iter().filter_map(|group| rewards.doubt(&group.prompt.fields)).collect();
        let answers = rewards.answer().map(|answer| Answers::of(answer, &groups));
        let scores_invalid = rewards.scores_invalid();
        Ok(Some(Self { groups, left_out, doubts, answers, scores_invalid, time }))
    }

    /// Returns an error if the reward scored none of the completions that it had to score, and these are
    /// enough to conclude that the policy would learn nothing. Others may have a score of 0 whether the
    /// reward works or not.
    pub(super) fn refuse_without_score(&self, file: &TrainFile) -> anyhow::Result<()> {
        match self.unscored(file.trainer.train.max_failed_rewards).filter(Unscored::is_conclusive) {
            Some(unscored) => anyhow::bail!(unscored.message()),
            None => Ok(()),
        }
    }

    /// Returns the completions that the reward had to score if it scored none of them, unless its
    /// failures are allowed.
    fn unscored(&self, max_failed_rewards: f64) -> Option<Unscored<'_>> {
        let outcomes = self.samples().filter_map(|sample| sample.outcome.as_ref());
        let StepScores::NoneScored(due) = StepScores::of(outcomes, self.scores_invalid) else {
            return None;
        };
        let failures: Vec<&str> = self.samples().filter_map(Sample::failure).collect();
        let is_allowed = !failures.is_empty() && max_failed_rewards >= 1.0;
        let left_out = self.left_out.as_ref().map(|(_, reason)| reason.as_str());
        let all = self.samples().count();
        (!is_allowed).then_some(Unscored { all, due, failures, left_out })
    }

    pub(super) fn seconds_per_completion(&self) -> f64 {
        self.time.as_secs_f64() / self.completions().count().max(1) as f64
    }

    pub(super) fn lengths(&self) -> Lengths {
        let lengths: Vec<usize> = self.completions().map(Completion::actions).collect();
        Lengths {
            mean: lengths.iter().sum::<usize>() as f64 / lengths.len() as f64,
            longest: lengths.into_iter().max().unwrap_or(1),
        }
    }

    fn completions(&self) -> impl Iterator<Item = &Completion> {
        self.samples().map(|sample| &sample.completion)
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Returns warnings about completions without a score. `scored` is the number of the others.
    fn gaps(&self, file: &TrainFile, scored: usize) -> Vec<String> {
        if let Some(unscored) = self.unscored(file.trainer.train.max_failed_rewards) {
            return vec![unscored.message()];
        }
        let all = self.samples().count();
        let left_out = self.left_out.as_ref().map(|(count, reason)| {
            format!(
                "the reward failed for {count} of {all} trial completions, which are left out (on_failure = \"abstain\"); first reason: {reason}"
            )
        });
        [self.failures(file), left_out, self.without_score(scored)].into_iter().flatten().collect()
    }

    /// Returns a warning if the reward gave no score for most completions, but for some. `scored` is their
    /// number.
    fn without_score(&self, scored: usize) -> Option<String> {
        let all = self.samples().count();
        let failed = self.samples().filter_map(Sample::failure).count();
        let abstained = all - scored - failed;
        (self.left_out.is_none() && scored > 0 && 2 * abstained > all).then(|| {
            format!(
                "the reward gave no score for {abstained} of {all} trial completions, so the policy cannot learn from them; check [reward]"
            )
        })
    }

    /// Returns a warning if the reward failed for some completions.
    fn failures(&self, file: &TrainFile) -> Option<String> {
        let (all, most) = (self.samples().count(), file.trainer.train.max_failed_rewards);
        let failed: Vec<&str> = self.samples().filter_map(Sample::failure).collect();
        let reason = failed.first()?;
        let ends = match failed.len() as f64 > most * all as f64 {
            true => format!(
                ", and a step ends the run if it fails for more than train.max_failed_rewards = {most}"
            ),
            false => String::new(),
        };
        Some(format!(
            "the reward failed for {} of {all} trial completions{ends}; first reason: {reason}",
            failed.len()
        ))
    }

    /// Returns a summary of the trial batch, followed by warnings.
    pub(super) fn lines(&self, file: &TrainFile) -> Vec<String> {
        let all = self.samples().count();
        let rewards: Vec<f64> = self.samples().filter_map(Sample::reward).collect();
        let cut = self.completions().filter(|c| c.finish() == Finish::Length).count();
        let different =
            self.samples().map(|sample| &sample.text).collect::<BTreeSet<&String>>().len();
        let [least, most] =
            [f64::min, f64::max].map(|end| rewards.iter().copied().reduce(end).unwrap_or(f64::NAN));
        let of_rewards = match rewards.is_empty() {
            true => "no rewards".to_owned(),
            false => {
                let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
                let [least, most, mean] = [least, most, mean].map(four_decimals);
                format!("rewards {least} to {most}, mean {mean}")
            }
        };
        let lengths = match &file.source {
            Some(source) => {
                format!("{:.0} {} on average", self.lengths().mean, source.tokens_name())
            }
            None => format!(
                "{:.0} tokens on average; {:.0} % cut at max_new_tokens = {}",
                self.lengths().mean,
                100.0 * cut as f64 / all as f64,
                file.trainer.sampling.max_new_tokens
            ),
        };
        let mut lines = vec![format!(
            "trial        {}, {different} distinct: {of_rewards}; {lengths}",
            counted(all, "completion")
        )];
        let mut warn = |warning: String| lines.push(format!("warning: {warning}"));
        self.gaps(file, rewards.len()).into_iter().for_each(&mut warn);
        if let Some(doubt) = self.doubts.first() {
            warn(format!(
                "for {} of {} trial prompts: {doubt}",
                self.doubts.len(),
                self.groups.len()
            ));
        }
        if rewards.is_empty() {
            warn(format!(
                "none of the {all} trial completions received a reward, so the policy cannot learn; check [reward] and the prompts"
            ));
        } else if least == most && rewards.len() > 1 {
            warn(format!(
                "all {} rewards of the trial are {least}, so the policy cannot learn; check [reward], or start from a policy that sometimes succeeds",
                rewards.len()
            ));
        } else if let deviation = deviation(&rewards)
            && deviation <= LITTLE
            && rewards.len() > 1
        {
            warn(format!(
                "the rewards of the trial hardly differ (standard deviation {deviation:.1e}), so advantages are mostly noise; check [reward] and its scale"
            ));
        }
        self.never_correct().into_iter().for_each(&mut warn);
        let (binary, train) = (Binary::of(&rewards), &file.trainer.train);
        binary.iter().filter_map(|it| it.warning(train.group_size)).for_each(&mut warn);
        if 2 * cut > all {
            warn(format!(
                "{cut} of {all} trial completions were truncated at sampling.max_new_tokens = {}",
                file.trainer.sampling.max_new_tokens
            ));
        }
        let expected = binary.map(|it| it.expectation(train.group_size, train.prompts_per_step));
        expected.into_iter().for_each(|line| lines.insert(1, line));
        lines
    }

    /// Returns a warning if no completion has the right answer.
    fn never_correct(&self) -> Option<String> {
        let Answers { found, right, first_right } = self.answers.as_ref()?;
        let all = self.samples().count();
        if *right > 0 || all == 0 {
            return None;
        }
        let gold = first_right.as_ref().map_or_else(String::new, |right| {
            format!("; the first right answer is {}", Shortened(right))
        });
        let completions = counted(all, "trial completion");
        Some(match *found {
            0 => format!("none of {completions} has an answer that reward.extract finds{gold}"),
            found => {
                let answers = counted(found, "answer");
                format!("none of {answers} in {completions} is right{gold}")
            }
        })
    }
}

/// The answers in trial completions.
#[derive(Debug, PartialEq)]
struct Answers {
    /// Number of completions with an answer.
    found: usize,
    /// Number of completions with the right one.
    right: usize,
    /// The right answer to the first prompt, as JSON.
    first_right: Option<String>,
}

impl Answers {
    fn of(reward: &dyn Votes, groups: &[Group]) -> Self {
        let votes = groups.iter().flat_map(|group| {
            let vote = |sample: &Sample| reward.vote(&sample.text, &group.prompt.fields);
            group.samples.iter().filter_map(vote)
        });
        let are_right: Vec<bool> = votes.map(|(_, is_right)| is_right).collect();
        let right = |group: &Group| reward.right_answer(&group.prompt.fields).cloned();
        Self {
            found: are_right.len(),
            right: are_right.iter().filter(|is_right| **is_right).count(),
            first_right: groups.iter().find_map(right).map(|right| right.to_string()),
        }
    }
}

/// The two values of rewards that have no others, and how many have the higher one.
struct Binary {
    least: f64,
    most: f64,
    higher: usize,
    all: usize,
}

impl Binary {
    fn of(rewards: &[f64]) -> Option<Self> {
        let least = rewards.iter().copied().reduce(f64::min)?;
        let most = rewards.iter().copied().reduce(f64::max)?;
        if least == most || rewards.iter().any(|reward| *reward != least && *reward != most) {
            return None;
        }
        let higher = rewards.iter().filter(|reward| **reward == most).count();
        Some(Self { least, most, higher, all: rewards.len() })
    }

    /// Returns the probability that the rewards of a group are not all equal, if every prompt has the
    /// pass rate of the trial.
    fn differ(&self, size: usize) -> f64 {
        let p = self.higher as f64 / self.all as f64;
        1.0 - p.powf(size as f64) - (1.0 - p).powf(size as f64)
    }

    /// Says how many groups of a step can be expected to have a signal.
    fn expectation(&self, group_size: usize, groups: u32) -> String {
        let percent = 100.0 * self.differ(group_size);
        format!(
            "signal       about {:.1} of {} per step should have different rewards ({percent:.0} %, from {} of {} trial completions with reward {}; fewer if prompts differ in difficulty)",
            self.differ(group_size) * f64::from(groups),
            counted(groups, "group"),
            self.higher,
            self.all,
            self.most,
        )
    }

    /// Warns if one of the values is so rare that most groups have equal rewards.
    fn warning(&self, group_size: usize) -> Option<String> {
        let Self { least, most, higher, all } = self;
        if self.differ(group_size) >= FEW {
            return None;
        }
        let enough = (group_size..=1024).find(|size| self.differ(*size) >= FEW);
        let enough = enough.map_or_else(String::new, |size| format!(" to {size} or more"));
        Some(format!(
            "{higher} of {all} trial completions have the reward {most}, all others {least}, so only about {:.0} % of groups of {group_size} have different rewards, and the others teach nothing; raise train.group_size{enough}, or start from a policy that succeeds more often",
            100.0 * self.differ(group_size)
        ))
    }
}

#[cfg(test)]
#[path = "../../../../grpo-train/src/test_groups.rs"]
mod test_groups;

#[cfg(test)]
mod tests {
    use grpo_data::{AnswerForm, Outcome, Scored, VALID};

    use super::test_groups::group;
    use super::*;

    /// Creates a trial batch of one-token completions with the given outcomes.
    fn trial(outcomes: Vec<Outcome>) -> Trial {
        Trial {
            groups: vec![group(outcomes)],
            left_out: None,
            doubts: Vec::new(),
            answers: None,
            scores_invalid: false,
            time: Duration::ZERO,
        }
    }

    #[test]
    fn one_failure_among_many_invalid_completions_is_only_a_warning() {
        let invalid = Scored::new(vec![(1.0, 0.0)], vec![(VALID.into(), 0.0)]);
        let mut outcomes = vec![Outcome::Scored(invalid); 63];
        outcomes.push(Outcome::failed("boom"));
        let few = trial(outcomes.clone());
        let unscored = few.unscored(0.1).unwrap();
        assert_eq!((unscored.due, unscored.all), (1, 64));
        assert!(!unscored.is_conclusive());
        assert!(few.unscored(1.0).is_none(), "failures are allowed");
        outcomes[..15].fill(Outcome::abstained());
        let many = trial(outcomes.clone());
        assert!(many.unscored(0.1).unwrap().is_conclusive());
        outcomes[15] = Outcome::Scored(Scored::new(vec![(1.0, 0.0)], vec![(VALID.into(), 1.0)]));
        assert!(trial(outcomes).unscored(0.1).is_none(), "a valid completion has a score");
    }

    #[test]
    fn few_completions_without_a_score_are_only_a_warning() {
        for (due, all, is_conclusive) in [
            (1, 8, false),
            (7, 8, false),
            (8, 8, true),
            (1, 1, true),
            (7, 64, false),
            (15, 64, false),
            (16, 64, true),
            (8, 32, true),
            (16, 65, false),
        ] {
            let unscored = Unscored { all, due, failures: Vec::new(), left_out: None };
            assert_eq!(unscored.is_conclusive(), is_conclusive, "{due} of {all}");
        }
        let one = Unscored { all: 64, due: 1, failures: vec!["boom"], left_out: None };
        assert_eq!(
            one.message(),
            "the reward failed for the only valid trial completion (63 invalid or filtered completions are not counted), so the policy cannot learn; correct the reward; first reason: boom"
        );
        let skip = ", or skip the trial with preflight.samples = 0 if later steps can have scores";
        let all = |failures, left_out| Unscored { all: 8, due: 8, failures, left_out }.message();
        assert_eq!(
            all(vec!["boom"], None),
            format!(
                "the reward failed or abstained for all 8 trial completions, so the policy cannot learn; correct the reward{skip}; first reason: boom"
            )
        );
        assert_eq!(
            all(Vec::new(), Some("boom")),
            format!(
                "the reward failed for all 8 trial completions, left out because on_failure = \"abstain\", so the policy cannot learn; correct the reward{skip}; first reason: boom"
            )
        );
        assert_eq!(
            all(Vec::new(), None),
            format!(
                "the reward abstained for all 8 trial completions, so the policy cannot learn; check [reward]{skip}"
            )
        );
    }

    #[test]
    fn answers_that_are_never_right_are_said() {
        let said = |found, right, all: usize| {
            let mut trial = trial(vec![Outcome::abstained(); all]);
            let first_right = Some("\"#### 72\"".to_owned());
            trial.answers = Some(Answers { found, right, first_right });
            trial.never_correct()
        };
        assert_eq!(
            said(1, 0, 2).unwrap(),
            "none of 1 answer in 2 trial completions is right; the first right answer is \"#### 72\""
        );
        assert_eq!(
            said(0, 0, 1).unwrap(),
            "none of 1 trial completion has an answer that reward.extract finds; the first right answer is \"#### 72\""
        );
        assert_eq!(said(2, 1, 2), None);
        assert_eq!(trial(vec![Outcome::abstained()]).never_correct(), None);
    }

    #[test]
    fn answers_are_those_of_the_field_of_the_reward() {
        let mut group = group(vec![Outcome::abstained(); 3]);
        group.prompt.fields.insert("gold".into(), "#### 72".into());
        for (sample, text) in group.samples.iter_mut().zip(["#### 71", "72", "#### 72"]) {
            sample.text = text.to_owned();
        }
        let reward = grpo_rewards::AnswerReward {
            field: "gold".to_owned(),
            extract: Some(AnswerForm::Hashes),
        };
        let first_right = Some("\"#### 72\"".to_owned());
        assert_eq!(Answers::of(&reward, &[group]), Answers { found: 2, right: 1, first_right });
    }

    #[test]
    fn groups_of_a_binary_reward_that_can_have_a_signal() {
        let of = |ones: usize, all: usize, group_size| {
            let rewards = [vec![1.0; ones], vec![0.0; all - ones]].concat();
            Binary::of(&rewards).and_then(|binary| binary.warning(group_size))
        };
        // 1 − (0.125² + 0.875²) = 0.21875
        let warning = of(8, 64, 2).unwrap();
        assert!(warning.starts_with("8 of 64 trial completions have the reward 1, all others 0, so only about 22 % of groups of 2 have different rewards"), "{warning}");
        assert!(warning.contains("raise train.group_size to 6 or more"), "{warning}");
        for (ones, all, group_size, warns) in [
            (8, 64, 6, false),
            (8, 64, 5, true),
            (56, 64, 2, true),
            (32, 64, 2, false),
            (31, 64, 2, true),
            (1, 64, 16, true),
            (1, 64, 64, false),
            (0, 64, 2, false),
            (64, 64, 2, false),
            (0, 0, 2, false),
        ] {
            assert_eq!(of(ones, all, group_size).is_some(), warns, "{ones}/{all}, {group_size}");
        }
        assert!(Binary::of(&[0.0, 0.0, 0.5, 1.0]).is_none());
        let scaled = Binary::of(&[-1.0, -1.0, -1.0, -1.0, -1.0, 3.0]).unwrap();
        assert_eq!(
            Binary { least: 0.0, most: 1.0, higher: 16, all: 64 }.expectation(2, 8),
            "signal       about 3.0 of 8 groups per step should have different rewards (38 %, from 16 of 64 trial completions with reward 1; fewer if prompts differ in difficulty)"
        );
        assert!(scaled.warning(2).unwrap().contains("have the reward 3, all others -1"));
    }
}
