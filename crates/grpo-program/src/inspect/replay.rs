//! `grpo replay`: samples a recorded completion again.

use std::sync::Arc;
use std::time::Duration;

use grpo_data::{Codec, Completion, Outcome, Prompt, Purpose};
use grpo_model::{Frozen, Policy};
use grpo_rewards::{RewardInput, RewardRunner};
use grpo_rollout::{Decode, Engine, StepKey};
use grpo_run::{Checkpoint, CompletionRecord, EventKind, RecordedOutcome, RunDevices, RunFolder};
use grpo_task::checkpoint;
use grpo_task::output::{Progress, say};
use grpo_task::recorded_device::{compute_alike, compute_on};
use grpo_task::run_files::{unchanged, unlisted};
use grpo_task::task::Tasks;
use grpo_task::used_inputs::{CurrentInfo, info_with_inputs};
use grpo_train::{Grpo, GrpoConfig, Metrics, Parts};

use crate::args::ReplayArguments;
use crate::inspect::recorded::{listed, of_step, one_of};
use crate::inspect::recorded_steps::RecordedSteps;
use crate::inspect::run_reward::refuse_unasked;
use crate::train_file::prompts::Prompts;
use crate::train_file::{Start, TrainFile};

pub(crate) fn run(arguments: &ReplayArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let CurrentInfo { info, renamed } = info_with_inputs(&folder)?;
    let loaded = TrainFile::of_run_with(&folder, tasks, &renamed)?;
    let mut file = loaded.value;
    file.check(&loaded.origin)?;
    file.refuse_unrepeatable("grpo replay")?;
    file.extensions.check_replay()?;
    check_place(arguments, &file)?;
    folder.check_config(&info)?;
    refuse_unasked(&file, &arguments.run, arguments.run_reward)?;
    let devices = RunDevices::of(&info, &folder.read_events()?);
    let (record, recorded_steps) = record(&folder, arguments, &file)?;
    let source = Source::of(&folder, arguments, &recorded_steps, &devices)?;
    file.find_on_hub(tasks)?;
    unchanged(None, &info.data)?;
    let other_device = compute_on(devices.of_step(arguments.step.into()), "the step")?;
    let Start { mut parts, mut prompts, writer, files, .. } = file.start(tasks)?;
    unlisted(files.iter().map(|(_, path)| path.as_path()), &info.data)?;
    if let Some(size) = arguments.batch_size {
        file.trainer.sampling.batch_size = size;
    }
    let (config, longest) = (file.grpo(), parts.longest_prompt);
    let size = config.train.group_size;
    let sampler = config.sampler(&parts.policy, &*parts.engine, size, longest, &parts.decode)?;

    say(format_args!(
        "completion   step {}, prompt {}, sample {} of {}",
        record.step,
        record.prompt,
        record.sample,
        folder.path().display()
    ));
    let reward = Scoring::new(&mut parts, &config);
    let policy = source.policy(&folder, &file, parts, &mut prompts)?;
    let of_step = prompts.of_step(arguments.step - 1, file.trainer.train.prompts_per_step)?;
    let key = StepKey {
        seed: file.settings.seed,
        purpose: Purpose::SAMPLING,
        step: arguments.step - 1,
        policy_version: record.policy_version,
    };
    let policy = Frozen::snapshot_in(&policy, file.trainer.sampling.weights)
        .with_product_precision(file.trainer.train.precision);
    let (prompt, completion) = sample(arguments, &*sampler, &policy, &of_step, key)?;
    let scored = reward.of(prompt, &completion);
    compare(&record, prompt, &completion, &scored, &writer.spec.codec, other_device)
}

/// Checks that step, prompt and sample are in range.
fn check_place(arguments: &ReplayArguments, file: &TrainFile) -> anyhow::Result<()> {
    let (train, run) = (&file.trainer.train, arguments.run.display());
    let (step, prompt, sample) = (arguments.step, arguments.prompt, arguments.sample);
    let last = u32::try_from(train.group_size - 1)?;
    let places = [
        ("step", step, 1..=train.steps, format!("{run} has steps")),
        ("prompt", prompt, 0..=train.prompts_per_step - 1, format!("steps of {run} have prompts")),
        ("sample", sample, 0..=last, format!("groups of {run} have samples")),
    ];
    for (option, value, range, has) in places {
        anyhow::ensure!(
            range.contains(&value),
            "--{option} {value} is out of range; {has} {} to {}",
            range.start(),
            range.end()
        );
    }
    anyhow::ensure!(
        arguments.batch_size != Some(0),
        "--batch-size 0 is out of range; expected 1 or more"
    );
    Ok(())
}

