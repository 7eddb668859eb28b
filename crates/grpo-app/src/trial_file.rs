//! What a trial makes of a configuration of `grpo train`: which keys it sets, and why those.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use grpo_core::{RatioLevel, Surrogate};
use grpo_train::{GuardAction, GuardConfig};
use toml::Value;

use crate::args::TrialArguments;
use crate::config;
use crate::task::{Tasks, TrialLimits};
use crate::train_file::TrainFile;

/// Steps of a trial that nothing else is said of.
const STEPS: u32 = 100;
/// Fewer have no two ends to compare, and no three stages.
const LEAST_STEPS: u32 = 10;
/// Completions of an evaluation, at most: those of a long run would take longer than the steps of a trial.
const EVALUATED: u32 = 100;
/// Checkpoints that are kept, at least: the one at three quarters of the run must outlive those that better evaluations
/// write after it.
const KEPT: usize = 6;

/// The configuration at `path` as a trial runs it: the trial's own keys over it, and `--set` over those. Both it and the long
/// run's are checked.
pub(crate) fn trial_file(
    arguments: &TrialArguments,
    path: &Path,
    tasks: &Tasks,
) -> anyhow::Result<TrainFile> {
    let set = &arguments.set;
    // As the long run has it, whose faults are to be found here too.
    let long = TrainFile::read(path, set, tasks)?;
    long.value.check(&long.origin)?;
    let long = long.value;
    let in_set = config::is_set(set, "train.steps");
    anyhow::ensure!(
        !in_set || arguments.steps.is_none(),
        "--steps and --set train.steps say the same thing twice; leave one of them out"
    );
    let steps = if in_set { long.train.steps } else { arguments.steps.unwrap_or(STEPS) };
    anyhow::ensure!(
        steps >= LEAST_STEPS,
        "a trial of {steps} steps would show nothing; it needs {LEAST_STEPS} at least"
    );
    let command =
        config::Command { name: "grpo trial sets", keys: keys(&long, steps, set, tasks)? };
    let loaded = TrainFile::parse(config::load_for(path, &command, set)?, tasks)?;
    let mut file = loaded.value;
    match &arguments.run {
        Some(run) => file.run.clone_from(run),
        None if config::is_set(set, "run") => {}
        None => file.run = beside(&file.run),
    }
    file.check(&loaded.origin)?;
    Ok(file)
}

/// `runs/mine` → `runs/mine-trial`.
fn beside(run: &Path) -> PathBuf {
    let mut name = run.file_name().map_or_else(OsString::new, OsString::from);
    name.push("-trial");
    run.with_file_name(name)
}

/// What a trial of `steps` steps sets.
fn keys(
    long: &TrainFile,
    steps: u32,
    set: &[String],
    tasks: &Tasks,
) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let limits = limits(long, tasks);
    let every = |part: u32| Value::from(i64::from((steps / part).max(1)));
    let mut keys = vec![
        ("train.steps", Value::from(i64::from(steps))),
        // Small and slow: what is looked for is a fault, not a gain.
        ("train.prompts_per_step", Value::from(2)),
        ("train.group_size", Value::from(4)),
        ("optimizer.learning_rate", Value::from(5e-6)),
        ("loss.kl_coef", Value::from(0.02)),
        ("save.every", every(4)),
        ("save.keep_last", Value::from(i64::try_from(long.save.keep_last.max(KEPT))?)),
        // It runs to its end, or a guard ends it.
        ("eval.patience", Value::from(0)),
        ("guards", Value::try_from(guards(long, &limits))?),
        // No gain is wanted of so few steps; a fall beyond doubt is a fault. With the scatter of 10 steps at each end, a fall
        // of 3 standard errors is chance once in 260 sound trials, and one of 4 once in 2400 (Student's t, 18 degrees).
        ("success.reward_rise", Value::from(-4.0)),
        ("success.min_validity", Value::from(0.8)),
        // An end of a trial has 80 completions, whose validity is known to 0.03.
        ("success.max_validity_drop", Value::from(0.1)),
    ];
    if long.eval.samples > 0 {
        keys.push(("eval.every", every(10)));
        keys.push(("eval.samples", Value::from(i64::from(long.eval.samples.min(EVALUATED)))));
    }
    // The warm-up is a part of a run, and so it is of the trial.
    let warmup = u64::from(long.schedule.warmup_steps) * u64::from(steps);
    let warmup = warmup / u64::from(long.train.steps);
    if warmup > 0 || long.schedule.warmup_steps > 0 {
        keys.push(("schedule.warmup_steps", Value::from(i64::try_from(warmup)?)));
    }
    let loss = long.loss.resolve()?;
    // A range for the ratios of tokens: those of sequences are a thousand times closer to 1.
    let has_range = matches!(loss.surrogate, Surrogate::Clipped { .. })
        && loss.ratio_level == RatioLevel::Token
        && !config::is_set(set, "loss.surrogate");
    if has_range {
        keys.push(("loss.epsilon_low", Value::from(0.1)));
        keys.push(("loss.epsilon_high", Value::from(0.1)));
    }
    let (key, limit) = limits.max_distance;
    keys.push((key, Value::from(limit)));
    Ok(keys)
}

/// Those of the task whose reward it is or is made of, or those of texts: a completion of text has many tokens, and moves far in all of them
/// together.
fn limits(long: &TrainFile, tasks: &Tasks) -> TrialLimits {
    let of_type = |name: &str| tasks.iter().find_map(|task| task.trial_limits(name));
    let of_task = long.reward.type_names().into_iter().find_map(of_type);
    of_task.unwrap_or_else(|| TrialLimits {
        max_distance: ("success.max_kl_sequence", 5.0),
        guards: vec![TrialLimits::stop_guard("kl_sequence", Some(15.0), None, 1)],
    })
}

/// Those that end a trial, and those of the long run, which only warn: their bounds are for its batches and its rate. A mean
/// reward below 0 ends nothing: here no reward is negative, and where one were by its nature, that would be no fault; whether
/// it fell is in the verdict.
fn guards(long: &TrainFile, limits: &TrialLimits) -> Vec<GuardConfig> {
    let mut guards = vec![TrialLimits::stop_guard(NOT_FINITE, None, None, 1)];
    guards.extend(limits.guards.iter().cloned());
    let warning = long.grpo().guards().into_iter().filter(|guard| guard.watch != NOT_FINITE);
    guards.extend(warning.map(|guard| GuardConfig {
        action: GuardAction::Warn,
        learning_rate_factor: None,
        kl_coef_factor: None,
        ..guard
    }));
    guards
}

const NOT_FINITE: &str = "not_finite";
