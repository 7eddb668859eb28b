//! Rows of the final summary table.

use std::collections::BTreeSet;
use std::time::Duration;

use grpo_run::RunFolder;
use serde_json::{Map, Value};

use crate::config::nearest;
use crate::output::say_aside;

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
    Ok([stage.name.clone(), word.to_owned(), time, place, result(stage)?])
}

/// Formats the first value and that of the kept model for each metric listed for the stage.
fn result(stage: &Stage) -> anyhow::Result<String> {
    let Some(config) = stage.config.as_ref().filter(|_| !stage.metrics.is_empty()) else {
        return Ok(String::new());
    };
    let run = RunFolder::open(&config.run)?;
    let lines = run.read_metrics()?;
    let known: BTreeSet<&String> = lines.iter().flat_map(Map::keys).collect();
    let known: Vec<String> = known.into_iter().cloned().collect();
    for name in stage.metrics.iter().filter(|name| !known.contains(name)) {
        let hint = nearest(&known, name);
        let hint = hint.map_or(String::new(), |nearest| format!("; did you mean '{nearest}'?"));
        say_aside(format_args!(
            "{:<12} warning: {} has no metric '{name}'{hint}",
            stage.name,
            run.metrics_path().display()
        ));
    }
    let words = stage.metrics.iter().map(|name| match ends(&lines, name) {
        None => format!("{name} –"),
        Some((first, None)) => format!("{name} {first:.4}"),
        Some((first, Some(last))) => format!("{name} {first:.4} → {last:.4}"),
    });
    Ok(words.collect::<Vec<_>>().join("\n"))
}

/// Returns the first value of a metric and, if there are several, the value for the model that was
/// kept.
fn ends(lines: &[Map<String, Value>], name: &str) -> Option<(f64, Option<f64>)> {
    let measured = lines.iter().filter_map(|line| Some((line, line.get(name)?.as_f64()?)));
    let measured: Vec<(&Map<String, Value>, f64)> = measured.collect();
    let is_best = |line: &Map<String, Value>| line.get("best") == Some(&Value::Bool(true));
    let kept = measured.iter().rfind(|(line, _)| is_best(line)).or(measured.last())?.1;
    let first = measured.first()?.1;
    Some((first, (measured.len() > 1).then_some(kept)))
}

/// Formats a duration in minutes and seconds, e.g. `0:07` or `12:30`.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
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
    }
}
