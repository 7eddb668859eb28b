//! Rows of the final table of stages.

use std::time::Duration;

use grpo_run::RunFolder;
use serde_json::Value;

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
    let words = stage.metrics.iter().map(|name| {
        let values: Vec<f64> =
            lines.iter().filter_map(|line| line.get(name).and_then(Value::as_f64)).collect();
        match values[..] {
            [] => format!("{name} -"),
            [only] => format!("{name} {only:.4}"),
            [first, .., last] => format!("{name} {first:.4} → {last:.4}"),
        }
    });
    Ok(words.collect::<Vec<_>>().join("\n"))
}

/// Formats minutes and seconds, as `0:07` or `12:30`.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}
