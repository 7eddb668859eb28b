//! Derives the configuration of a trial from that of the long run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use grpo_core::{RatioLevel, Surrogate};
use grpo_train::{GuardAction, GuardConfig};
use toml::Value;

use crate::args::TrialArguments;
use crate::config;
use crate::task::{Tasks, TrialLimits};
use crate::train_file::TrainFile;

/// Default number of steps.
const STEPS: u32 = 100;
/// Smallest number of steps that allows comparing both ends and splitting the run into three
/// stages.
const LEAST_STEPS: u32 = 10;
/// Maximum number of completions per evaluation. More would take longer than the training steps.
const EVALUATED: u32 = 100;
/// Minimum number of kept checkpoints. Ensures that the one at three quarters of the run is not
/// removed.
const KEPT: usize = 6;

/// Reads the configuration at `path` and overrides the keys that a trial sets. `--set` takes
/// precedence over both. The configuration of the long run is validated as well.
pub(crate) fn trial_file(
    arguments: &TrialArguments,
    path: &Path,
    tasks: &Tasks,
) -> anyhow::Result<TrainFile> {
    let set = &arguments.set;
    // Validates the long run to report its errors as well.
    let long = TrainFile::read(path, set, tasks)?;
    long.value.check(&long.origin)?;
    let long = long.value;
    let in_set = config::is_set(set, "train.steps");
    anyhow::ensure!(
        !in_set || arguments.steps.is_none(),
        "--steps and --set train.steps set the same value; remove one of them"
    );
    let steps = if in_set { long.train.steps } else { arguments.steps.unwrap_or(STEPS) };
    anyhow::ensure!(
        steps >= LEAST_STEPS,
        "a trial of {steps} steps is too short; expected at least {LEAST_STEPS}"
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

/// Maps `runs/mine` to `runs/mine-trial`.
fn beside(run: &Path) -> PathBuf {
    let mut name = run.file_name().map_or_else(OsString::new, OsString::from);
    name.push("-trial");
    run.with_file_name(name)
}

/// Returns the keys that a trial with `steps` steps sets.
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
        // Small batches and a low learning rate, because the goal is to find faults.
        ("train.prompts_per_step", Value::from(2)),
        ("train.group_size", Value::from(4)),
        ("optimizer.learning_rate", Value::from(5e-6)),
        ("loss.kl_coef", Value::from(0.02)),
        ("save.every", every(4)),
        ("save.keep_last", Value::from(i64::try_from(long.save.keep_last.max(KEPT))?)),
        // The trial ends after its last step or when a guard stops it.
        ("eval.patience", Value::from(0)),
        ("guards", Value::try_from(guards(long, &limits))?),
        // The reward need not rise in so few steps, but a clear drop indicates a fault. With 10
        // steps at each end, a drop of 3 standard errors occurs by chance in 1 of 260 good trials,
        // and a drop of 4 in 1 of 2400 (Student's t, 18 degrees of freedom).
        ("success.reward_rise", Value::from(-4.0)),
        ("success.min_validity", Value::from(0.8)),
        // Each end of a trial has 80 completions, so a validity near 0.9 has a standard error of
        // about 0.03.
        ("success.max_validity_drop", Value::from(0.1)),
    ];
    if long.eval.samples > 0 {
        keys.push(("eval.every", every(10)));
        keys.push(("eval.samples", Value::from(i64::from(long.eval.samples.min(EVALUATED)))));
    }
    // Scales the schedules with the length of the run.
    let scaled = |long_steps: u32| {
        i64::try_from(u64::from(long_steps) * u64::from(steps) / u64::from(long.train.steps))
    };
    if long.schedule.warmup_steps > 0 {
        keys.push(("schedule.warmup_steps", scaled(long.schedule.warmup_steps)?.into()));
    }
    if let Some(coef_steps) = long.schedule.coef_steps {
        keys.push(("schedule.coef_steps", scaled(coef_steps)?.max(1).into()));
    }
    let loss = long.loss.resolve()?;
    // This range is for token-level ratios. Sequence-level ratios are a thousand times closer to 1.
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

/// Returns the limits for the reward type. The defaults are for text, where the KL divergence adds
/// up over many tokens.
fn limits(long: &TrainFile, tasks: &Tasks) -> TrialLimits {
    let of_type = |name: &str| tasks.iter().find_map(|task| task.trial_limits(name));
    let of_task = long.reward.type_names().into_iter().find_map(of_type);
    of_task.unwrap_or_else(|| TrialLimits {
        max_distance: ("success.max_kl_sequence", 5.0),
        guards: vec![TrialLimits::stop_guard("kl_sequence", Some(15.0), None, 1)],
    })
}

/// Returns the guards of a trial.
///
/// Guards of the long run only warn, because their bounds are chosen for its batch size and
/// learning rate. A negative mean reward does not stop the trial, since some rewards are always
/// negative. The verdict reports whether the reward fell.
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
