//! Compares the single-file example with the trainer.

use std::sync::Arc;

use burn::module::Module;
use grpo_model::Frozen;
use grpo_rewards::{Outcome, PartName, Reward, RewardInput, Scored};
use grpo_train::{
    Grpo, GrpoConfig, LossSettings, NextTokens, Parts, TrainConfig, unconditional_prompts,
};

use crate::support::{config, parameters};

#[path = "../../examples/one_file.rs"]
#[expect(dead_code, reason = "its main function is that of the example")]
mod example;

struct Qed;

impl Reward for Qed {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let scored =
            |sample: &RewardInput| Scored::new(vec![(1.0, example::reward(&sample.text))], vec![]);
        samples.iter().map(|sample| Outcome::Scored(scored(sample))).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec![]
    }
}

#[test]
fn the_first_steps_are_those_of_the_trainer_bit_for_bit() {
    const STEPS: u32 = 5;
    let defaults = config();
    let mut config = GrpoConfig {
        train: TrainConfig {
            steps: STEPS,
            prompts_per_step: example::PROMPTS,
            group_size: example::GROUP_SIZE,
            updates_per_rollout: example::UPDATES,
            micro_batch_tokens: 1 << 20,
            ..defaults.train
        },
        loss: LossSettings { kl_coef: Some(example::KL_COEF), ..LossSettings::default() },
        optimizer: example::OPTIMIZER,
        ..defaults
    };
    config.sampling.max_new_tokens = example::MAX_NEW_TOKENS;
    let policy = example::first_policy().unwrap();
    let parts = Parts {
        reference: Frozen::snapshot(&policy),
        policy,
        engine: Arc::new(NextTokens { end_ids: vec![example::BOUNDARY] }),
        reward: Arc::new(Qed),
        extensions: Vec::new(),
        longest_prompt: 1,
        epoch: None,
        decode: Arc::new(example::decode),
    };
    let mut grpo = Grpo::new(parts, config, example::SEED).unwrap();
    let prompts = unconditional_prompts(example::PROMPTS, example::BOUNDARY);
    let mut expected = Vec::new();
    for step in 0..STEPS {
        let report = grpo.step(&prompts, step).unwrap();
        let rewards: Vec<f64> = report.samples().filter_map(|sample| sample.reward()).collect();
        expected.push(rewards.iter().sum::<f64>() / rewards.len() as f64);
    }

    let mut rewards = Vec::new();
    let policy = example::train(STEPS, |_, reward, _| rewards.push(reward)).unwrap();
    assert_eq!(rewards, expected);
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
    let first = parameters(&example::first_policy().unwrap());
    let trained = parameters(grpo.policy());
    assert!(first.iter().zip(&trained).any(|(first, trained)| first != trained));
    assert_eq!(bits(parameters(&policy)), bits(trained));
    assert!(policy.num_params() > 1_000);
}
