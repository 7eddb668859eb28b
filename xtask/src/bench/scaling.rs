//! The `--scaling` option: how the cost of a token depends on threads, batch, length and model.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::report::{QUIET, median, peak, write};
use super::surroundings::{Busy, Surroundings, cores};
use super::table::{markdown, number};
use super::worker::{Answer, Worker, listed, ours};
use crate::process;

/// A point as listed by `grpo bench --list-scaling`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Point {
    name: String,
    axis: String,
    kind: String,
    model: String,
    parameters: u64,
    completions: u64,
    tokens: u64,
}

impl Point {
    /// Returns whether both points are in the same line of a chart.
    fn shares_axis(&self, other: &Self) -> bool {
        (&self.axis, &self.kind) == (&other.axis, &other.kind)
    }
}

/// The results of a point.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    point: Point,
    threads: usize,
    /// Median of the tokens per second.
    rate: Option<f64>,
    peak_bytes: Option<u64>,
    /// Number of cores that other processes kept busy while the axis was measured.
    other_cores: Option<f64>,
    repetitions: Vec<Answer>,
}

/// Memory per token along an axis.
#[derive(Serialize)]
struct Memory {
    axis: String,
    kind: String,
    bytes_per_token: f64,
}

/// Measures all points with `program` and writes the results to `json`, and charts next to it. If a
/// point fails, the results before it are kept.
pub(super) fn run(root: &Path, program: &Path, repeat: u32, json: &Path) -> Result<()> {
    let surroundings = Surroundings::read(root, None);
    let listed = listed(program, "--list-scaling")?;
    let (points, done) = collect(&listed, |axis| measure(program, axis, repeat));
    if points.is_empty() {
        return done;
    }
    let memory: Vec<Memory> = by_axis(&points).filter_map(memory).collect();
    let results = json!({"surroundings": surroundings, "points": points, "memory": memory});
    write(json, &results)?;
    process::run(ours(Command::new(program)).arg("--draw").arg(json))?;
    print!("\n{}\n\n{}", surroundings.line(), table(&points, &memory));
    println!("Written to {} and the charts next to it", json.display());
    done
}

/// Measures one axis after another, and returns the results before the first error.
fn collect(
    points: &[Point],
    mut measure: impl FnMut(&[Point]) -> Result<Vec<Measured>>,
) -> (Vec<Measured>, Result<()>) {
    let mut all = Vec::new();
    let done = points.chunk_by(Point::shares_axis).try_for_each(|axis| {
        all.extend(measure(axis)?);
        Ok(())
    });
    (all, done)
}

fn by_axis(points: &[Measured]) -> impl Iterator<Item = &[Measured]> {
    points.chunk_by(|a, b| a.point.shares_axis(&b.point))
}

/// Measures the points of an axis in turn, so that disturbances affect all of them.
fn measure(program: &Path, points: &[Point], repeat: u32) -> Result<Vec<Measured>> {
    let all = cores();
    let mut workers: Vec<(&Point, usize, Worker)> = Vec::new();
    for point in points {
        for threads in threads(&point.axis, all) {
            eprintln!("{}, threads: {threads}", point.name);
            let worker = Worker::start(ours(Command::new(program)), &point.name, threads, None)?;
            workers.push((point, threads, worker));
        }
    }
    let ids: Vec<u32> = workers.iter().flat_map(|(.., worker)| worker.ids()).collect();
    let before = Busy::now(&ids);
    let mut answers: Vec<Vec<Answer>> = vec![Vec::new(); workers.len()];
    for _ in 0..repeat {
        for ((.., worker), answers) in workers.iter_mut().zip(&mut answers) {
            answers.push(worker.run()?);
        }
    }
    let other_cores = before.zip(Busy::now(&ids)).map(|(before, now)| before.others_until(now));
    let measured = workers.iter().zip(answers).map(|((point, threads, _), repetitions)| Measured {
        point: (*point).clone(),
        threads: *threads,
        rate: median(repetitions.iter().map(Answer::rate)),
        peak_bytes: peak(&repetitions),
        other_cores,
        repetitions,
    });
    Ok(measured.collect())
}

/// Returns the numbers of threads of a point: 1, 2 and all cores, or only all cores.
fn threads(axis: &str, all: usize) -> Vec<usize> {
    if axis != "threads" {
        return vec![all];
    }
    let mut threads = vec![1, 2, all];
    threads.retain(|threads| *threads <= all);
    threads.dedup();
    threads
}

