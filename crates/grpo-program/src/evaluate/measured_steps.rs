//! Metrics over the steps of one or several runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_run::RunFolder;
use grpo_task::eval::{Generations, Suite, SuiteOptions};
use serde::Serialize;

/// Metrics of the completions of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    /// Index of the run.
    pub(crate) phase: usize,
    /// Step since the beginning of the first run.
    pub(crate) step: u64,
    #[serde(flatten)]
    pub(crate) metrics: BTreeMap<String, f64>,
}

/// Metrics over the steps of runs that continue one another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dynamics {
    pub(crate) snapshots: Vec<Snapshot>,
    /// Last step of each run.
    pub(crate) ends: Vec<u64>,
}

/// Metrics of supervised runs, which evaluate samples of held-out prompts.
const SUPERVISED: [(&str, &str); 6] = [
    ("eval_self_bleu", "self_bleu"),
    ("eval_distinct_1", "distinct_1"),
    ("eval_distinct_2", "distinct_2"),
    ("eval_distinct_3", "distinct_3"),
    ("eval_semantic_diversity", "semantic_diversity"),
    ("eval_output_entropy", "output_entropy"),
];

impl Dynamics {
    /// Measures the recorded completions of each run. The steps of a run follow those of the
    /// previous one. Of a GRPO run, steps are skipped so that `every` steps or more lie between two
    /// snapshots.
    ///
    /// # Errors
    /// Returns an error if a run cannot be read or has nothing to measure.
    pub(crate) fn of_runs(runs: &[PathBuf], suite: &Suite, every: u64) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for (phase, path) in runs.iter().enumerate() {
            let before = all.ends.last().copied().unwrap_or(0);
            let (steps, last) = of_run(path, suite, every)?;
            let snapshot = |(step, metrics)| Snapshot { phase, step: before + step, metrics };
            all.snapshots.extend(steps.into_iter().map(snapshot));
            all.ends.push(before + last);
        }
        Ok(all)
    }

    /// Returns the values of each metric by step.
    pub(crate) fn by_metric(&self) -> BTreeMap<String, Vec<(u64, f64)>> {
        let mut all: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
        for snapshot in &self.snapshots {
            for (name, value) in &snapshot.metrics {
                all.entry(name.clone()).or_default().push((snapshot.step, *value));
            }
        }
        all
    }
}

type Steps = Vec<(u64, BTreeMap<String, f64>)>;

/// Returns the metrics by step, and the last step of the run.
fn of_run(path: &Path, suite: &Suite, every: u64) -> anyhow::Result<(Steps, u64)> {
    let run = RunFolder::open(path)?;
    let recorded = run.completion_steps()?;
    let lines = run.read_metrics()?;
    let step_of = |line: &serde_json::Map<String, serde_json::Value>| {
        ["step", "train_step"].iter().find_map(|key| line.get(*key)?.as_u64())
    };
    let last = lines.iter().filter_map(step_of).max().unwrap_or(0);
    let mut steps = Vec::new();
    for line in lines.iter().filter(|_| recorded.is_empty()) {
        let value =
            |(key, name): &(&str, &str)| Some(((*name).to_owned(), line.get(*key)?.as_f64()?));
        let metrics: BTreeMap<String, f64> = SUPERVISED.iter().filter_map(value).collect();
        if let (Some(step), false) = (step_of(line), metrics.is_empty()) {
            steps.push((step, metrics));
        }
    }
    let mut next = 0;
    for step in recorded {
        if step < next {
            continue;
        }
        next = step.saturating_add(every);
        let generations = Generations::of_step(&run, step, &suite.kept())?;
        let measured = (suite.measure)(&generations, &SuiteOptions::default())
            .with_context(|| format!("step {step} of {}", path.display()))?;
        let is_kept = |name: &String| suite.dynamics.contains(&name.as_str());
        let metrics = measured.metrics.into_iter().filter(|(name, _)| is_kept(name));
        steps.push((step, metrics.collect()));
    }
    anyhow::ensure!(
        !steps.is_empty(),
        "{} has neither recorded completions nor evaluations with samples; train with a smaller save.completions_every, or with [pretrain.eval]",
        path.display()
    );
    Ok((steps, last))
}
