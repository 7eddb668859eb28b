//! Rows of the final table of stages.

use std::time::Duration;

use grpo_run::RunFolder;
use serde_json::{Map, Value};

use super::file::Stage;

/// Outcome of a stage.
pub(super) enum Outcome {
    Reused,
    Resumed(Duration),
    Done(Duration),
}

/// Returns the row of a finished stage.
pub(super) fn row(stage: &Stage, outcome: Outcome) -> anyhow::Result<[String; 5]> {
    let (word, time) = match outcome {
        Outcome::Reused => ("reused", String::new()),
        Outcome::Resumed(time) => ("resumed", minutes(time)),
        Outcome::Done(time) => ("done", minutes(time)),
    };
    let place = stage.place().display().to_string();
    Ok([stage.name.clone(), word.to_owned(), time, place, result(stage)?])
}

/// Returns the first and last value of each metric of the stage.
fn result(stage: &Stage) -> anyhow::Result<String> {
    let Some(config) = stage.config.as_ref().filter(|_| !stage.metrics.is_empty()) else {
        return Ok(String::new());
    };
    let lines = RunFolder::open(&config.run)?.read_metrics()?;
    let words = stage.metrics.iter().map(|name| match ends(&lines, name) {
        None => format!("{name} –"),
        Some((first, None)) => format!("{name} {first:.4}"),
        Some((first, Some(last))) => format!("{name} {first:.4} → {last:.4}"),
    });
    Ok(words.collect::<Vec<_>>().join("\n"))
}

/// The first value of a metric, and that of the model that the stage leaves, if it has several.
fn ends(lines: &[Map<String, Value>], name: &str) -> Option<(f64, Option<f64>)> {
    let measured = lines.iter().filter_map(|line| Some((line, line.get(name)?.as_f64()?)));
    let measured: Vec<(&Map<String, Value>, f64)> = measured.collect();
    let is_best = |line: &Map<String, Value>| line.get("best") == Some(&Value::Bool(true));
    let kept = measured.iter().rfind(|(line, _)| is_best(line)).or(measured.last())?.1;
    let first = measured.first()?.1;
    Some((first, (measured.len() > 1).then_some(kept)))
}

/// Formats minutes and seconds, as `0:07` or `12:30`.
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
        // Rewards of steps are not marked, and the last one counts.
        let reward = |reward: f64| json!({"reward": reward}).as_object().unwrap().clone();
        assert_eq!(
            ends(&[reward(0.5), reward(0.7), reward(0.6)], "reward"),
            Some((0.5, Some(0.6)))
        );
    }
}