/// Returns the recorded completion and the steps that have recorded completions.
fn record(
    folder: &RunFolder,
    arguments: &ReplayArguments,
    file: &TrainFile,
) -> anyhow::Result<(CompletionRecord, Vec<u64>)> {
    let step = u64::from(arguments.step);
    let records = of_step(folder, file, step)?;
    let record = one_of(folder, records, step, arguments.prompt, arguments.sample)?;
    Ok((record, folder.completion_steps()?))
}

/// Describes the range of steps from 1 to `last`.
fn steps_to(last: u32) -> String {
    if last == 1 { "step 1".to_owned() } else { format!("steps 1 to {last}") }
}

/// Origin of the policy that sampled a step.
enum Source {
    /// The initial policy.
    Start,
    /// A checkpoint of the run.
    Kept(Checkpoint),
    /// The initial policy, retrained for this number of steps.
    Trained(u32),
}

impl Source {
    fn of(
        folder: &RunFolder,
        arguments: &ReplayArguments,
        recorded_steps: &[u64],
        devices: &RunDevices,
    ) -> anyhow::Result<Self> {
        let before = arguments.step - 1;
        if before == 0 {
            return Ok(Self::Start);
        }
        let mut checkpoints = folder.checkpoints()?;
        let is_kept = |step: u64| checkpoints.iter().position(|kept| kept.step == step - 1);
        if let Some(place) = is_kept(u64::from(arguments.step)) {
            return Ok(Self::Kept(checkpoints.swap_remove(place)));
        }
        let replayable = |without_policy: &dyn Fn(u64) -> bool| {
            let steps = recorded_steps.iter().copied();
            let steps = steps.filter(|&step| without_policy(step) || is_kept(step).is_some());
            listed(&steps.collect::<Vec<u64>>())
        };
        anyhow::ensure!(
            !arguments.no_retrain,
            "the policy from step {} was not saved, and --no-retrain prevents {} from being trained again; steps that can be replayed without retraining: {}",
            arguments.step,
            steps_to(before),
            replayable(&|step| step == 1)
        );
        let start = devices.of_step(1);
        let is_elsewhere = |step: &u64| !compute_alike(start, devices.of_step(*step));
        if let Some(changed) = (2..=u64::from(arguments.step)).find(is_elsewhere) {
            anyhow::bail!(
                "the policy of step {} was not saved, and {} cannot be trained again on one device: {}; steps that can be replayed: {}",
                arguments.step,
                steps_to(before),
                devices,
                replayable(&|step| step < changed)
            );
        }
        // After a roll-back, the settings differ from the configuration.
        let events = folder.read_events()?;
        let roll_backs =
            events.iter().filter(|event| matches!(event.what, EventKind::RolledBack { .. }));
        if let Some(back) = roll_backs.map(|event| event.step).min() {
            anyhow::ensure!(
                u64::from(before) <= back,
                "the policy of step {} was not saved, and {} cannot be trained again because the run rolled back to step {back} and changed its settings; steps that can be replayed: {}",
                arguments.step,
                steps_to(before),
                replayable(&|step| step <= back + 1)
            );
        }
        Ok(Self::Trained(before))
    }

    /// Returns the policy. Afterwards, `prompts` yields the prompts of its step.
    fn policy(
        self,
        folder: &RunFolder,
        file: &TrainFile,
        parts: Parts<Policy>,
        prompts: &mut Prompts,
    ) -> anyhow::Result<Policy> {
        match self {
            Self::Start => {
                say(format_args!(
                    "policy       {}, the initial policy",
                    file.settings.model.display()
                ));
                Ok(parts.policy)
            }
            Self::Kept(checkpoint) => {
                let verified = checkpoint.verify()?;
                say(format_args!("policy       {}", checkpoint.path.display()));
                checkpoint::policy(&verified, &parts.policy)
            }
            Self::Trained(steps) => trained(folder, file, parts, prompts, steps),
        }
    }
}

