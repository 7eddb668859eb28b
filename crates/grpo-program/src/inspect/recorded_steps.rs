//! Recorded steps of a run, which are compared with repeated ones.

use std::collections::BTreeMap;

use grpo_run::{LedgerStep, RunDevices, RunFolder};
use grpo_task::recorded_device::difference;
use grpo_train::Metrics;
use serde_json::{Map, Value};

/// Metrics and ledger lines of all steps after a given step.
#[derive(Default)]
pub(crate) struct RecordedSteps {
    metrics: BTreeMap<u64, Map<String, Value>>,
    ledger: BTreeMap<u64, LedgerStep>,
    /// The devices of the run. `None` in an empty list.
    devices: Option<RunDevices>,
}

impl RecordedSteps {
    /// Reads the steps after `step`. Returns an empty list if `metrics.jsonl` does not exist.
    pub(crate) fn after(run: &RunFolder, step: u64) -> anyhow::Result<Self> {
        let lines = match run.has("metrics.jsonl")? {
            true => run.read_metrics()?,
            false => Vec::new(),
        };
        let of_step = |line: Map<String, Value>| Some((line.get("step")?.as_u64()?, line));
        let lines = lines.into_iter().filter_map(of_step);
        let ledger = run.read_ledger()?.unwrap_or_default().into_iter();
        Ok(Self {
            devices: Some(RunDevices::of(&run.read_info()?, &run.read_events()?)),
            metrics: lines.filter(|(of, _)| *of > step).collect(),
            ledger: ledger.map(|line| (line.step, line)).filter(|(of, _)| *of > step).collect(),
        })
    }

    /// Returns the number of the last recorded step.
    pub(crate) fn last(&self) -> Option<u64> {
        self.metrics.keys().next_back().copied()
    }

    /// Removes the steps whose `metrics.jsonl` lines are in `lines`.
    pub(crate) fn forget(&mut self, lines: &[Map<String, Value>]) {
        self.metrics.retain(|_, line| !lines.contains(line));
    }

    /// Compares a repeated step with the recorded one: metrics, weight hashes and completion
    /// hashes. Returns false if the step was not recorded.
    ///
    /// # Errors
    /// Returns an error that describes the first difference.
    pub(crate) fn check(&self, metrics: &Metrics, ledger: &LedgerStep) -> Result<bool, String> {
        let step = ledger.step;
        let (Some(line), Some(recorded)) = (self.metrics.get(&step), self.ledger.get(&step)) else {
            return Ok(false);
        };
        // Serializes and parses the metrics so that equal numbers compare equal.
        let now = serde_json::to_string(metrics).expect("metrics are JSON");
        let now: Map<String, Value> =
            serde_json::from_str(&now).expect("metrics serialize to an object");
        for (name, value) in now.iter().filter(|(name, _)| !metrics.is_of_machine(name)) {
            let recorded = line.get(name).unwrap_or(&Value::Null);
            if recorded != value {
                let why = self.other_device(step).unwrap_or_else(|| {
                    "; this program or machine computes different results from the one that created the run".to_owned()
                });
                return Err(format!(
                    "step {step} does not match the record: `{name}` was {recorded} and is now {value}{why}"
                ));
            }
        }
        // Hashes of record files depend on timings. The audit checks them.
        let recorded = LedgerStep { recorded: None, previous: None, ..recorded.clone() };
        match recorded == *ledger {
            false => Err(format!(
                "step {step} does not match the record: its metrics are equal, but the hashes of its weights or completions in ledger.jsonl differ{}",
                self.other_device(step).unwrap_or_default()
            )),
            true => Ok(true),
        }
    }

    /// Says that a step was computed on another device than that of this process, for the end of a
    /// sentence.
    fn other_device(&self, step: u64) -> Option<String> {
        let why = difference(self.devices.as_ref()?.of_step(step))?;
        Some(format!("; it was computed {why}"))
    }
}
