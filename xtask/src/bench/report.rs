//! Benchmark results as JSON and as text.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::surroundings::Surroundings;
use super::table::{number, table};
use super::worker::Answer;

/// A case as listed by `grpo bench --list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    /// Unit in which the work of a repetition is counted.
    pub(super) unit: String,
    /// Whether the peer implements this case, too.
    pub(super) peer: bool,
    /// Name of the case whose rate is an upper bound for this one.
    pub(super) limit: Option<String>,
    /// Whether the case takes only seconds.
    pub(super) quick: bool,
    /// Whether the case takes too long on a CPU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) for_gpus: bool,
}

/// The results of all cases.
pub(super) struct Report {
    pub(super) surroundings: Surroundings,
    pub(super) threads: usize,
    /// `None` if the peer is not measured.
    pub(super) peer_threads: Option<usize>,
    /// Package versions of the peer.
    pub(super) peer: Option<String>,
    pub(super) load_before: Option<f64>,
    pub(super) load_after: Option<f64>,
    pub(super) cases: Vec<Measured>,
}

/// The results of a case, with one element per round.
pub(super) struct Measured {
    pub(super) case: Case,
    pub(super) ours: Vec<Answer>,
    /// Empty if the peer doesn't implement this case.
    pub(super) peer: Vec<Answer>,
    /// Results of the limiting case in the same rounds.
    pub(super) limit: Vec<Answer>,
    pub(super) peer_limit: Vec<Answer>,
    /// Number of cores kept busy by other processes.
    pub(super) others: Option<f64>,
}

impl Measured {
    pub(super) fn new(case: Case) -> Self {
        let none = Vec::new;
        Self { case, ours: none(), peer: none(), limit: none(), peer_limit: none(), others: None }
    }

    /// Returns our median rate.
    fn rate(&self) -> Option<f64> {
        median(self.ours.iter().map(Answer::rate))
    }

    fn peer_rate(&self) -> Option<f64> {
        median(self.peer.iter().map(Answer::rate))
    }

    /// Returns the median of the rate ratios of each round. Within a round, both sides run under
    /// the same conditions.
    fn ratio(&self) -> Option<f64> {
        median(self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours.rate() / peer.rate()))
    }

    /// Returns the rate of matrix products for whichever program is faster.
    fn limit_rate(&self) -> Option<f64> {
        let sides = [&self.limit, &self.peer_limit];
        let rates = sides.into_iter().filter_map(|side| median(side.iter().map(Answer::rate)));
        rates.max_by(f64::total_cmp)
    }

    /// Returns `rate` as a fraction of the limit rate.
    fn fraction(&self, rate: Option<f64>) -> Option<f64> {
        let first = self.ours.first()?;
        Some(rate? * first.flops? / first.work / self.limit_rate()?)
    }

    fn json(&self) -> Value {
        let side = |answers: &[Answer]| {
            (!answers.is_empty()).then(|| {
                json!({
                    "rate": median(answers.iter().map(Answer::rate)),
                    "peak_bytes": peak(answers),
                    "repetitions": answers,
                })
            })
        };
        json!({
            "name": self.case.name,
            "unit": self.case.unit,
            "other_cores": self.others,
            "ours": side(&self.ours),
            "peer": side(&self.peer),
            "ratio": self.ratio(),
            "limit_flops": self.limit_rate(),
            "fraction": self.fraction(self.rate()),
            "peer_fraction": self.fraction(self.peer_rate()),
            "limit": side(&self.limit),
            "peer_limit": side(&self.peer_limit),
        })
    }

    fn row(&self) -> Vec<String> {
        let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), number);
        let fraction = |rate| or_dash(self.fraction(rate));
        let mebibytes = |answers: &[Answer]| {
            or_dash(peak(answers).map(|bytes| bytes as f64 / f64::from(1 << 20)))
        };
        vec![
            self.case.name.clone(),
            format!("{}/s", self.case.unit),
            or_dash(self.rate()),
            or_dash(self.peer_rate()),
            or_dash(self.ratio()),
            fraction(self.rate()),
            fraction(self.peer_rate()),
            mebibytes(&self.ours),
            mebibytes(&self.peer),
            self.others.map_or("–".to_owned(), |cores| format!("{cores:.1}")),
        ]
    }
}

const HEAD: [&str; 10] =
    ["case", "unit", "ours", "peer", "ratio", "of limit", "peer's", "peak MiB", "peer's", "others"];

/// Number of cores that other processes may use before results are considered unreliable.
pub(super) const QUIET: f64 = 0.2;

