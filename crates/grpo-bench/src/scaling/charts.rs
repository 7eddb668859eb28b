//! Charts of the results of `cargo xtask bench --scaling`.
#![expect(clippy::disallowed_methods, reason = "a tool for developers")]

use std::path::Path;

use anyhow::Context;
use grpo_data::regular_file;
use grpo_report::LineChart;
use serde::Deserialize;

use super::{Axis, Kind};

/// The results, as `cargo xtask bench --scaling` writes them.
#[derive(Deserialize)]
struct Results {
    points: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    axis: Axis,
    kind: Kind,
    model: String,
    parameters: u64,
    completions: u64,
    tokens: u64,
    threads: u64,
    /// Tokens per second.
    rate: Option<f64>,
}

/// Reads results and writes a chart for each axis next to them: `scaling.json` is drawn as
/// `scaling-threads.svg` and so on.
///
/// # Errors
/// Returns an error if the file cannot be read, is not a results file, or if a chart cannot be
/// written.
pub fn draw(path: &Path) -> anyhow::Result<()> {
    let text = regular_file::read_to_string(path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let results: Results = serde_json::from_str(&text).with_context(|| {
        format!("{} is not a results file of `cargo xtask bench --scaling`", path.display())
    })?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    for axis in Axis::ALL {
        let to = path.with_file_name(format!("{stem}-{}.svg", axis.name()));
        std::fs::write(&to, chart(&results.points, axis).svg())
            .with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// Draws the points of an axis. Distances along the axis are logarithmic.
fn chart(points: &[Measured], axis: Axis) -> LineChart {
    let [title, across, up] = match axis {
        Axis::Threads => ["Throughput by threads, 6.4M, 64 × 48 tokens", "threads", "tokens/s"],
        Axis::Batch => ["Cost by batch, 6.4M, 48 tokens each", "completions", "µs per token"],
        Axis::Tokens => {
            ["Cost by length, 6.4M, 16 completions", "tokens per completion", "µs per token"]
        }
        Axis::Size => ["Cost by model, 16 × 64 tokens", "parameters", "µs per token per million"],
    };
    let here = || points.iter().filter(|point| point.axis == axis);
    let line = |kind: Kind| {
        let of_kind = here().filter(|point| point.kind == kind);
        of_kind.filter_map(|point| Some((point.at().ln(), point.value()?))).collect::<Vec<_>>()
    };
    let labels = here().map(|point| (point.at().ln(), point.label())).collect();
    LineChart {
        title: title.to_owned(),
        axes: [format!("{across} (logarithmic)"), up.to_owned()],
        labels,
        lines: Kind::ALL.map(|kind| (kind.name().to_owned(), line(kind))).into(),
    }
}

impl Measured {
    /// Returns the position on the axis.
    fn at(&self) -> f64 {
        let at = match self.axis {
            Axis::Threads => self.threads,
            Axis::Batch => self.completions,
            Axis::Tokens => self.tokens,
            Axis::Size => self.parameters,
        };
        at as f64
    }

    fn label(&self) -> String {
        match self.axis {
            Axis::Size => self.model.clone(),
            Axis::Threads | Axis::Batch | Axis::Tokens => format!("{}", self.at()),
        }
    }

    fn value(&self) -> Option<f64> {
        let rate = self.rate?;
        Some(match self.axis {
            Axis::Threads => rate,
            Axis::Batch | Axis::Tokens => 1e6 / rate,
            Axis::Size => 1e12 / rate / self.parameters as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(axis: Axis, kind: Kind, tokens: u64, rate: f64) -> Measured {
        Measured {
            axis,
            kind,
            model: "0.6B".into(),
            parameters: 500_000_000,
            completions: 16,
            tokens,
            threads: 2,
            rate: Some(rate),
        }
    }

    #[test]
    fn costs_are_those_of_a_token() {
        let points = [
            measured(Axis::Tokens, Kind::Sampling, 64, 4000.0),
            measured(Axis::Tokens, Kind::Sampling, 128, 2000.0),
            measured(Axis::Tokens, Kind::Training, 64, 1000.0),
            measured(Axis::Size, Kind::Training, 64, 20.0),
        ];
        let by_length = chart(&points, Axis::Tokens);
        let (short, long) = (64f64.ln(), 128f64.ln());
        assert_eq!(by_length.lines[0], ("sampling".into(), vec![(short, 250.0), (long, 500.0)]));
        assert_eq!(by_length.lines[1], ("training".into(), vec![(short, 1000.0)]));
        // 50 ms per token of a model with 500 million parameters.
        let by_size = chart(&points, Axis::Size);
        assert_eq!(by_size.lines[1].1, [(500e6f64.ln(), 100.0)]);
        assert_eq!(by_size.labels, [(500e6f64.ln(), "0.6B".into())]);
    }
}
