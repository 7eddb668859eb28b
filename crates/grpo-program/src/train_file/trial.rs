//! Derives the configuration of a trial from that of the long run.
//!
//! A trial takes the same steps as the long run, only fewer: model, batches, learning rate, loss,
//! guards and criteria are those of the file. Another learning rate or batch would test another run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use grpo_data::counted;
use grpo_task::config;
use grpo_task::task::Tasks;
use grpo_train::{GuardAction, GuardConfig};
use toml::Value;

use crate::args::TrialArguments;
use crate::train_file::TrainFile;

/// Default number of steps.
const STEPS: u32 = 20;
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
    let steps = if in_set { long.trainer.train.steps } else { arguments.steps.unwrap_or(STEPS) };
    anyhow::ensure!(
        steps >= LEAST_STEPS,
        "a trial of {} is too short; expected at least {LEAST_STEPS}",
        counted(steps, "step")
    );
    let command = config::Command { name: "grpo trial sets", keys: keys(&long, steps)? };
    let loaded = TrainFile::parse(config::load_for(path, &command, set)?, tasks)?;
    let mut file = loaded.value;
    match &arguments.run {
        Some(run) => file.settings.run.clone_from(run),
        None if config::is_set(set, "run") => {}
        None => file.settings.run = beside(&file.settings.run),
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
fn keys(long: &TrainFile, steps: u32) -> anyhow::Result<Vec<(&'static str, Value)>> {
    let every = |part: u32| Value::from(i64::from((steps / part).max(1)));
    let mut keys = vec![
        ("train.steps", Value::from(i64::from(steps))),
        ("save.every", every(4)),
        ("save.keep_last", Value::from(i64::try_from(long.settings.save.keep_last.max(KEPT))?)),
        // The trial ends after its last step or when a guard stops it.
        ("eval.patience", Value::from(0)),
        ("guards", Value::try_from(guards(long))?),
        // The reward need not rise in so few steps, but a clear drop indicates a fault. With 10
        // steps at each end, a drop of 3 standard errors occurs by chance in 1 of 260 good trials,
        // and a drop of 4 in 1 of 2400 (Student's t, 18 degrees of freedom).
        ("success.reward_rise", Value::from(-4.0)),
    ];
    if !long.settings.success.components.is_empty() {
        let components = &long.settings.success.components;
        let kept = components.iter().map(|(name, change)| (name, change.relaxed()));
        let kept: BTreeMap<_, _> = kept.collect();
        keys.push(("success.components", Value::try_from(kept)?));
    }
    if long.trainer.eval.samples > 0 {
        keys.push(("eval.every", every(10)));
        keys.push((
            "eval.samples",
            Value::from(i64::from(long.trainer.eval.samples.min(EVALUATED))),
        ));
    }
    // Scales the schedules with the length of the run.
    let scaled = |long_steps: u32| {
        i64::try_from(
            u64::from(long_steps) * u64::from(steps) / u64::from(long.trainer.train.steps),
        )
    };
    if long.trainer.schedule.warmup_steps > 0 {
        keys.push(("schedule.warmup_steps", scaled(long.trainer.schedule.warmup_steps)?.into()));
    }
    if let Some(coef_steps) = long.trainer.schedule.coef_steps {
        keys.push(("schedule.coef_steps", scaled(coef_steps)?.max(1).into()));
    }
    Ok(keys)
}

/// Returns the guards of a trial. A run that has to be rolled back within so few steps is not ready,
/// so such guards stop the trial.
fn guards(long: &TrainFile) -> Vec<GuardConfig> {
    let of_trial = |guard: GuardConfig| match guard.action {
        GuardAction::RollBack => GuardConfig {
            action: GuardAction::Stop,
            learning_rate_factor: None,
            kl_coef_factor: None,
            ..guard
        },
        GuardAction::Warn | GuardAction::Stop => guard,
    };
    long.grpo().guards().into_iter().map(of_trial).collect()
}