/// Retrains the initial policy for `steps` steps without writing anything.
fn trained(
    folder: &RunFolder,
    file: &TrainFile,
    parts: Parts<Policy>,
    prompts: &mut Prompts,
    steps: u32,
) -> anyhow::Result<Policy> {
    let again = steps_to(steps);
    say(format_args!("the policy of step {} was not saved; training {again} again", steps + 1));
    let recorded = RecordedSteps::after(folder, 0)?;
    let mut grpo = Grpo::new(parts, file.grpo(), file.settings.seed)?;
    let progress = Progress::new(u64::from(steps));
    let mut num_tokens = 0;
    for step in 0..steps {
        let report =
            grpo.step(&prompts.of_step(step, file.trainer.train.prompts_per_step)?, step)?;
        num_tokens += report.actions() as u64;
        let metrics = Metrics::of(&report, num_tokens);
        recorded
            .check(&metrics, &report.observed.ledger)
            .map_err(|fault| anyhow::anyhow!("retraining failed: {fault}"))?;
        let reward = metrics.get("reward").filter(|reward| reward.is_finite());
        progress
            .step(reward.map_or("no reward".to_owned(), |reward| format!("reward {reward:.3}")));
    }
    progress.finish();
    say(format_args!("policy       trained again, {again}"));
    Ok(grpo.policy().clone())
}

/// Samples the completion, either alone or with the rest of its step.
fn sample<'a>(
    arguments: &ReplayArguments,
    sampler: &dyn Engine<Policy>,
    policy: &Frozen<Policy>,
    prompts: &'a [Prompt],
    key: StepKey,
) -> anyhow::Result<(&'a Prompt, Completion)> {
    let prompt = &prompts[arguments.prompt as usize];
    let completion = match arguments.batch_size {
        None => sampler.again(policy, prompt, arguments.sample, key)?,
        Some(_) => {
            let mut groups = sampler.sample(policy, prompts, key)?;
            let mut group = groups.swap_remove(arguments.prompt as usize);
            group.samples.swap_remove(arguments.sample as usize).completion
        }
    };
    Ok((prompt, completion))
}

/// The reward function of the run.
struct Scoring {
    runner: RewardRunner,
    decode: Decode,
    /// Whether the run scored equivalent completions only once, within a budget.
    has_archive: bool,
}

/// The outcome of a completion that was scored again.
struct ScoredAgain {
    /// Why it was not scored, if the completion alone does not determine the outcome.
    outcome: Result<Outcome, &'static str>,
    has_archive: bool,
}

impl Scoring {
    fn new(parts: &mut Parts<Policy>, config: &GrpoConfig) -> Self {
        let limit = Duration::from_secs_f64(config.train.reward_time_limit);
        let runner = RewardRunner::new(Arc::clone(&parts.reward), limit);
        let mut extensions = parts.extensions.iter_mut();
        let has_archive = extensions.any(|extension| extension.score_keeper().is_some());
        Self { runner, decode: Arc::clone(&parts.decode), has_archive }
    }

    /// Scores a completion.
    fn of(&self, prompt: &Prompt, completion: &Completion) -> ScoredAgain {
        let again = || {
            let step = Some(completion.key().step + 1);
            let input = RewardInput::new(prompt, completion, step, &*self.decode);
            self.runner.score(vec![input]).swap_remove(0)
        };
        let outcome = match (self.runner.is_relative(), self.runner.is_deterministic()) {
            (true, _) => Err("the reward compares the completions of a group"),
            (_, false) => Err("the reward is not deterministic (reward.deterministic = false)"),
            (false, true) => Ok(again()),
        };
        ScoredAgain { outcome, has_archive: self.has_archive }
    }
}

/// Compares the recorded and recomputed rewards and describes the difference, if any. Rewards that
/// cannot be computed here are not compared.
fn compare_reward(record: &CompletionRecord, scored: &ScoredAgain) -> Option<String> {
    let recorded = record.reward.map_or("none".to_owned(), |reward| reward.to_string());
    let outcome = match &scored.outcome {
        Ok(outcome) => outcome,
        Err(why) => {
            say(format_args!("reward       recorded {recorded}; not checked: {why}"));
            return None;
        }
    };
    if let Some(reason) = outcome.failure() {
        say(format_args!("reward       recorded {recorded}; not checked: {reason}"));
        return None;
    }
    if record.outcome == RecordedOutcome::Failed {
        say(format_args!("reward       none recorded because the reward failed; not checked"));
        return None;
    }
    if scored.has_archive && record.outcome == RecordedOutcome::Abstained {
        say(format_args!(
            "reward       none recorded because train.max_reward_calls was reached; not checked"
        ));
        return None;
    }
    let now = outcome.total();
    let words = now.map_or("none".to_owned(), |reward| reward.to_string());
    if now.map(f64::to_bits) != record.reward.map(f64::to_bits) {
        if scored.has_archive {
            say(format_args!(
                "reward       recorded {recorded}, recomputed {words}; not compared: the run may have used the score of an equivalent completion"
            ));
            return None;
        }
        say(format_args!("reward       recorded {recorded}, recomputed {words}"));
        return Some(format!("its reward is now {words}, but {recorded} was recorded"));
    }
    say(format_args!("reward       {recorded}, recomputed: equal"));
    let Outcome::Scored(scored) = outcome else { return None };
    let now = |name: &str| scored.parts.iter().find(|part| &*part.0 == name).map(|part| part.1);
    let other = record.parts.iter().find(|(name, recorded)| now(name) != Some(**recorded));
    other.map(|(name, recorded)| {
        let words = now(name).map_or("missing".to_owned(), |now| now.to_string());
        format!("component `{name}` of its reward is now {words}, but {recorded} was recorded")
    })
}

