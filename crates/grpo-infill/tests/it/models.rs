//! Shared passages, models and a recorder for tests of infillers and judges.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::Purpose;
use grpo_infill::{
    InfillerConfig, MASKING, MaskedStream, Masking, MaskingPlan, PassageOptions, PassageUnit,
    Passages, SequenceScorer, Split,
};
use grpo_model::Transformer;
use grpo_train::{OptimizerConfig, StepsConfig};

use crate::training::optimizer;

/// Returns passages of a text in which each character determines all others.
pub(crate) fn passages(length: usize) -> Arc<Passages> {
    of_text(&"abcd".repeat(160), length)
}

pub(crate) fn of_text(text: &str, length: usize) -> Arc<Passages> {
    let options = PassageOptions {
        file: "text".into(),
        length,
        unit: PassageUnit::Window,
        validation_fraction: 0.25,
    };
    Arc::new(Passages::from_text(text, &options, None).unwrap())
}

pub(crate) fn random(max_ratio: f64) -> MaskingPlan {
    let stages = vec![Masking::Random { min_ratio: 0.0, max_ratio }];
    MaskingPlan::new(stages, Default::default()).unwrap()
}

pub(crate) fn stream(
    passages: &Arc<Passages>,
    split: Split,
    plan: &MaskingPlan,
    seed: u64,
) -> MaskedStream {
    let purpose = match split {
        Split::Train => MASKING,
        Split::Validation => Purpose::EVALUATION,
    };
    MaskedStream::new(passages.clone(), split, plan.clone(), seed, purpose).unwrap()
}

pub(crate) fn sizes(passages: &Passages, critic: bool) -> InfillerConfig {
    let (vocabulary, length) = (passages.characters().len(), passages.options().length);
    InfillerConfig { critic, ..InfillerConfig::new(vocabulary, length, 2, 2, 64) }
}

pub(crate) fn infiller(passages: &Passages, critic: bool) -> Transformer {
    let config = sizes(passages, critic).infiller().unwrap();
    Transformer::random(&config, 1, &Device::flex().autodiff()).unwrap()
}

pub(crate) fn judge(passages: &Passages, seed: u64) -> SequenceScorer {
    let config = sizes(passages, false).sequence_scorer().unwrap();
    let device = Device::flex().autodiff();
    SequenceScorer::new(Transformer::random(&config, seed, &device).unwrap()).unwrap()
}

pub(crate) fn steps(steps: u64) -> StepsConfig {
    StepsConfig {
        steps,
        batch_size: 16,
        micro_batch_tokens: None,
        warmup_steps: steps.min(20),
        learning_rate_floor: 0.1,
        learning_rate_decay: grpo_train::Decay::Cosine {},
        dropout: 0.0,
        eval_every: 50,
        patience: 0,
        min_gain: 0.0,
        optimizer: OptimizerConfig { learning_rate: 5e-3, ..optimizer() },
    }
}
