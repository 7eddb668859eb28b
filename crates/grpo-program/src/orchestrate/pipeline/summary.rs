//! Rows of the final summary table.

use std::collections::BTreeSet;
use std::time::Duration;

use grpo_run::{Comparison, RunFolder, step_of_line};
use grpo_task::config::nearest;
use grpo_task::output::say_aside;
use serde_json::{Map, Value};

use super::file::Stage;

/// How a stage was completed.
pub(super) enum Outcome {
    Reused,
    Resumed(Duration),
    Done(Duration),
}

/// Returns the table row of a completed stage.
pub(super) fn row(stage: &Stage, outcome: Outcome) -> anyhow::Result<[String; 5]> {
    let (word, time) = match outcome {
        Outcome::Reused => ("reused", String::new()),
        Outcome::Resumed(time) => ("resumed", minutes(time)),
        Outcome::Done(time) => ("done", minutes(time)),
    };
    let place = stage.place().display().to_string();
    Ok([stage.section.name.clone(), word.to_owned(), time, place, result(stage)?])
}

/// Formats the values at the start and at the end of the run for each metric listed for the stage.
fn result(stage: &Stage) -> anyhow::Result<String> {
    let Some(config) = stage.config.as_ref().filter(|_| !stage.section.metrics.is_empty()) else {
        return Ok(String::new());
    };
    let run = RunFolder::open(&config.run)?;
    let lines = run.read_metrics()?;
    let known: BTreeSet<&String> = lines.iter().flat_map(Map::keys).collect();
    let known: Vec<String> = known.into_iter().cloned().collect();
    for name in stage.section.metrics.iter().filter(|name| !known.contains(name)) {
        let hint = nearest(&known, name);
        let hint = hint.map_or(String::new(), |nearest| format!("; did you mean '{nearest}'?"));
        say_aside(format_args!(
            "{:<12} warning: {} has no metric '{name}'{hint}",
            stage.section.name,
            run.metrics_path().display()
        ));
    }
    let steps = lines.last().and_then(step_of_line);
    // A resumed run may have an evaluation of an earlier end.
    let comparison = run.read_comparison()?.filter(|found| Some(found.step) == steps);
    let words = stage.section.metrics.iter().map(|name| {
        let evaluated = comparison.as_ref().and_then(|comparison| evaluated(comparison, name));
        match evaluated.map(|(before, after)| (before, Some(after))).or(ends(&lines, name)) {
            None => format!("{name} –"),
            Some((first, None)) => format!("{name} {first:.4}"),
            Some((first, Some(last))) => format!("{name} {first:.4} → {last:.4}"),
        }
    });
    Ok(words.collect::<Vec<_>>().join("\n"))
}

/// Returns the mean reward, or the mean of a component, of the evaluations before and after
/// training.
fn evaluated(comparison: &Comparison, metric: &str) -> Option<(f64, f64)> {
    let component = metric.strip_prefix("rewards/").and_then(|name| name.strip_suffix("/mean"));
    let measure = match component {
        Some(name) => comparison.parts.iter().find(|part| part.name == name),
        None => comparison.reward.as_ref().filter(|_| metric == "reward"),
    };
    measure?.before.zip(measure?.after)
}

/// Number of steps at each end that are averaged, if the run has twice as many.
const AVERAGED: usize = 5;

/// Returns the value of a metric at the start of a run and, if there are several values, at its
/// end. Validations are compared with that of the kept model. Values of steps are averaged, because
/// each step has other completions.
fn ends(lines: &[Map<String, Value>], name: &str) -> Option<(f64, Option<f64>)> {
    let measured = lines.iter().filter_map(|line| Some((line, line.get(name)?.as_f64()?)));
    let measured: Vec<(&Map<String, Value>, f64)> = measured.collect();
    let is_best = |line: &Map<String, Value>| line.get("best") == Some(&Value::Bool(true));
    let (first, last) = (measured.first()?.1, measured.last()?.1);
    if let Some((_, kept)) = measured.iter().rfind(|(line, _)| is_best(line)) {
        return Some((first, (measured.len() > 1).then_some(*kept)));
    }
    let averaged = (measured.len() / 10).max(AVERAGED);
    if measured.len() < 2 * averaged {
        return Some((first, (measured.len() > 1).then_some(last)));
    }
    let mean = |part: &[(&Map<String, Value>, f64)]| {
        part.iter().map(|(_, value)| value).sum::<f64>() / part.len() as f64
    };
    let (start, end) = (&measured[..averaged], &measured[measured.len() - averaged..]);
    Some((mean(start), Some(mean(end))))
}

/// Formats a duration in minutes and seconds, e.g. `0:07` or `12:30`.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use grpo_run::Measure;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_loss_of_a_stage_is_that_of_the_model_that_was_kept() {
        let line = |loss: f64, best: bool| {
            json!({"eval_loss": loss, "best": best}).as_object().unwrap().clone()
        };
        let lines = [line(3.0, true), line(2.0, true), line(2.5, false)];
        assert_eq!(ends(&lines, "eval_loss"), Some((3.0, Some(2.0))));
        assert_eq!(ends(&lines[..1], "eval_loss"), Some((3.0, None)));
        assert_eq!(ends(&lines, "reward"), None);
        // Training rewards have no `best` mark, so the last one is used.
        let reward = |reward: f64| json!({"reward": reward}).as_object().unwrap().clone();
        assert_eq!(
            ends(&[reward(0.5), reward(0.7), reward(0.6)], "reward"),
            Some((0.5, Some(0.6)))
        );
        // Single batches scatter, so the first and the last five steps are averaged.
        let rewards = [0.9, 0.1, 0.1, 0.1, 0.3, 0.5, 0.5, 0.5, 0.5, 0.0].map(reward);
        let (first, last) = ends(&rewards, "reward").unwrap();
        assert!((first - 0.3).abs() < 1e-12 && (last.unwrap() - 0.4).abs() < 1e-12);
    }

    #[test]
    fn evaluations_are_compared_if_there_are_any() {
        let measure = |name: &str, before: f64, after: f64| Measure {
            name: name.to_owned(),
            before: Some(before),
            after: Some(after),
            error: None,
            diversity: None,
        };
        let comparison = Comparison {
            reward: Some(measure("mean reward", 0.5, 0.75)),
            parts: vec![measure("recovery", 0.5, 0.25)],
            ..Comparison::default()
        };
        assert_eq!(evaluated(&comparison, "reward"), Some((0.5, 0.75)));
        assert_eq!(evaluated(&comparison, "rewards/recovery/mean"), Some((0.5, 0.25)));
        for other in ["rewards/judge/mean", "kl", "reward_std"] {
            assert_eq!(evaluated(&comparison, other), None, "{other}");
        }
    }
}