/// Prints which values match and which differ. `other_device` says on which other device the completion
/// was sampled.
fn compare(
    record: &CompletionRecord,
    prompt: &Prompt,
    completion: &Completion,
    scored: &ScoredAgain,
    codec: &Codec,
    other_device: Option<String>,
) -> anyhow::Result<()> {
    let ids: Vec<u32> = completion.action_ids().collect();
    let text = codec.decode_completion(&completion.text_ids());
    let are_equal = record.prompt_ids.is_empty() || record.prompt_ids == prompt.ids;
    let prompt = prompt.text(|ids| codec.decode(ids));
    // Quoted because texts may contain line breaks.
    if !prompt.is_empty() {
        say(format_args!("prompt       {prompt:?}"));
    }
    say(format_args!("recorded     {:?}", record.text));
    say(format_args!("now          {text:?}"));
    let of_ids = difference_of_ids(&record.completion_ids, &ids);
    say(format_args!("ids          {}", of_ids.as_deref().unwrap_or("equal")));
    let of_logprobs =
        difference_of_logprobs(&record.sampling_logprobs, &completion.recorded_logprobs());
    say(format_args!(
        "logprobs     {}",
        of_logprobs.clone().unwrap_or_else(|| format!("all {} equal bit for bit", ids.len()))
    ));
    let of_reward = compare_reward(record, scored);
    let of_text = (record.text != text && of_ids.is_none())
        .then(|| "the recorded text does not match its token ids".to_owned());
    let of_prompt = (record.prompt_text.as_deref().unwrap_or_default() != prompt || !are_equal)
        .then(|| "its prompt is different".to_owned());
    let is_sampled_otherwise = of_ids.is_some() || of_logprobs.is_some();
    let other_device = other_device.filter(|_| is_sampled_otherwise);
    let differences = [
        of_prompt,
        of_ids.map(|words| format!("ids {words}")),
        of_logprobs.map(|words| format!("log-probabilities {words}")),
        of_text,
        of_reward,
        other_device.map(|why| format!("it was sampled {why}")),
    ];
    let differences: Vec<String> = differences.into_iter().flatten().collect();
    anyhow::ensure!(
        differences.is_empty(),
        "the completion differs from the recorded one: {}",
        differences.join("; ")
    );
    Ok(())
}

/// Describes the first position at which two lists of token ids differ.
fn difference_of_ids(recorded: &[u32], now: &[u32]) -> Option<String> {
    let place = recorded.iter().zip(now).position(|(recorded, now)| recorded != now);
    match place {
        Some(place) => Some(format!(
            "differ from token {place} on: recorded {}, now {} ({} tokens recorded, {} now)",
            recorded[place],
            now[place],
            recorded.len(),
            now.len()
        )),
        None if recorded.len() != now.len() => {
            Some(format!("differ in number: {} recorded, {} now", recorded.len(), now.len()))
        }
        None => None,
    }
}

/// Describes the largest difference between two lists of log-probabilities.
fn difference_of_logprobs(recorded: &[f32], now: &[f32]) -> Option<String> {
    if recorded.len() != now.len() {
        return Some(format!("differ in number: {} recorded, {} now", recorded.len(), now.len()));
    }
    let pairs = recorded.iter().zip(now).filter(|(a, b)| a.to_bits() != b.to_bits());
    let distances: Vec<f32> = pairs.map(|(a, b)| (a - b).abs()).collect();
    let largest = distances.iter().copied().reduce(f32::max)?;
    Some(format!("differ: {} of {} by at most {largest:e}", distances.len(), now.len()))
}
