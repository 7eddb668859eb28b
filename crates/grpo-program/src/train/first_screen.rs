//! Summary of a `grpo train` run that is printed before the first step.

use burn::module::Module;
use grpo_data::counted;
use grpo_model::{LanguageModel, Policy};
use grpo_task::recorded_device::of_this_process;
use toml::{Table, Value};

use crate::train_file::TrainFile;

/// Returns lines about the model, data, reward and device of a run that `ranks` processes share.
pub(crate) fn settings(file: &TrainFile, policy: &Policy, ranks: usize) -> Vec<String> {
    let (all, trained) = (policy.parameters() as f64, policy.num_params() as f64);
    let size = match trained < all {
        true => format!("{}, {} of them trained", millions(all), amount(trained)),
        false => format!("{}, all trained", millions(all)),
    };
    let mut lines = vec![format!("model        {}: {size}", file.settings.model.display())];
    if file.data.is_none() && file.source.is_none() {
        lines.push(
            "data         no prompts: completions start from the beginning-of-sequence token"
                .to_owned(),
        );
    }
    if let Some(rollout) = file.rollout.config().summary() {
        lines.push(format!("rollout      {rollout}"));
    }
    lines.push(format!("reward       {}", reward(file)));
    let threads = rayon::current_num_threads();
    let unit = if threads == 1 { "thread" } else { "threads" };
    let shared = match ranks {
        1 => String::new(),
        _ => format!(" in each of {ranks} processes"),
    };
    let device = of_this_process();
    lines.push(format!("device       {device}, {threads} {unit}{shared}"));
    lines
}

/// Returns the number of steps and completions. If the trial batch was timed, also estimates the
/// total time of a run that `ranks` processes share.
pub(crate) fn plan(file: &TrainFile, ranks: usize, seconds_per_completion: Option<f64>) -> String {
    let (steps, train) = (file.trainer.train.steps, &file.trainer.train);
    let completions = f64::from(train.prompts_per_step) * train.group_size as f64;
    let time = seconds_per_completion.map(|seconds| {
        // An update takes about three times as long as sampling its completions.
        let factor = 1.0 + 3.0 * f64::from(train.updates_per_rollout);
        let sharing = f64::from(train.prompts_per_step).min(ranks as f64);
        let all =
            f64::from(steps) * completions * factor + 2.0 * f64::from(file.trainer.eval.samples);
        format!("; {}, estimated from the trial batch", rough(all * seconds / sharing))
    });
    let rate = file.trainer.optimizer.learning_rate;
    format!(
        "plan         {} of {}, learning rate {rate:e}{}",
        counted(steps, "step"),
        counted(completions as u64, "completion"),
        time.unwrap_or_default()
    )
}

/// Formats the reward type with its numeric settings, e.g. `molecule (qed 0.7, sa 0.3)`.
fn reward(file: &TrainFile) -> String {
    let table = Table::try_from(&file.reward).unwrap_or_default();
    let name = table.get("type").and_then(Value::as_str).unwrap_or("custom").to_owned();
    let numbers = table.iter().filter_map(|(key, value)| {
        let value = value.as_float().or(value.as_integer().map(|value| value as f64))?;
        Some((key.as_str(), value))
    });
    let numbers: Vec<(&str, f64)> = numbers.collect();
    // Components with weight 0 are omitted together with their settings, e.g. `logp` with
    // `logp_centre`.
    let is_off = |key: &str| {
        let mut off = numbers.iter().filter(|(_, value)| *value == 0.0);
        off.any(|(name, _)| key == *name || key.starts_with(&format!("{name}_")))
    };
    let numbers = numbers.iter().filter(|(key, _)| !is_off(key));
    let numbers: Vec<String> =
        numbers.map(|(key, value)| format!("{key} {value}")).take(6).collect();
    if numbers.is_empty() { name } else { format!("{name} ({})", numbers.join(", ")) }
}

fn millions(count: f64) -> String {
    format!("{} parameters", amount(count))
}

/// Formats a large number, e.g. `820 thousand`, `1.3 million` or `7.2 billion`.
fn amount(count: f64) -> String {
    match count {
        ..1e3 => format!("{count}"),
        1e3..1e6 => format!("{:.0} thousand", count / 1e3),
        1e6..1e9 => format!("{:.1} million", count / 1e6),
        _ => format!("{:.1} billion", count / 1e9),
    }
}

/// Formats a rough duration estimate.
fn rough(seconds: f64) -> String {
    match seconds {
        ..60.0 => "less than a minute".to_owned(),
        60.0..5400.0 => format!("about {:.0} min", (seconds / 60.0).ceil()),
        5400.0..172_800.0 => format!("about {:.0} h", (seconds / 3600.0).ceil()),
        _ => format!("about {:.0} days", (seconds / 86400.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        for (count, words) in [
            (800.0, "800"),
            (820_100.0, "820 thousand"),
            (1.34e6, "1.3 million"),
            (7.2e9, "7.2 billion"),
        ] {
            assert_eq!(amount(count), words);
        }
        for (seconds, words) in [
            (4.0, "less than a minute"),
            (150.0, "about 3 min"),
            (3599.0, "about 60 min"),
            (9000.0, "about 3 h"),
            (2e5, "about 3 days"),
        ] {
            assert_eq!(rough(seconds), words);
        }
    }
}
