//! Results of the PMO benchmark.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use grpo_chem::pmo::Budget;
use grpo_data::number_cell;
use grpo_data::statistics::{mean, sample_variance};
use grpo_run::{EventKind, RunFolder};
use grpo_task::checkpoint::archive_of;
use grpo_task::training_runs::TrainedRun;
use serde::Deserialize;

/// Number of oracle calls in the benchmark.
pub(super) const CALLS: usize = 10_000;

/// Published results: the mean area under the curve per oracle, from Gao et al. 2022 (REINVENT PMO,
/// Graph GA, GP BO), Kim et al. 2024 (Genetic GFN, reruns), Lee et al. 2024 (f-RAG) and Lee et al. 2025
/// (GenMol). The last two choose molecules or fragments of ZINC before the first oracle call.
const PUBLISHED: &str = include_str!("published.csv");

/// Results of all oracles and seeds.
pub(super) struct Results {
    /// Number of oracle calls per run.
    budget: usize,
    rows: Vec<SeedResult>,
}

/// The result of an oracle and a seed.
struct SeedResult {
    oracle: String,
    seed: u64,
    /// Oracle calls, the area under the curve, and the mean of the ten best scores after every 100
    /// calls.
    budget: Budget,
    seconds: f64,
}

impl Results {
    /// Reads the results of runs that were trained with at most `budget` oracle calls.
    pub(super) fn of(runs: &[TrainedRun], budget: usize) -> anyhow::Result<Self> {
        let rows = runs.iter().map(|run| SeedResult::of(run, budget));
        Ok(Self { budget, rows: rows.collect::<anyhow::Result<_>>()? })
    }

    /// Returns a row per oracle and seed.
    pub(super) fn csv(&self) -> String {
        let mut text = String::from("oracle,seed,auc,top_10,calls,seconds\n");
        for row in &self.rows {
            let SeedResult { oracle, seed, budget, seconds } = row;
            let [auc, top_10] = [budget.auc(), budget.mean_of_best()].map(number_cell);
            let calls = budget.calls();
            text += &format!("{oracle},{seed},{auc},{top_10},{calls},{seconds:.1}\n");
        }
        text
    }

    /// Returns the mean of the ten best scores after every 100 calls.
    pub(super) fn curves(&self) -> String {
        let mut text = String::from("oracle,seed,calls,top_10\n");
        for row in &self.rows {
            for (index, top_10) in row.budget.curve().iter().enumerate() {
                let calls = 100 * (index + 1);
                let top_10 = number_cell(*top_10);
                text += &format!("{},{},{calls},{top_10}\n", row.oracle, row.seed);
            }
        }
        text
    }

    /// Returns a table with published results for comparison. Deviations are those between seeds.
    pub(super) fn markdown(&self) -> anyhow::Result<String> {
        let published = published()?;
        let names = published.names.iter();
        let header: String = names.clone().map(|name| format!(" {name} |")).collect();
        let rule: String = names.map(|_| "---|").collect();
        let mut text = format!(
            "| oracle | grpo |{header} best ten | minutes | calls/s |\n|---|---|{rule}---|---|---|\n"
        );
        let mut sums = vec![0.0; published.names.len() + 1];
        let mut of_seeds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let by_oracle = self.rows.chunk_by(|a, b| a.oracle == b.oracle);
        let (mut oracles, mut are_published) = (0, true);
        for rows in by_oracle {
            oracles += 1;
            let aucs: Vec<f64> = rows.iter().map(|row| row.budget.auc()).collect();
            let calls: usize = rows.iter().map(|row| row.budget.calls()).sum();
            let seconds: f64 = rows.iter().map(|row| row.seconds).sum();
            sums[0] += mean(&aucs);
            for (row, auc) in rows.iter().zip(&aucs) {
                of_seeds.entry(row.seed).or_default().push(*auc);
            }
            text +=
                &format!("| {} | {} |", rows[0].oracle, with_spread(mean(&aucs), spread(&aucs)));
            let others = published.rows.iter().find(|row| row.0 == rows[0].oracle);
            are_published &= others.is_some();
            for (place, sum) in sums[1..].iter_mut().enumerate() {
                let value = others.map(|row| row.1[place]);
                *sum += value.unwrap_or(0.0);
                text += &value.map_or_else(|| " – |".to_owned(), |value| format!(" {value:.3} |"));
            }
            let best = rows.iter().map(|row| row.budget.mean_of_best());
            let (best, minutes) = (best.collect::<Vec<f64>>(), seconds / 60.0 / rows.len() as f64);
            let speed = calls as f64 / seconds.max(1e-9);
            text += &format!(" {:.3} | {minutes:.1} | {speed:.0} |\n", mean(&best));
        }
        if oracles > 1 && are_published {
            // All seeds have the same oracles.
            let own: Vec<f64> = of_seeds.values().map(|aucs| aucs.iter().sum()).collect();
            let others: String = sums[1..].iter().map(|sum| format!(" {sum:.3} |")).collect();
            text += &format!(
                "| **sum of {oracles}** | {} |{others} | | |\n",
                with_spread(sums[0], spread(&own))
            );
        }
        Ok(format!("{}\n\n{text}{}", self.caption(), self.early_ends()))
    }

