//! Batches, steps, schedules, and other settings counted in steps.
//!
//! TRL counts optimizer steps; here a step is a rollout with `train.updates_per_rollout` optimizer
//! steps.

use grpo_data::short_number;
use serde_json::Value as Json;
use toml::Value;

use super::draft::Draft;

/// What is known about the TRL run besides its configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Number of processes.
    pub(crate) processes: Option<u64>,
    /// Number of prompts in the data set.
    pub(crate) prompts: Option<u64>,
}

/// Number of steps if the size of the data set is unknown.
const GUESSED_STEPS: u64 = 100;

/// Largest number of completions or prompts per step.
const MOST_COMPLETIONS: u64 = 1_000_000;

/// The length of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// Number of rollouts.
    pub(super) steps: u64,
    /// Number of optimizer steps per rollout.
    updates: u64,
}

impl Length {
    /// Converts a duration in optimizer steps, or as a fraction of the run, to rollouts.
    pub(super) fn rollouts(&self, duration: f64) -> i64 {
        let updates = self.updates as f64;
        let optimizer_steps = match duration {
            fraction if fraction < 1.0 => fraction * self.steps as f64 * updates,
            steps => steps,
        };
        (optimizer_steps / updates).ceil().clamp(0.0, 1e9) as i64
    }
}

/// Sets the batch, the number of steps and the schedule.
pub(super) fn apply(draft: &mut Draft<'_>, setting: &Setting) -> anyhow::Result<Length> {
    let prompts_per_step = batch(draft, setting)?;
    let updates = draft.given.count("num_iterations", 1, 1..=1000)?;
    draft.set(&["num_iterations"], "train.updates_per_rollout", whole(updates), "");
    let steps = steps(draft, setting, prompts_per_step, updates)?;
    let length = Length { steps, updates };
    schedule(draft, length)?;
    Ok(length)
}

/// Sets the number of prompts per step.
fn batch(draft: &mut Draft<'_>, setting: &Setting) -> anyhow::Result<u64> {
    let given = draft.given;
    let on_device = given.count("per_device_train_batch_size", 8, 1..=MOST_COMPLETIONS)?;
    let (processes, per_generation) = generation(draft, setting, on_device)?;
    let accumulated = given.count("gradient_accumulation_steps", 1, 1..=MOST_COMPLETIONS)?;
    let group = given.count("num_generations", 8, 2..=MOST_COMPLETIONS)?;
    let completions = on_device.saturating_mul(accumulated).saturating_mul(processes);
    let prompts = completions.div_ceil(group);
    let rounded = if completions.is_multiple_of(group) { "" } else { ", rounded up" };
    let note = format!(
        "{on_device} × {accumulated} × {processes} {} / {group} completions per prompt{rounded}",
        if processes == 1 { "process" } else { "processes" }
    );
    let keys = ["per_device_train_batch_size", "gradient_accumulation_steps"];
    draft.set(&keys, "train.prompts_per_step", whole(prompts), note);
    let keys = ["steps_per_generation", "generation_batch_size"];
    if per_generation.is_some_and(|steps| steps > accumulated) {
        draft.without(
            &keys,
            true,
            "TRL divides the completions of a rollout among several optimizer steps; here each step samples its own, so that it starts on policy",
        );
    } else {
        draft.same(&keys, "all completions of a step come from the same policy");
    }
    Ok(prompts)
}

/// Returns the number of processes and, if set, the number of batches per device and generation.
///
/// A complete dump has both keys, which exclude each other in a file for TRL. Together they
/// determine the number of processes.
fn generation(
    draft: &Draft<'_>,
    setting: &Setting,
    on_device: u64,
) -> anyhow::Result<(u64, Option<u64>)> {
    let given = draft.given;
    let of = |key: &str| -> anyhow::Result<Option<u64>> {
        Ok(given.has(key).then_some(given.count(key, 1, 1..=u64::from(u32::MAX))?))
    };
    let (batches, completions) = (of("steps_per_generation")?, of("generation_batch_size")?);
    let told = batches
        .zip(completions)
        .map(|(batches, completions)| (completions / on_device.saturating_mul(batches)).max(1));
    let processes = setting.processes.or(told).unwrap_or(1);
    let computed = completions.map(|all| all / on_device.saturating_mul(processes));
    Ok((processes, batches.or(computed)))
}

/// Sets the number of steps and returns it.
fn steps(
    draft: &mut Draft<'_>,
    setting: &Setting,
    prompts_per_step: u64,
    updates: u64,
) -> anyhow::Result<u64> {
    let given = draft.given;
    if let Some(optimizer_steps) = given.integer("max_steps")?.filter(|steps| *steps > 0) {
        let steps = optimizer_steps.unsigned_abs().div_ceil(updates);
        let note = match updates {
            1 => String::new(),
            _ => format!("{optimizer_steps} optimizer steps, {updates} per rollout"),
        };
        draft.set(&["max_steps"], "train.steps", whole(steps), note);
        return Ok(steps);
    }
    let epochs = given.number("num_train_epochs")?.unwrap_or(3.0);
    let keys = ["num_train_epochs", "max_steps"];
    let Some(prompts) = setting.prompts else {
        draft.set(&keys, "train.steps", whole(GUESSED_STEPS), "a guess; see below");
        draft.remind(format!(
            "Set train.steps: {0} epochs are {0} × (number of prompts) / {prompts_per_step} steps. The option --prompts N computes this.",
            short_number(epochs)
        ));
        return Ok(GUESSED_STEPS);
    };
    let steps = (epochs * prompts as f64 / prompts_per_step as f64).ceil().clamp(1.0, 1e9) as u64;
    let epochs = short_number(epochs);
    let note = format!("{epochs} epochs × {prompts} prompts / {prompts_per_step} per step");
    draft.set(&keys, "train.steps", whole(steps), note);
    Ok(steps)
}

