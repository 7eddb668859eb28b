//! Supervised pre-training on a corpus of a few molecules.

use grpo_data::{Corpus, CorpusOptions, Examples, MoleculeRecord, Vocabulary};
use grpo_model::Transformer;
use grpo_train::{
    PretrainConfig, PretrainEvaluation, PretrainObserver, PretrainStep, TrainError, pretrain,
};

use crate::support::{fresh_model, ids, model, optimizer, parameters};

const CONFIG: fn() -> PretrainConfig = || PretrainConfig {
    epochs: 6,
    batch_size: 8,
    micro_batch_tokens: None,
    activation_checkpointing: false,
    warmup_epochs: 0.1,
    learning_rate_floor: 0.1,
    dropout: 0.0,
    eval_every: 0,
    patience: 0,
    min_gain: 0.0,
    optimizer: optimizer(),
    limits: None,
    eval: None,
    diversity: None,
};

fn corpus() -> (Vocabulary, Examples) {
    let smiles: Vec<String> = (1..=7)
        .flat_map(|n| {
            let chain = "C".repeat(n);
            [
                chain.clone(),
                format!("{chain}O"),
                format!("{chain}N"),
                format!("O{chain}N"),
                format!("{chain}(=O)O"),
            ]
        })
        .collect();
    let vocabulary = Vocabulary::from_smiles(smiles.iter().map(String::as_str)).unwrap();
    let records = smiles.into_iter().zip(1..).map(|(smiles, line)| MoleculeRecord {
        line,
        smiles,
        name: None,
        split: None,
    });
    let options =
        CorpusOptions { max_tokens: 15, validation_fraction: 0.2, seed: 1, min_molecules: 10 };
    let corpus = Corpus::from_records(records, &vocabulary, &options).unwrap();
    assert!(corpus.validation.len() >= 2);
    let examples = corpus.examples(vocabulary.boundary());
    (vocabulary, examples)
}

/// What a training told, without times.
#[derive(Debug, Default, PartialEq)]
struct Told {
    /// `(train_step, loss, norm, learning rate, tokens)`
    steps: Vec<(u64, f64, f64, f64, u64)>,
    epochs: Vec<PretrainEvaluation>,
}

impl PretrainObserver<Transformer> for Told {
    fn step(&mut self, step: &PretrainStep, steps: u64) -> Result<(), TrainError> {
        assert!(step.train_step <= steps);
        let PretrainStep {
            train_step, step_train_loss, grad_norm, learning_rate, num_tokens, ..
        } = *step;
        self.steps.push((train_step, step_train_loss, grad_norm, learning_rate, num_tokens));
        Ok(())
    }

    fn evaluated(&mut self, epoch: &PretrainEvaluation, _: &Transformer) -> Result<(), TrainError> {
        self.epochs.push(epoch.clone());
        Ok(())
    }
}

fn run(config: &PretrainConfig, seed: u64) -> (Told, Vec<f32>) {
    let (vocabulary, corpus) = corpus();
    let model = fresh_model(vocabulary.len());
    let mut told = Told::default();
    let trained = pretrain(model, &ids(), &corpus, config, seed, &mut told).unwrap();
    (told, parameters(&trained.model))
}

#[test]
fn the_loss_falls_from_that_of_equal_shares() {
    let (vocabulary, corpus) = corpus();
    let (told, _) = run(&CONFIG(), 1);
    let steps = corpus.train.len().div_ceil(8) * 6;
    assert_eq!((told.steps.len(), told.epochs.len()), (steps, 6));
    let first = told.steps[0].1;
    let equal_shares = (vocabulary.len() as f64).ln();
    assert!((first - equal_shares).abs() < 0.05, "{first}, not {equal_shares}");
    let last = &told.epochs[5];
    assert!(last.train_loss < 0.6 * first, "{last:?}");
    assert!(last.eval_loss < 0.7 * first, "{last:?}");
    // Each molecule and its end mark, in each epoch.
    let tokens: usize = corpus.train.iter().map(|example| example.targets().len()).sum();
    assert_eq!(told.steps[steps - 1].4, 6 * tokens as u64);
}

#[test]
fn the_best_epoch_is_that_of_the_lowest_validation_loss() {
    let mut config = PretrainConfig { epochs: 12, learning_rate_floor: 1.0, ..CONFIG() };
    // So high that the loss goes up and down.
    config.optimizer.learning_rate = 0.1;
    let (told, _) = run(&config, 1);
    let mut lowest = f64::INFINITY;
    for epoch in &told.epochs {
        assert_eq!(epoch.best, epoch.eval_loss < lowest);
        lowest = lowest.min(epoch.eval_loss);
    }
    assert!(told.epochs.iter().any(|epoch| !epoch.best), "the loss only fell");
}

#[test]
fn the_rate_warms_up_over_tokens_and_falls_to_its_floor() {
    let (told, _) = run(&PretrainConfig { warmup_epochs: 1.0, ..CONFIG() }, 1);
    let rates: Vec<f64> = told.steps.iter().map(|step| step.3).collect();
    let top = rates.iter().copied().fold(0.0, f64::max);
    let peak = rates.iter().position(|rate| *rate == top).unwrap();
    assert!((0.99e-2..=1e-2).contains(&top) && rates[..=peak].is_sorted(), "{rates:?}");
    assert_eq!(peak, rates.len() / 6 - 1, "the end of the first epoch");
    assert!(rates[peak..].is_sorted_by(|a, b| a >= b));
    assert!((rates[rates.len() - 1] - 1e-3).abs() < 1e-12);
}

#[test]
fn equal_seeds_give_equal_models_with_and_without_dropout() {
    for dropout in [0.0, 0.2] {
        let config = PretrainConfig { epochs: 2, dropout, ..CONFIG() };
        let first = run(&config, 1);
        assert_eq!(first, run(&config, 1), "dropout {dropout}");
        assert_ne!(first, run(&config, 2), "dropout {dropout}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        assert_eq!(first, pool.install(|| run(&config, 1)), "dropout {dropout}, two threads");
    }
    let of = |dropout| run(&PretrainConfig { epochs: 1, dropout, ..CONFIG() }, 1);
    assert_ne!(of(0.0), of(0.2));
}

#[test]
fn numbers_that_are_not_finite_end_the_training() {
    let (vocabulary, corpus) = corpus();
    // Products of such weights are infinite.
    let model = model(vocabulary.len(), 1e30);
    let mut told = Told::default();
    let error = pretrain(model, &ids(), &corpus, &CONFIG(), 1, &mut told);
    let error = error.err().unwrap();
    assert!(matches!(error, TrainError::Diverged { what: "loss", .. }), "{error:?}");
    assert!(error.to_string().ends_with(
        ": training has diverged; lower the learning rate, or look at the data and the rewards"
    ));
    assert_eq!(told, Told::default());
}

#[test]
fn an_observer_ends_the_training() {
    struct Full;
    impl PretrainObserver<Transformer> for Full {
        fn step(&mut self, _: &PretrainStep, _: u64) -> Result<(), TrainError> {
            Err(TrainError::Observer("the disk is full".into()))
        }
        fn evaluated(&mut self, _: &PretrainEvaluation, _: &Transformer) -> Result<(), TrainError> {
            unreachable!("the first step ended it")
        }
    }
    let (vocabulary, corpus) = corpus();
    let model = fresh_model(vocabulary.len());
    let error = pretrain(model, &ids(), &corpus, &CONFIG(), 1, &mut Full);
    assert_eq!(error.err().unwrap().to_string(), "the disk is full");
}
