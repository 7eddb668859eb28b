//! Tests supervised pre-training on a few molecules.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use grpo_data::{Augmentation, Example, Examples, Mixture};
use grpo_model::ProductPrecision;
use grpo_molecules::MoleculeRecord;
use grpo_molecules::{Corpus, CorpusOptions, Vocabulary};
use grpo_train::{
    CompletedStep, NextTokenObjective, Objective, PretrainConfig, PretrainMeasures,
    SupervisedObserver, SupervisedTrainer, TrainError,
};

use crate::recorder::{self, Recorder};
use crate::support::{fresh_model, ids, model, optimizer, parameters};

const CONFIG: fn() -> PretrainConfig = || PretrainConfig {
    condition_dropout: None,
    epochs: 6,
    batch_size: 8,
    micro_batch_tokens: None,
    activation_checkpointing: false,
    precision: Default::default(),
    warmup_epochs: 0.1,
    learning_rate_floor: 0.1,
    learning_rate_decay: grpo_train::Decay::Cosine {},
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
        conditions: Default::default(),
        line,
        smiles,
        name: None,
        split: None,
    });
    let options = CorpusOptions {
        max_tokens: 15,
        validation_fraction: 0.2,
        seed: 1,
        min_molecules: 10,
        needed_columns: Vec::new(),
    };
    let corpus = Corpus::from_records(records, &vocabulary, &options).unwrap();
    assert!(corpus.validation.len() >= 2);
    let examples = corpus.examples(&vocabulary);
    (vocabulary, examples)
}

fn run(config: &PretrainConfig, seed: u64) -> (Recorder<PretrainMeasures>, Vec<f32>) {
    let (vocabulary, corpus) = corpus();
    let model = fresh_model(vocabulary.len());
    let trainer = NextTokenObjective::trainer(model, &ids(), &corpus, config, seed);
    let (recorder, model, _) = recorder::run(trainer);
    (recorder, parameters(&model))
}

#[test]
fn the_loss_falls_from_that_of_equal_shares() {
    let (vocabulary, corpus) = corpus();
    let (recorder, _) = run(&CONFIG(), 1);
    let steps = corpus.train.len().div_ceil(8) * 6;
    assert_eq!((recorder.steps.len(), recorder.validations.len()), (steps, 6));
    let first = recorder.losses()[0];
    let equal_shares = (vocabulary.len() as f64).ln();
    assert!((first - equal_shares).abs() < 0.05, "{first}, not {equal_shares}");
    let last = recorder.last();
    assert!(last.train_loss < 0.6 * first, "{last:?}");
    assert!(last.eval_loss < 0.7 * first, "{last:?}");
    // Each molecule plus its end token, once per epoch.
    let tokens: usize = corpus.train.iter().map(|example| example.targets().len()).sum();
    assert_eq!(recorder.steps[steps - 1].num_tokens, 6 * tokens as u64);
}

/// The first half of the examples counts twice in each epoch, as if it stood twice in the file.
#[test]
fn a_mixture_sets_the_tokens_of_an_epoch() {
    let (vocabulary, mut corpus) = corpus();
    let half = corpus.train.len() / 2;
    let sizes = [(half, 2.0), (corpus.train.len() - half, 1.0)];
    corpus.mixture = Some(Mixture::new(&sizes).unwrap());
    let (model, config) = (fresh_model(vocabulary.len()), CONFIG());
    let trainer = NextTokenObjective::trainer(model, &ids(), &corpus, &config, 1);
    let (recorder, _, _) = recorder::run(trainer);
    let tokens =
        |part: &[Example]| part.iter().map(|example| example.targets().len()).sum::<usize>();
    let epoch = 2 * tokens(&corpus.train[..half]) + tokens(&corpus.train[half..]);
    let last = recorder.steps.last().unwrap();
    assert_eq!(recorder.steps.len(), (corpus.train.len() + half).div_ceil(8) * 6);
    assert_eq!(last.num_tokens, 6 * epoch as u64);
    // The schedule ends with the last token.
    assert!((last.learning_rate - 1e-3).abs() < 1e-12, "{last:?}");
}

#[test]
fn the_best_epoch_is_that_of_the_lowest_validation_loss() {
    let mut config = PretrainConfig { epochs: 12, learning_rate_floor: 1.0, ..CONFIG() };
    // The learning rate is high enough for the loss to oscillate.
    config.optimizer.learning_rate = 0.1;
    let (recorder, _) = run(&config, 1);
    let mut lowest = f64::INFINITY;
    for epoch in &recorder.validations {
        assert_eq!(epoch.best, epoch.measures.eval_loss < lowest);
        lowest = lowest.min(epoch.measures.eval_loss);
    }
    assert!(recorder.validations.iter().any(|epoch| !epoch.best), "the loss only fell");
}