    fn caption(&self) -> String {
        let calls = self.budget;
        let published = match calls == CALLS {
            true => String::new(),
            false => format!(" Published results are those of {CALLS} calls."),
        };
        format!(
            "Area under the curve of the mean of the ten best scores, {calls} oracle calls; ± is the standard deviation between seeds.{published}"
        )
    }

    /// Lists runs that did not use the budget.
    fn early_ends(&self) -> String {
        let is_early = |row: &&SeedResult| row.budget.calls() < self.budget;
        let line = |row: &SeedResult| {
            let SeedResult { oracle, seed, budget, .. } = row;
            let calls = budget.calls();
            format!(
                "- {oracle}, seed {seed}: the run ended after {calls} calls (increase train.steps); the rest of its curve is its last value\n"
            )
        };
        let lines: String = self.rows.iter().filter(is_early).map(line).collect();
        if lines.is_empty() { lines } else { format!("\n{lines}") }
    }
}

/// Returns the sample standard deviation of at least two values.
fn spread(values: &[f64]) -> Option<f64> {
    (values.len() > 1).then(|| sample_variance(values).sqrt())
}

fn with_spread(value: f64, spread: Option<f64>) -> String {
    match spread {
        Some(spread) => format!("{value:.3} ± {spread:.3}"),
        None => format!("{value:.3}"),
    }
}

impl SeedResult {
    fn of(run: &TrainedRun, limit: usize) -> anyhow::Result<Self> {
        let folder = RunFolder::open(&run.folder)?;
        let events = folder.read_events()?;
        ensure!(
            !events.iter().any(|event| matches!(event.what, EventKind::RolledBack { .. })),
            "{}: the run rolled back, so the oracle was called more often than the budget allows; remove guards with action = \"roll_back\" from the configuration",
            run.folder.display()
        );
        let mut budget = Budget::new(limit);
        for call in archive_of(&folder)? {
            budget.record(&call.text, call.reward())?;
        }
        let steps = folder.read_metrics()?;
        let times = steps.iter().filter_map(|step| step.get("step_time")?.as_f64());
        let (oracle, seed, seconds) = (run.variant.clone(), run.seed, times.sum());
        Ok(Self { oracle, seed, budget, seconds })
    }
}

/// Published results.
struct Published {
    names: Vec<String>,
    /// Oracles with their values.
    rows: Vec<(String, Vec<f64>)>,
}

fn published() -> anyhow::Result<Published> {
    #[derive(Deserialize)]
    struct Row(String, Vec<f64>);
    let mut reader = csv::Reader::from_reader(PUBLISHED.as_bytes());
    let names = reader.headers()?.iter().skip(1).map(str::to_owned).collect();
    let rows = reader.deserialize().map(|row| row.map(|Row(oracle, values)| (oracle, values)));
    let rows = rows.collect::<Result<_, _>>().context("the published results are well-formed")?;
    Ok(Published { names, rows })
}

#[cfg(test)]
mod tests {
    use grpo_chem::pmo::Oracle;

    use super::*;

    fn result(oracle: &str, seed: u64, score: f64) -> SeedResult {
        let mut budget = Budget::new(200);
        for call in 0..200 {
            budget.record(&call.to_string(), score).unwrap();
        }
        SeedResult { oracle: oracle.to_owned(), seed, budget, seconds: 10.0 }
    }

    #[test]
    fn every_oracle_has_published_results() {
        let published = published().unwrap();
        let oracles: Vec<&str> = published.rows.iter().map(|row| row.0.as_str()).collect();
        let mut all: Vec<&str> = Oracle::ALL.iter().map(|oracle| oracle.name()).collect();
        all.sort_unstable();
        assert_eq!(oracles, all);
        // The sums of 20 tasks that the papers' tables have.
        let sum = |name: &str| {
            let place = published.names.iter().position(|other| other == name).unwrap();
            published.rows.iter().map(|row| row.1[place]).sum::<f64>()
        };
        for (name, expected) in
            [("REINVENT rerun", 12.561), ("Genetic GFN", 13.594), ("GenMol", 15.475)]
        {
            assert!((sum(name) - expected).abs() < 0.0015, "{name} {}", sum(name));
        }
    }

    /// Areas and deviations computed by hand: the first point of a curve is at 100 calls.
    #[test]
    fn seeds_are_averaged_and_oracles_summed() {
        let rows = vec![
            result("qed", 1, 0.8),
            result("qed", 2, 0.4),
            result("median1", 1, 0.4),
            result("median1", 2, 0.4),
        ];
        let table = Results { budget: 200, rows }.markdown().unwrap();
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert!(
            table.contains("200 oracle calls") && table.contains("those of 10000 calls"),
            "{table}"
        );
        assert_eq!(lines.len(), 5);
        assert!(lines[2].starts_with("| qed | 0.450 ± 0.212 | 0.942 |"), "{table}");
        assert!(lines[2].ends_with("| 20 |"), "{table}");
        assert!(lines[3].starts_with("| median1 | 0.300 ± 0.000 | 0.398 |"), "{table}");
        assert!(lines[4].starts_with("| **sum of 2** | 0.750 ± 0.212 | 1.340 |"), "{table}");
        let table = Results { budget: 201, rows: vec![result("qed", 1, 0.8)] }.markdown().unwrap();
        assert!(table.contains("\n\n- qed, seed 1: the run ended after 200 calls"), "{table}");
    }
}
