//! Rewards of molecules and of replies, as training asks for them: a batch at a time, on the runner's thread.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use burn::tensor::Device;
use grpo_app::Task;
use grpo_molecules::Molecules;
use grpo_molecules::{MoleculeReader, ReadOptions};
use grpo_replies::{PairRecord, Replies, read_pairs};
use grpo_rewards::{RewardInput, RewardRegistry, RewardRunner};
use serde_json::{Value, json};

use crate::case::{Measured, Repetition};

pub(crate) struct Rewards {
    runner: RewardRunner,
    samples: Vec<RewardInput>,
    /// Where the next batch begins.
    next: usize,
}

/// Completions of a step of training, and steps of a repetition.
const BATCH: usize = 256;
const BATCHES: usize = 8;

impl Rewards {
    /// Of the bundled molecules.
    pub(crate) fn molecules() -> anyhow::Result<Self> {
        let reader =
            MoleculeReader::open(&data("molecules/molecules.smi.gz"), &ReadOptions::default())?;
        let molecules: Vec<RewardInput> = reader
            .map(|record| record.map(|record| record.smiles.as_str().into()))
            .collect::<Result<_, _>>()?;
        Self::new(molecules, json!({"type": "molecule", "qed": 0.7, "sa": 0.3}))
    }

    /// Of the bundled replies to their tweets, by the heuristic reward without a model.
    pub(crate) fn replies() -> anyhow::Result<Self> {
        let pairs = read_pairs(&data("replies/replies.jsonl"))?.pairs;
        let sample = |pair: PairRecord| RewardInput {
            text: pair.reply,
            fields: [("tweet".to_owned(), Value::from(pair.tweet))].into_iter().collect(),
        };
        let reward = json!({"type": "heuristic", "embedder": {"type": "hashed_ngrams"}});
        Self::new(pairs.into_iter().map(sample).collect(), reward)
    }

    fn new(samples: Vec<RewardInput>, reward: Value) -> anyhow::Result<Self> {
        anyhow::ensure!(samples.len() >= BATCH, "the bundled file has too few records");
        let kinds = Molecules.rewards().into_iter().chain(Replies.rewards());
        let registry = RewardRegistry::default().with(kinds);
        let reward = registry.parse(serde_json::from_value(reward)?).context("the reward")?;
        let runner = RewardRunner::new(reward.build(&Device::flex())?, Duration::from_secs(600));
        Ok(Self { runner, samples, next: 0 })
    }
}

/// A bundled file.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

impl Measured for Rewards {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let batches: Vec<Vec<RewardInput>> = (0..BATCHES)
            .map(|_| {
                let all = self.samples.iter().cycle();
                let batch = all.skip(self.next).take(BATCH).cloned().collect();
                self.next = (self.next + BATCH) % self.samples.len();
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
        for mut rewards in [Rewards::molecules().unwrap(), Rewards::replies().unwrap()] {
            assert_eq!(rewards.run().unwrap().work, 2048.0);
            assert_eq!(rewards.next, 2048 % rewards.samples.len());
        }
    }
}