#[test]
fn the_rate_warms_up_over_tokens_and_falls_to_its_floor() {
    let (recorder, _) = run(&PretrainConfig { warmup_epochs: 1.0, ..CONFIG() }, 1);
    let rates: Vec<f64> = recorder.steps.iter().map(|step| step.learning_rate).collect();
    let top = rates.iter().copied().fold(0.0, f64::max);
    let peak = rates.iter().position(|rate| *rate == top).unwrap();
    assert!((0.99e-2..=1e-2).contains(&top) && rates[..=peak].is_sorted(), "{rates:?}");
    assert_eq!(peak, rates.len() / 6 - 1, "the end of the first epoch");
    assert!(rates[peak..].is_sorted_by(|a, b| a >= b));
    assert!((rates[rates.len() - 1] - 1e-3).abs() < 1e-12);

    let tokens: Vec<f64> = recorder.steps.iter().map(|step| step.num_tokens as f64).collect();
    let of_epoch = tokens[peak];
    assert_eq!(tokens[rates.len() - 1], 6.0 * of_epoch);
    let per_step: BTreeSet<u64> = tokens.windows(2).map(|two| (two[1] - two[0]) as u64).collect();
    assert!(per_step.len() > 1, "tokens and steps would be the same unit");
    for (rate, tokens) in rates.iter().zip(&tokens) {
        let progress = (tokens - of_epoch) / (5.0 * of_epoch);
        let multiplier = match *tokens < of_epoch {
            true => tokens / of_epoch,
            false => (0.5 * (1.0 + (std::f64::consts::PI * progress).cos())).max(0.1),
        };
        assert!((rate - 1e-2 * multiplier).abs() < 1e-15, "{rate} after {tokens} tokens");
    }
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
    // Matrix products overflow with weights this large.
    let model = model(vocabulary.len(), 1e30);
    let (mut recorder, config) = (Recorder::default(), CONFIG());
    let mut trainer = NextTokenObjective::trainer(model, &ids(), &corpus, &config, 1).unwrap();
    let error = trainer.run(&mut recorder).unwrap_err();
    assert!(matches!(error, TrainError::Diverged { what: "loss", .. }), "{error:?}");
    assert!(
        error.to_string().ends_with("; lower the learning rate, or check the data and the rewards")
    );
    assert_eq!(recorder, Recorder::default());
}

/// Weights that f32 has, but not f16.
#[test]
fn numbers_that_are_too_large_for_f16_end_the_training() {
    let (vocabulary, corpus) = corpus();
    let run = |precision| {
        let config = PretrainConfig { precision, epochs: 1, ..CONFIG() };
        let model = model(vocabulary.len(), 1e7);
        let mut trainer = NextTokenObjective::trainer(model, &ids(), &corpus, &config, 1).unwrap();
        trainer.run(&mut Recorder::default())
    };
    for precision in [ProductPrecision::F32, ProductPrecision::Bf16] {
        run(precision).unwrap();
    }
    let error = run(ProductPrecision::F16).unwrap_err().to_string();
    assert_eq!(
        error,
        "training diverged: the loss became NaN; lower the learning rate, or check the data and the rewards. With precision = \"f16\", weights and activations of 65,520 or more overflow: if \"f32\" does not fail, keep it, or use \"bf16\""
    );
}

#[test]
fn an_observer_ends_the_training() {
    struct Full;
    impl<O: Objective> SupervisedObserver<O> for Full {
        fn step(
            &mut self,
            _: &CompletedStep<'_, O::Measures>,
            _: &SupervisedTrainer<O>,
        ) -> Result<(), TrainError> {
            Err(TrainError::Observer("the disk is full".into()))
        }
    }
    let (vocabulary, corpus) = corpus();
    let (model, config) = (fresh_model(vocabulary.len()), CONFIG());
    let mut trainer = NextTokenObjective::trainer(model, &ids(), &corpus, &config, 1).unwrap();
    assert_eq!(trainer.run(&mut Full).unwrap_err().to_string(), "the disk is full");
}

/// Each training example is asked for a variant once per epoch; validation examples never are.
#[test]
fn variants_replace_training_examples() {
    let (vocabulary, corpus) = corpus();
    let config = PretrainConfig { epochs: 2, ..CONFIG() };
    let train = |augmentation: Option<Augmentation>| {
        let model = fresh_model(vocabulary.len());
        let trainer = NextTokenObjective::trainer(model, &ids(), &corpus, &config, 1);
        recorder::run(trainer.map(|trainer| trainer.with_augmentation(augmentation))).0
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&asked);
    let none = Augmentation::new(move |_, index, epoch| {
        list.lock().unwrap().push((epoch, index));
        None
    });
    let plain = train(None);
    assert_eq!(train(Some(none)).losses(), plain.losses());
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_unstable();
    let items = corpus.train.len() as u32;
    let once = (0..2).flat_map(|epoch| (0..items).map(move |index| (epoch, index)));
    assert_eq!(asked, once.collect::<Vec<_>>());

    // In the second epoch, all examples are the first one.
    let first = corpus.train[0].clone();
    let same = Augmentation::new(move |_, _, epoch| (epoch == 1).then(|| first.clone()));
    let (same, steps) = (train(Some(same)), plain.steps.len() / 2);
    assert_eq!(same.losses()[..steps], plain.losses()[..steps]);
    let difference = same.losses()[steps] - plain.losses()[steps];
    assert!(difference.abs() > 1e-6, "{difference}");
    let tokens = same.steps[2 * steps - 1].num_tokens - same.steps[steps - 1].num_tokens;
    assert_eq!(tokens, u64::from(items) * corpus.train[0].targets().len() as u64);
}
