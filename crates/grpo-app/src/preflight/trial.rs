//! The trial batch, i.e. completions that are sampled and scored before training.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use grpo_data::{Codec, Completion, Finish, Group, Purpose, Sample};
use grpo_model::{Frozen, Policy};
use grpo_ranks::Ranks;
use grpo_rollout::StepKey;
use grpo_train::{Actions, Grpo, TrainError};

use crate::generate::decoder;
use crate::prompts::Prompts;
use crate::train_file::TrainFile;

/// A scored trial batch.
pub(super) struct Trial {
    groups: Vec<Group>,
    /// Sampling time.
    time: Duration,
}

/// Largest standard deviation of rewards at which the trial warns. The published checklist requires
/// more.
const LITTLE: f64 = 0.01;

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

impl Trial {
    /// Samples and scores groups as in a training step, but fewer of them. Returns `None` if the
    /// trial batch is disabled.
    pub(super) fn of(
        file: &TrainFile,
        grpo: &Grpo<Policy>,
        prompts: &Prompts,
        codec: &Codec,
        actions: &dyn Actions<Policy>,
    ) -> anyhow::Result<Option<Self>> {
        let samples = file.preflight.samples as usize;
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
        let sampler = config.sampler(policy, actions, size, longest, &decode)?;
        let key =
            StepKey { seed: file.seed, purpose: Purpose::Preflight, step: 0, policy_version: 0 };
        let frozen = Frozen::snapshot_in(policy, config.sampling.weights);
        let begun = Instant::now();
        let sampled = sampler.sample(&frozen, &prompts, key).map_err(TrainError::Rollout);
        let mut groups = sampled.map_err(|error| error.with_products_in(config.train.precision))?;
        let time = begun.elapsed();
        let rewards = grpo.rewards().clone().distributed_over(Ranks::alone());
        rewards.score_groups(&mut groups, None, &*decode)?;
        Ok(Some(Self { groups, time }))
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

    /// Returns a summary of the trial batch, followed by warnings.
    pub(super) fn lines(&self, file: &TrainFile) -> Vec<String> {
        let all = self.samples().count();
        let rewards: Vec<f64> = self.samples().filter_map(Sample::reward).collect();
        let failed: Vec<&str> = self.samples().filter_map(Sample::failure).collect();
        let cut = self.completions().filter(|c| c.finish() == Finish::Length).count();
        let different =
            self.samples().map(|sample| &sample.text).collect::<BTreeSet<&String>>().len();
        let [least, most] =
            [f64::min, f64::max].map(|end| rewards.iter().copied().reduce(end).unwrap_or(f64::NAN));
        let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
        let lengths = match &file.source {
            Some(source) => {
                format!("{:.0} {} on average", self.lengths().mean, source.tokens_name())
            }
            None => format!(
                "{:.0} tokens on average; {:.0} % cut at max_new_tokens = {}",
                self.lengths().mean,
                100.0 * cut as f64 / all as f64,
                file.sampling.max_new_tokens
            ),
        };
        let mut lines = vec![format!(
            "trial        {all} completions, {different} distinct: rewards {least:.3} to {most:.3}, mean {mean:.3}; {lengths}"
        )];
        let mut warn = |warning: String| lines.push(format!("warning: {warning}"));
        if let Some(reason) = failed.first() {
            warn(format!(
                "the reward failed for {} of {all} trial completions; first reason: {reason}",
                failed.len()
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
        if 2 * cut > all {
            warn(format!(
                "{cut} of {all} trial completions were truncated at sampling.max_new_tokens = {}",
                file.sampling.max_new_tokens
            ));
        }
        lines
    }
}
