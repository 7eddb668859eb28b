//! Compares supervised training with the definition of the loss, where prompts are context only.

use grpo_data::{Example, Examples};
use grpo_model::{
    Adapted, Adapter, Dropout, LanguageModel, LoraConfig, Policy, TokenBatch, Transformer,
};
use grpo_train::{NextTokenObjective, PretrainConfig, PretrainMeasures};

use crate::recorder;
use crate::support::{distance, ids, model, optimizer, parameters};

const VOCABULARY: usize = 12;

fn examples() -> Examples {
    let of = |length: usize, first_target: usize, seed: usize| {
        let ids = (0..length).map(|i| ((i * i * 3 + seed * 5 + i) % VOCABULARY) as u32);
        Example::new(ids.collect(), first_target)
    };
    Examples::new(
        vec![of(9, 4, 1), of(3, 1, 2), of(14, 13, 3), of(6, 2, 4), of(9, 8, 5)],
        vec![of(7, 3, 6), of(5, 1, 7), of(12, 9, 8)],
    )
}

/// Creates settings that use all examples in one step.
fn config() -> PretrainConfig {
    PretrainConfig {
        condition_dropout: None,
        epochs: 1,
        batch_size: 5,
        micro_batch_tokens: None,
        activation_checkpointing: false,
        precision: Default::default(),
        warmup_epochs: 0.0,
        learning_rate_floor: 1.0,
        learning_rate_decay: grpo_train::Decay::Cosine {},
        dropout: 0.0,
        eval_every: 0,
        patience: 0,
        min_gain: 0.0,
        optimizer: optimizer(),
        limits: None,
        eval: None,
        diversity: None,
    }
}

type Recorder = recorder::Recorder<PretrainMeasures>;

fn run<M: LanguageModel>(model: M, config: &PretrainConfig) -> (Recorder, M) {
    let examples = examples();
    let (recorder, model, _) =
        recorder::run(NextTokenObjective::trainer(model, &ids(), &examples, config, 1));
    (recorder, model)
}

impl recorder::Recorder<PretrainMeasures> {
    fn norms(&self) -> Vec<f64> {
        self.steps.iter().map(|step| step.grad_norm).collect()
    }

    fn valid(&self) -> Vec<f64> {
        self.validations.iter().map(|validation| validation.measures.eval_loss).collect()
    }
}

/// Computes `−Σ log p / n` over the target tokens, one sequence at a time.
fn loss(model: &Transformer, examples: &[Example]) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for example in examples {
        let batch = TokenBatch::from_iter([example.ids.as_slice()]);
        let logits = model.logits(model.hidden(&batch, &mut Dropout::off()));
        let flat: Vec<f64> = logits.into_data().iter().collect();
        for t in example.first_target..example.ids.len() {
            let row = &flat[(t - 1) * VOCABULARY..t * VOCABULARY];
            let total: f64 = row.iter().map(|logit| logit.exp()).sum();
            sum -= row[example.ids[t] as usize] - total.ln();
            count += 1;
        }
    }
    sum / f64::from(count)
}

#[test]
fn the_loss_is_that_of_the_tokens_behind_the_prompt() {
    let mut config = config();
    config.optimizer.learning_rate = 0.0;
    let model = model(VOCABULARY, 2.0);
    let examples = examples();
    let all = Examples {
        train: examples.train.iter().map(|e| Example::of_all(e.ids.clone())).collect(),
        ..examples.clone()
    };
    let expected = [loss(&model, &examples.train), loss(&model, &examples.validation)];
    assert!(
        (expected[0] - loss(&model, &all.train)).abs() > 0.01,
        "prompts change next to nothing"
    );
    for micro_batch_tokens in [None, Some(1), Some(2), Some(100)] {
        let (recorder, _) =
            run(model.clone(), &PretrainConfig { micro_batch_tokens, ..config.clone() });
        let losses = recorder.losses();
        assert_eq!((losses.len(), recorder.steps[0].num_tokens), (1, 5 + 2 + 1 + 4 + 1));
        assert!((losses[0] - expected[0]).abs() < 1e-6, "{} {}", losses[0], expected[0]);
        let valid = recorder.valid()[0];
        assert!((valid - expected[1]).abs() < 1e-6, "{valid} {}", expected[1]);
    }
}

/// With ε = 1 in AdamW, a step is a smooth function of the gradient.
fn smooth() -> PretrainConfig {
    let mut config = PretrainConfig { epochs: 3, batch_size: 3, ..config() };
    config.optimizer.epsilon = 1.0;
    config.optimizer.learning_rate = 1.0;
    config.optimizer.max_grad_norm = 1e6;
    config
}

#[test]
fn micro_batches_decide_nothing() {
    let start = model(VOCABULARY, 2.0);
    let (whole, after) = run(start.clone(), &smooth());
    let moved = distance(&parameters(&after), &parameters(&start));
    assert!(moved > 1e-2, "{moved}");
    for size in [1, 2] {
        let (cut, cut_after) =
            run(start.clone(), &PretrainConfig { micro_batch_tokens: Some(size), ..smooth() });
        assert!(distance(&parameters(&after), &parameters(&cut_after)) < 1e-5 * moved);
        let numbers =
            |recorder: &Recorder| [recorder.losses(), recorder.norms(), recorder.valid()].concat();
        for (a, b) in numbers(&whole).iter().zip(&numbers(&cut)) {
            assert!((a - b).abs() < 2e-6 * a.abs(), "{a} and {b}");
        }
    }
}

/// Uses dropout in both the model and the adapter.
#[test]
fn blocks_computed_twice_train_the_same() {
    let model = model(VOCABULARY, 2.0);
    let lora = LoraConfig { rank: 2, alpha: 8.0, dropout: 0.4, ..LoraConfig::default() };
    let adapter = Adapter::random(&lora, &model, 1, &model.device()).unwrap();
    for policy in [Policy::Whole(model.clone()), Policy::Adapted(Adapted::new(&model, adapter))] {
        let of = |activation_checkpointing, dropout| {
            let config = PretrainConfig {
                condition_dropout: None,
                activation_checkpointing,
                dropout,
                micro_batch_tokens: Some(2),
                ..smooth()
            };
            let (recorder, trained) = run(policy.clone(), &config);
            (recorder.losses(), recorder.norms(), recorder.valid(), parameters(&trained))
        };
        assert_eq!(of(false, 0.2), of(true, 0.2));
        assert_ne!(of(false, 0.2).0, of(false, 0.0).0);
    }
}
