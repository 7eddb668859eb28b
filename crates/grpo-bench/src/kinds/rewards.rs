//! The reward of molecules, as training asks for it: a batch at a time, on the runner's thread.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{MoleculeReader, ReadOptions};
use grpo_rewards::{RewardConfig, RewardRunner, Sample};
use serde_json::json;

use crate::case::{Measured, Repetition};

pub(crate) struct Rewards {
    runner: RewardRunner,
    molecules: Vec<Sample>,
    /// Where the next batch begins.
    next: usize,
}

/// Molecules of a step of training, and steps of a repetition.
const BATCH: usize = 256;
const BATCHES: usize = 8;

impl Rewards {
    /// Of the bundled molecules.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/molecules/molecules.smi.gz");
        let reader = MoleculeReader::open(&path, &ReadOptions::default())?;
        let molecules: Vec<Sample> = reader
            .map(|record| record.map(|record| record.smiles.as_str().into()))
            .collect::<Result<_, _>>()?;
        anyhow::ensure!(molecules.len() >= BATCH, "{} has too few molecules", path.display());
        let reward = json!({"type": "molecule", "qed": 0.7, "sa": 0.3});
        let reward: RewardConfig = serde_json::from_value(reward).context("the reward")?;
        let runner = RewardRunner::new(reward.build(&Device::flex())?, Duration::from_secs(600));
        Ok(Self { runner, molecules, next: 0 })
    }
}

impl Measured for Rewards {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let batches: Vec<Vec<Sample>> = (0..BATCHES)
            .map(|_| {
                let all = self.molecules.iter().cycle();
                let batch = all.skip(self.next).take(BATCH).cloned().collect();
                self.next = (self.next + BATCH) % self.molecules.len();
                batch
            })
            .collect();
        let started = Instant::now();
        let outcomes: Vec<_> =
            batches.into_iter().flat_map(|batch| self.runner.score(batch)).collect();
        let repetition = Repetition::since(started, outcomes.len() as f64, None);
        let failed = outcomes.iter().find_map(|outcome| outcome.failure());
        match failed {
            None => Ok(repetition),
            Some(reason) => anyhow::bail!("a reward failed: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_goes_on_where_the_last_one_ended() {
        let mut rewards = Rewards::new().unwrap();
        assert_eq!(rewards.run().unwrap().work, 2048.0);
        assert_eq!(rewards.next, 2048 % rewards.molecules.len());
    }
}