/// Schedules in transformers: name, the floor of our schedule, and the difference.
const SCHEDULES: &[(&str, f64, &str)] = &[
    ("linear", 0.0, "half a cosine instead of the straight line of `linear`; both end at 0"),
    ("cosine", 0.0, ""),
    ("constant", 1.0, ""),
    ("constant_with_warmup", 1.0, ""),
    ("cosine_with_min_lr", 0.0, "the cosine stops at the floor"),
];

fn schedule(draft: &mut Draft<'_>, length: Length) -> anyhow::Result<()> {
    let given = draft.given;
    let name = given.text("lr_scheduler_type")?.unwrap_or_else(|| "linear".to_owned());
    let keys = ["lr_scheduler_type", "lr_scheduler_kwargs"];
    match SCHEDULES.iter().find(|(known, ..)| *known == name) {
        Some((known, floor, note)) => {
            let floor = match *known {
                "cosine_with_min_lr" => least_rate(draft)?,
                _ => *floor,
            };
            draft.set(&keys, "schedule.floor", Value::Float(floor), *note);
        }
        None => draft.without(
            &keys,
            true,
            "this schedule is not available; the learning rate is constant after the warm-up (a cosine: schedule.floor below 1)",
        ),
    }
    let duration = match (given.number("warmup_steps")?, given.number("warmup_ratio")?) {
        (Some(steps), _) if steps > 0.0 => steps,
        (_, ratio) => ratio.unwrap_or(0.0).clamp(0.0, 0.999_999),
    };
    if name == "constant" {
        draft.same(&["warmup_steps", "warmup_ratio"], "the schedule `constant` has no warm-up");
    } else {
        let steps = length.rollouts(duration).min(i64::try_from(length.steps)?);
        let keys = ["warmup_steps", "warmup_ratio"];
        draft.set(&keys, "schedule.warmup_steps", steps, "");
    }
    Ok(())
}

/// Returns the floor of the schedule `cosine_with_min_lr` as a fraction of the learning rate.
fn least_rate(draft: &Draft<'_>) -> anyhow::Result<f64> {
    let given = draft.given;
    let of = |key: &str| given.get("lr_scheduler_kwargs")?.get(key).and_then(Json::as_f64);
    let maximum = given.number("learning_rate")?.unwrap_or(1e-6);
    let fraction = of("min_lr_rate").or_else(|| Some(of("min_lr")? / maximum));
    Ok(fraction.filter(|fraction| (0.0..=1.0).contains(fraction)).unwrap_or(0.0))
}

/// Sets evaluations and checkpoints.
pub(super) fn periods(draft: &mut Draft<'_>, length: Length) -> anyhow::Result<()> {
    let given = draft.given;
    let logging = given.number("logging_steps")?.filter(|steps| *steps > 0.0).unwrap_or(10.0);
    save(draft, length)?;
    if given.boolean("log_completions")? == Some(true) {
        let every = length.rollouts(logging).max(1);
        draft.set(&["log_completions"], "save.completions_every", every, "");
    } else {
        draft.same(&["log_completions"], "recorded anyway, for `grpo explain` and `grpo replay`");
    }
    let strategy = given.choice("eval_strategy", &["no", "steps", "epoch"])?;
    if strategy == "no" {
        draft.same(&["eval_strategy"], "no evaluations between the first and the last step");
        draft.point_out(
            "eval_strategy",
            "none",
            "eval.samples = 1000",
            "completions before the first step and after the last; eval.samples = 0 for none",
        );
        return Ok(());
    }
    let every = match strategy {
        "steps" => length.rollouts(given.number("eval_steps")?.unwrap_or(logging)).max(1),
        _ => epoch(draft, length)?,
    };
    draft.set(&["eval_strategy", "eval_steps"], "eval.every", every, "");
    let default = given.count("num_generations", 8, 2..=MOST_COMPLETIONS)?;
    let group = given.count("num_generations_eval", default, 1..=1000)?;
    draft.set(&["num_generations_eval"], "eval.group_size", whole(group.min(1000)), "");
    draft.point_out(
        "eval_strategy",
        "whole test split",
        "eval.samples = 1000",
        "completions per evaluation, for the first eval.samples / eval.group_size prompts",
    );
    Ok(())
}

/// Sets when checkpoints are written.
fn save(draft: &mut Draft<'_>, length: Length) -> anyhow::Result<()> {
    let given = draft.given;
    let keys = ["save_strategy", "save_steps"];
    let every = match given.choice("save_strategy", &["steps", "no", "epoch", "best"])? {
        "steps" => length.rollouts(given.number("save_steps")?.unwrap_or(500.0)).max(1),
        "epoch" => epoch(draft, length)?,
        _ => 0,
    };
    draft.set(&keys, "save.every", every, "also every 10 minutes (save.every_minutes)");
    match given.has("save_total_limit") {
        true => {
            let kept = given.count("save_total_limit", 2, 1..=MOST_COMPLETIONS)?;
            draft.set(&["save_total_limit"], "save.keep_last", whole(kept), "");
        }
        false => draft.point_out(
            "save_total_limit",
            "all checkpoints",
            "save.keep_last = 2",
            "older checkpoints are deleted, except the one of the best evaluation",
        ),
    }
    Ok(())
}

/// Returns the number of steps per epoch, at least 1.
fn epoch(draft: &Draft<'_>, length: Length) -> anyhow::Result<i64> {
    let epochs = draft.given.number("num_train_epochs")?.unwrap_or(3.0).max(1.0);
    Ok((length.steps as f64 / epochs).ceil().clamp(1.0, 1e9) as i64)
}

/// Converts a count for TOML.
pub(super) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
