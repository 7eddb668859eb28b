//! Supervised training: forward, cross-entropy, backward, clipping and AdamW, through `pretrain`.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Context;
use grpo_data::{CounterRng, Example, Examples, Purpose};
use grpo_model::Policy;
use grpo_train::{
    PretrainConfig, PretrainEpoch, PretrainObserver, PretrainStep, TrainError, pretrain,
};
use serde_json::json;

use crate::case::{Measured, Repetition};
use crate::models::Model;

/// A training that goes on by one step at a time: `pretrain` runs on a thread of its own, and its observer lets it go
/// on only when a repetition is asked for.
pub(crate) struct Training {
    go: Sender<()>,
    done: Receiver<Result<f64, String>>,
    steps: usize,
    tokens: f64,
    flops: f64,
}

/// Steps of an epoch: few, so that its examples take little memory.
const STEPS_OF_EPOCH: usize = 50;

impl Training {
    /// Batches of `rows` examples with `tokens` targets each, `steps` of them a repetition.
    pub(crate) fn new(
        model: Model,
        rows: usize,
        tokens: usize,
        steps: usize,
    ) -> anyhow::Result<Self> {
        let policy = model.build()?;
        let rng = CounterRng::new(2, Purpose::Evaluation);
        let vocabulary = model.size.vocabulary() as u64;
        let example = |row: usize| {
            let ids = (0..=tokens).map(|t| rng.below([t as u32, row as u32, 0, 0], vocabulary));
            Example::of_all(ids.map(|id| id as u32).collect())
        };
        let train: Vec<Example> = (0..STEPS_OF_EPOCH * rows).map(example).collect();
        let examples = Examples { validation: vec![Example::of_all(vec![0, 1])], train };
        let (go, permits) = channel();
        let (results, done) = channel();
        thread::Builder::new().name("training".to_owned()).spawn(move || {
            if permits.recv().is_err() {
                return;
            }
            let mut gate = Gate { permits, results: results.clone() };
            let ended = pretrain(policy, &examples, &config(rows), 1, &mut gate);
            // Whoever waits is told; nobody does once the permits are gone.
            if let Err(error) = ended {
                let _nobody = results.send(Err(error.to_string()));
            }
        })?;
        Ok(Self {
            go,
            done,
            steps,
            tokens: (steps * rows * tokens) as f64,
            flops: (steps * rows) as f64 * model.training_flops(tokens, tokens),
        })
    }
}

impl Measured for Training {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let mut seconds = 0.0;
        for _ in 0..self.steps {
            self.go.send(()).context("the training has ended")?;
            let step = self.done.recv().context("the training has ended")?;
            seconds += step.map_err(anyhow::Error::msg)?;
        }
        Ok(Repetition { seconds, work: self.tokens, flops: Some(self.flops), details: None })
    }
}

/// Tells the time of each step, and waits for the permit for the next.
struct Gate {
    permits: Receiver<()>,
    results: Sender<Result<f64, String>>,
}

impl PretrainObserver<Policy> for Gate {
    fn step(&mut self, step: &PretrainStep, _steps: u64) -> Result<(), TrainError> {
        let told = self.results.send(Ok(step.step_time));
        if told.is_err() || self.permits.recv().is_err() {
            return Err(TrainError::Observer("nothing is measured any more".into()));
        }
        Ok(())
    }

    fn epoch(&mut self, _epoch: &PretrainEpoch, _model: &Policy) -> Result<(), TrainError> {
        Ok(())
    }
}

fn config(rows: usize) -> PretrainConfig {
    // Read as a user's file is, so that a key that comes later has its default here.
    let config = json!({
        "epochs": 100_000, "batch_size": rows, "warmup_epochs": 0.0,
        "optimizer": {"learning_rate": 1e-5, "betas": [0.9, 0.999], "weight_decay": 0.01},
    });
    serde_json::from_value(config).expect("the keys of a pre-training")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    #[test]
    fn each_repetition_is_some_steps_over_several_epochs() {
        let model = Model { size: Size::Tiny, context: 16 };
        let mut training = Training::new(model, 2, 4, STEPS_OF_EPOCH + 1).unwrap();
        for _ in 0..2 {
            let repetition = training.run().unwrap();
            assert_eq!(repetition.work, (51 * 2 * 4) as f64);
            assert_eq!(repetition.flops, Some(102.0 * model.training_flops(4, 4)));
            assert!(repetition.seconds > 0.0);
        }
    }

    #[test]
    fn a_fault_of_the_training_is_told() {
        // More tokens than the model's context.
        let model = Model { size: Size::Tiny, context: 4 };
        let mut training = Training::new(model, 2, 8, 1).unwrap();
        assert!(training.run().is_err());
    }
}
