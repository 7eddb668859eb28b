//! Tests that rewards increase during training, and that training is reproducible.

use std::cell::RefCell;
use std::sync::Arc;

use grpo_data::{Prompt, TextCodec};
use grpo_model::Transformer;
use grpo_train::{
    Ending, Grpo, Metrics, StepDone, TrainError, TrainObserver, Training, unconditional_prompts,
};

use crate::oracle::logprobs;
use crate::support::{
    begin, chains, config, fresh_model, grpo, model, parameters, timeless, vocabulary,
};

/// Observer that stores the metrics of each step.
#[derive(Default)]
struct Kept(RefCell<Vec<Metrics>>);

impl TrainObserver<Transformer> for Kept {
    fn step(&mut self, done: &StepDone<'_>, _: &Training<Transformer>) -> Result<(), TrainError> {
        self.0.borrow_mut().push(done.metrics.clone());
        Ok(())
    }
}

/// Runs all steps. Returns the trained run and the metrics of each step.
fn train(
    grpo: Grpo<Transformer>,
    mut prompts: impl FnMut(u32) -> Vec<Prompt>,
) -> (Training<Transformer>, Vec<Metrics>) {
    let (mut training, mut kept) = (Training::new(grpo, None), Kept::default());
    assert_eq!(training.run(|step| Ok(prompts(step)), &mut kept).unwrap(), Ending::Finished);
    (training, kept.0.into_inner())
}

/// Acceptance test 7: a bandit with ten arms, one of which is rewarded.
#[test]
fn the_best_of_ten_arms_is_found() {
    const ARMS: usize = 10;
    const BEST: u32 = 4;
    let mut config = config();
    config.sampling.max_new_tokens = 1;
    config.train.steps = 60;
    config.train.group_size = 16;
    let decode =
        Arc::new(
            |ids: &[u32]| {
                if ids == [BEST] { "CC(=O)Oc1ccccc1C(=O)O".to_owned() } else { String::new() }
            },
        );
    // The end token is not one of the arms.
    let mut grpo = begin(fresh_model(ARMS + 1), config, 1, ARMS as u32, decode).unwrap();
    let prompts = |_| unconditional_prompts(3, ARMS as u32);
    let share = |grpo: &mut Grpo<Transformer>| {
        let report = grpo.step(&prompts(0), 1000).unwrap();
        let policy = grpo.policy().clone();
        let arm = report.groups[0].completions().find(|c| c.ids()[1] == BEST);
        arm.map_or(0.0, |arm| logprobs(&policy, arm)[0].exp())
    };
    assert!(share(&mut grpo) < 0.2);
    let mut grpo = train(grpo, prompts).0.into_grpo();
    let share = share(&mut grpo);
    assert!(share > 0.9, "{share}");
}

/// An untrained model learns to produce molecules.
#[test]
fn a_small_model_learns_to_write_molecules() {
    let vocabulary = vocabulary();
    let mut config = config();
    config.train.steps = 60;
    config.train.group_size = 16;
    config.sampling.max_new_tokens = 8;
    config.optimizer.learning_rate = 5e-3;
    config.loss.kl_coef = None;
    let boundary = vocabulary.boundary();
    let model = fresh_model(vocabulary.len());
    let decode = Arc::new(move |ids: &[u32]| vocabulary.decode(ids));
    let grpo = begin(model, config, 1, boundary, decode).unwrap();
    let (_, metrics) = train(grpo, |_| unconditional_prompts(4, boundary));
    let mean = |steps: &[Metrics], name: &str| {
        steps.iter().map(|step| step.get(name).unwrap()).sum::<f64>() / steps.len() as f64
    };
    for (name, rise) in [("rewards/valid/mean", 0.4), ("reward", 0.2)] {
        let (first, last) = (mean(&metrics[..5], name), mean(&metrics[55..], name));
        assert!(last - first > rise, "{name} went from {first} to {last}");
    }
}

/// Runs three steps. Returns the metrics without times, and the weights.
fn short_run(seed: u64) -> (Vec<Vec<(String, f64)>>, Vec<f32>) {
    let vocabulary = vocabulary();
    let mut config = config();
    config.train.steps = 3;
    config.train.updates_per_rollout = 2;
    config.train.micro_batch_tokens = 10;
    let boundary = vocabulary.boundary();
    let model = model(vocabulary.len(), 2.0);
    let grpo = begin(model, config, seed, boundary, chains()).unwrap();
    let (training, metrics) = train(grpo, |_| unconditional_prompts(3, boundary));
    (metrics.iter().map(timeless).collect(), parameters(training.policy()))
}

#[test]
fn equal_seeds_give_equal_runs_and_threads_change_nothing() {
    let first = short_run(1);
    assert_eq!(first.0.len(), 3);
    assert_eq!(first, short_run(1));
    assert_ne!(first.0, short_run(2).0);
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(first, pool.install(|| short_run(1)), "{threads} threads");
    }
}

#[test]
fn the_learning_rate_warms_up_and_falls() {
    let mut config = config();
    config.train.steps = 10;
    config.schedule.warmup_steps = 4;
    config.schedule.floor = 0.1;
    let grpo = grpo(config, chains());
    let (_, metrics) = train(grpo, |_| unconditional_prompts(1, vocabulary().boundary()));
    let rates: Vec<f64> = metrics.iter().map(|step| step.get("learning_rate").unwrap()).collect();
    for (rate, expected) in rates.iter().zip([2.5e-3, 5e-3, 7.5e-3, 1e-2]) {
        assert!((rate - expected).abs() < 1e-12, "{rates:?}");
    }
    assert!(rates[4..].is_sorted_by(|a, b| a >= b) && rates[9] < rates[4], "{rates:?}");
}