/// Formats the results as a Markdown table, followed by the memory per token and by warnings.
fn table(points: &[Measured], memory: &[Memory]) -> String {
    const HEAD: [&str; 8] = [
        "axis",
        "work",
        "model",
        "completions × tokens",
        "threads",
        "tokens/s",
        "µs per token",
        "peak MiB",
    ];
    let rows: Vec<Vec<String>> = points.iter().map(Measured::row).collect();
    let mut text = markdown(&HEAD, &rows) + "\n";
    for Memory { axis, kind, bytes_per_token } in memory {
        text += &format!("{kind}, {axis}: {} KiB per token\n", number(bytes_per_token / 1024.0));
    }
    for of in by_axis(points) {
        let Measured { point, other_cores, .. } = &of[0];
        if let Some(cores) = other_cores.filter(|cores| *cores > QUIET) {
            let (kind, axis) = (&point.kind, &point.axis);
            text += &format!(
                "{kind}, {axis}: other programs kept {cores:.1} cores busy, so the rates are too low\n"
            );
        }
    }
    text
}

/// Fits a line through the peak memory over the number of tokens, and returns its slope. Returns
/// `None` if the number of tokens does not differ, or if memory does not grow.
fn memory(of: &[Measured]) -> Option<Memory> {
    let tokens = |of: &Measured| (of.point.completions * of.point.tokens) as f64;
    let of_same_model = of.iter().all(|other| other.point.model == of[0].point.model);
    let points = of.iter().map(|of| Some((tokens(of), of.peak_bytes? as f64)));
    let points = points.collect::<Option<Vec<(f64, f64)>>>().filter(|_| of_same_model)?;
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>()
        / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
    let Point { axis, kind, .. } = &of[0].point;
    (slope.is_finite() && slope > 0.0).then(|| Memory {
        axis: axis.clone(),
        kind: kind.clone(),
        bytes_per_token: slope,
    })
}

impl Measured {
    fn row(&self) -> Vec<String> {
        let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), number);
        let Point { axis, kind, model, completions, tokens, .. } = &self.point;
        vec![
            axis.clone(),
            kind.clone(),
            model.clone(),
            format!("{completions} × {tokens}"),
            self.threads.to_string(),
            or_dash(self.rate),
            or_dash(self.rate.map(|rate| 1e6 / rate)),
            or_dash(self.peak_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One point of sampling.
    fn point(axis: &str, completions: u64, tokens: u64) -> Point {
        Point {
            name: format!("sampling-6.4M-{completions}x{tokens}"),
            axis: axis.into(),
            kind: "sampling".into(),
            model: "6.4M".into(),
            parameters: 6_386_688,
            completions,
            tokens,
        }
    }

    #[test]
    fn threads_of_a_point() {
        assert_eq!(threads("batch", 8), [8]);
        assert_eq!(threads("threads", 8), [1, 2, 8]);
        assert_eq!(threads("threads", 2), [1, 2]);
        assert_eq!(threads("threads", 1), [1]);
    }

    fn measured(axis: &str, completions: u64, mebibytes: u64, cores: f64) -> Measured {
        Measured {
            point: point(axis, completions, 48),
            threads: 2,
            rate: Some(4000.0),
            peak_bytes: Some(mebibytes << 20),
            other_cores: Some(cores),
            repetitions: Vec::new(),
        }
    }

    #[test]
    fn memory_per_token_is_a_slope() {
        let points = [
            measured("batch", 8, 100, 0.0),
            measured("batch", 40, 101, 0.0),
            measured("batch", 72, 103, 0.0),
            Measured { rate: None, peak_bytes: None, ..measured("threads", 8, 90, 0.5) },
        ];
        let memory: Vec<Memory> = by_axis(&points).filter_map(memory).collect();
        // 1.5 MiB more for every 32 × 48 tokens.
        assert_eq!(
            table(&points, &memory),
            "\
| axis | work | model | completions × tokens | threads | tokens/s | µs per token | peak MiB |
|---|---|---|---:|---:|---:|---:|---:|
| batch | sampling | 6.4M | 8 × 48 | 2 | 4,000 | 250 | 100 |
| batch | sampling | 6.4M | 40 × 48 | 2 | 4,000 | 250 | 101 |
| batch | sampling | 6.4M | 72 × 48 | 2 | 4,000 | 250 | 103 |
| threads | sampling | 6.4M | 8 × 48 | 2 | – | – | – |

sampling, batch: 1.00 KiB per token
sampling, threads: other programs kept 0.5 cores busy, so the rates are too low
"
        );
    }

    #[test]
    fn results_before_an_error_are_kept() {
        let points = ["batch", "batch", "tokens", "size"].map(|axis| point(axis, 8, 48));
        let mut seen = Vec::new();
        let (kept, done) = collect(&points, |axis| {
            seen.push(axis.len());
            anyhow::ensure!(axis[0].axis != "tokens", "not enough memory");
            Ok(axis.iter().map(|point| measured(&point.axis, 8, 100, 0.0)).collect())
        });
        assert_eq!(done.unwrap_err().to_string(), "not enough memory");
        assert_eq!((kept.len(), seen), (2, vec![2, 1]));
    }
}
