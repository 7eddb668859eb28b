//! Benchmarks supervised training, i.e. the forward pass, cross-entropy, the backward pass,
//! clipping and AdamW.

use grpo_data::{Codec, Example, Examples, SpecialIds};
use grpo_model::ProductPrecision;
use grpo_train::{
    CompletedStep, NextTokenObjective, Objective, PretrainConfig, SupervisedObserver,
    SupervisedTrainer, TrainError,
};
use serde_json::json;

use super::{Repetition, Work, random_ids};
use crate::models::Model;

/// Runs `steps` steps per repetition. Each batch has `rows` examples with `tokens` targets. One
/// additional step, which allocates the optimizer state, is not measured.
pub fn training(
    model: Model,
    rows: usize,
    tokens: usize,
    steps: usize,
    precision: ProductPrecision,
) -> anyhow::Result<Work> {
    let example = |row: usize| Example::of_all(random_ids(2, row, tokens + 1, model));
    let train = (0..(1 + steps) * rows).map(example).collect();
    let examples = Examples::new(train, vec![Example::of_all(vec![0, 1])]);
    // The configuration is parsed like a user's file, so new keys have their default values.
    let config: PretrainConfig = serde_json::from_value(json!({
        "epochs": 1, "batch_size": rows, "warmup_epochs": 0.0, "precision": precision,
        "optimizer": {"learning_rate": 1e-5, "betas": [0.9, 0.999], "weight_decay": 0.01},
    }))?;
    let policy = model.build()?;
    let flops = (steps * rows) as f64 * model.training_flops(tokens, tokens);
    Ok(Box::new(move || {
        let mut times = Times::default();
        let codec = Codec::of_ids(SpecialIds::default());
        NextTokenObjective::trainer(policy.clone(), &codec, &examples, &config, 1)?
            .run(&mut times)?;
        let (seconds, work) = (times.0.iter().skip(1).sum(), (steps * rows * tokens) as f64);
        Ok(Repetition { seconds, work, flops: Some(flops), ..Repetition::default() })
    }))
}

/// Durations of the steps in seconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl<O: Objective> SupervisedObserver<O> for Times {
    fn step(
        &mut self,
        done: &CompletedStep<'_, O::Measures>,
        _: &SupervisedTrainer<O>,
    ) -> Result<(), TrainError> {
        self.0.push(done.step.step_time);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    #[test]
    fn a_repetition_is_some_steps_behind_one_that_is_not_counted() {
        let model = Model { size: Size::Tiny, context: 16 };
        let mut training = training(model, 2, 4, 5, ProductPrecision::F32).unwrap();
        for _ in 0..2 {
            let repetition = training().unwrap();
            assert_eq!(repetition.work, (5 * 2 * 4) as f64);
            assert_eq!(repetition.flops, Some(10.0 * model.training_flops(4, 4)));
            assert!(repetition.seconds > 0.0);
        }
    }
}