impl Report {
    pub(super) fn json(&self) -> Value {
        json!({
            "surroundings": self.surroundings,
            "threads": self.threads,
            "peer_threads": self.peer_threads,
            "peer": self.peer,
            "load_before": self.load_before,
            "load_after": self.load_after,
            "cases": self.cases.iter().map(Measured::json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write(path, &self.json())
    }

    /// Formats the report for the terminal.
    pub(super) fn text(&self) -> String {
        let mut text = format!("\n{}\n", self.surroundings.line());
        text += &format!("threads: {}", self.threads);
        if let (Some(peer), Some(threads)) = (&self.peer, self.peer_threads) {
            text += &format!("; peer: {threads}, {peer}");
        }
        if let (Some(before), Some(after)) = (self.load_before, self.load_after) {
            text += &format!("; load {before} before, {after} after");
        }
        if self.cases.iter().any(|case| case.others.is_some_and(|cores| cores > QUIET)) {
            text += "\nOther programs were running (last column: cores they kept busy). The rates are too low, PyTorch's even more so than ours.";
        }
        let rows: Vec<Vec<String>> = self.cases.iter().map(Measured::row).collect();
        text += &format!("\n\n{}", table(&HEAD, &rows));
        text += &self.growth().map(|growth| growth + "\n").collect::<String>();
        text
    }

    /// Describes the growth of resident memory for cases that measure it.
    fn growth(&self) -> impl Iterator<Item = String> {
        self.cases.iter().filter_map(|case| {
            let details = case.ours.iter().filter_map(|answer| answer.details.as_ref());
            let growth = details.filter_map(|details| details["growth_bytes"].as_f64());
            let most = growth.max_by(f64::total_cmp)?;
            Some(format!(
                "Resident memory over the steps of `{}` grew by at most {} KiB after the first tenth.",
                case.case.name,
                number(most / 1024.0)
            ))
        })
    }
}

/// Writes results as JSON, and creates the folder if necessary.
pub(super) fn write(path: &Path, results: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(results).context("the results")? + "\n";
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(cannot)?;
    }
    std::fs::write(path, text).with_context(cannot)
}

/// Returns the median, or `None` if there are no numbers.
pub(super) fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    Some((numbers[last / 2] + numbers[last.div_ceil(2)]) / 2.0)
}

/// Returns the peak memory of the last repetition. It is also the highest, because peaks never
/// decrease.
pub(super) fn peak(answers: &[Answer]) -> Option<u64> {
    answers.iter().filter_map(|answer| answer.peak_bytes).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(seconds: f64, work: f64, flops: f64) -> Answer {
        Answer { seconds, work, flops: Some(flops), peak_bytes: Some(1 << 20), details: None }
    }

    fn measured(name: &str, seconds: &[f64]) -> Measured {
        let case = Case {
            name: name.into(),
            unit: "tokens".into(),
            peer: true,
            limit: None,
            quick: true,
            for_gpus: false,
        };
        let ours = seconds.iter().map(|seconds| answer(*seconds, 100.0, 1000.0)).collect();
        Measured { ours, ..Measured::new(case) }
    }

    fn report(cases: Vec<Measured>) -> Report {
        Report {
            surroundings: Surroundings::read(Path::new("/nowhere"), None),
            threads: 4,
            peer_threads: None,
            peer: None,
            load_before: None,
            load_after: None,
            cases,
        }
    }

    #[test]
    fn medians() {
        let check = |numbers: &[f64], expect| assert_eq!(median(numbers.iter().copied()), expect);
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0, 3.0], Some(3.0));
        check(&[4.0, 1.0, 3.0, 9.0], Some(3.5));
    }

    /// The median of the ratios differs from the ratio of the medians.
    #[test]
    fn a_ratio_is_of_one_round() {
        let mut case = measured("a", &[1.0, 2.0, 4.0]);
        case.peer = [2.0, 8.0, 4.0].map(|seconds| answer(seconds, 100.0, 0.0)).into();
        assert_eq!(case.rate(), Some(50.0));
        assert_eq!(case.peer_rate(), Some(25.0));
        assert_eq!(case.ratio(), Some(2.0));
        case.peer = [2.0, 8.0, 12.0].map(|seconds| answer(seconds, 100.0, 0.0)).into();
        assert_eq!(case.ratio(), Some(3.0));
    }

    /// With 1,000 operations per 100 units, 50 units per second are 500 operations per second. The
    /// limit is 1,000 for our side and 2,000 for the peer.
    #[test]
    fn a_fraction_is_of_the_better_limit() {
        let mut case = measured("a", &[2.0]);
        assert_eq!(case.fraction(case.rate()), None);
        case.limit = vec![answer(1.0, 1000.0, 1000.0)];
        assert_eq!(case.fraction(case.rate()), Some(0.5));
        case.peer_limit = vec![answer(1.0, 2000.0, 2000.0)];
        assert_eq!(case.fraction(case.rate()), Some(0.25));
    }

    #[test]
    fn growth_of_resident_memory() {
        let mut resident = measured("resident", &[1.0]);
        resident.ours[0].details = Some(json!({"growth_bytes": 20_480}));
        let report = report(vec![measured("step-small", &[1.0]), resident]);
        assert_eq!(
            report.growth().collect::<Vec<_>>(),
            [
                "Resident memory over the steps of `resident` grew by at most 20.0 KiB after the first tenth."
            ]
        );
    }

    #[test]
    fn the_file_has_every_repetition() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/cases.json");
        report(vec![measured("a", &[1.0, 4.0])]).write(&path).unwrap();
        let read: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let case = &read["cases"][0];
        assert_eq!(case["name"], "a");
        assert_eq!(case["ours"]["rate"], 62.5);
        assert_eq!(case["ours"]["repetitions"][1]["seconds"], 4.0);
        assert_eq!(case["peer"], Value::Null);
    }
}
