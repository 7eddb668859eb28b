//! Compares the loss with plain f64 loops, and its gradients with finite differences.

use crate::{
    InfillerConfig, MASKING, MaskedStream, Masking, MaskingPlan, PassageOptions, PassageUnit,
    Passages, Split,
};
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Device;
use grpo_model::parameters;

use super::*;

fn data() -> MaskedData {
    let text = "abcdeabcdacbde".repeat(20);
    let options = PassageOptions {
        file: "text".into(),
        length: 9,
        unit: PassageUnit::Window,
        validation_fraction: 0.2,
    };
    let passages = Passages::from_text(&text, &options, None).unwrap();
    let passages = Arc::new(passages);
    let plan = MaskingPlan::new(
        vec![Masking::Random { min_ratio: 0.2, max_ratio: 0.8 }],
        crate::Corruption::Bert,
    );
    let plan = plan.unwrap();
    let stream =
        |split| MaskedStream::new(passages.clone(), split, plan.clone(), 1, MASKING).unwrap();
    let characters = passages.characters().clone();
    MaskedData { characters, train: stream(Split::Train), validation: stream(Split::Validation) }
}

/// Returns a model with probabilities far from uniform.
fn model(sizes: &InfillerConfig) -> Transformer {
    let config = sizes.infiller().unwrap();
    larger(Transformer::random(&config, 1, &Device::flex().autodiff()).unwrap())
}

fn larger(model: Transformer) -> Transformer {
    struct Larger;
    impl ModuleMapper for Larger {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            // Keep norm scales at 1.
            let factor = if D == 2 { 15.0 } else { 1.0 };
            param.map(|value| match value.is_require_grad() {
                true => Tensor::from_inner(value.inner() * factor).require_grad(),
                false => value * factor,
            })
        }
    }
    model.map(&mut Larger)
}

fn moved(model: &Transformer, id: ParamId, element: usize, by: f32) -> Transformer {
    struct Move {
        id: ParamId,
        element: usize,
        by: f32,
    }
    impl ModuleMapper for Move {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if param.id != self.id {
                return param;
            }
            param.map(|value| {
                let shape = value.dims();
                let device = value.device().inner();
                let mut numbers: Vec<f32> = value.inner().into_data().iter().collect();
                numbers[self.element] += self.by;
                let data = TensorData::new(numbers, shape);
                Tensor::from_inner(Tensor::from_data(data, &device)).require_grad()
            })
        }
    }
    model.clone().map(&mut Move { id, element, by })
}

fn rows(tensor: Tensor<2>) -> Vec<Vec<f64>> {
    let [_, width] = tensor.dims();
    let numbers: Vec<f64> = tensor.into_data().iter::<f64>().collect();
    numbers.chunks(width).map(<[f64]>::to_vec).collect()
}

/// Computes `log p` for every character at each target.
fn log_probabilities(model: &Transformer, batch: &MaskedBatch, base: usize) -> Vec<Vec<f64>> {
    let hidden = model.hidden(&batch.inputs, &mut Dropout::off());
    let hidden = gather_rows(hidden, batch.places(&model.device()));
    let of_row = |logits: Vec<f64>| {
        let total: f64 = logits[..base].iter().map(|logit| logit.exp()).sum();
        logits[..base].iter().map(|logit| logit - total.ln()).collect()
    };
    rows(model.logits(hidden)).into_iter().map(of_row).collect()
}

/// Computes the weight of each target from full distributions and judge scores.
fn plain_weights(
    texts: &[MaskedText],
    batch: &MaskedBatch,
    log_probabilities: &[Vec<f64>],
    scores: &[f64],
    modifiers: &ModifierConfig,
) -> Vec<f64> {
    let of_target = |target: usize| {
        let ratio = texts[batch.texts[target]].ratio;
        let by_ratio = modifiers
            .mask_ratio
            .map_or(1.0, |m| (1.0 / ratio.powf(m.exponent)).max(m.min).min(m.max));
        let by_entropy = modifiers.entropy.map_or(1.0, |m| {
            let truth = batch.truths[target] as usize;
            let all = log_probabilities[target].iter().map(|logprob| logprob.exp());
            let wrong: Vec<f64> =
                all.enumerate().filter(|(id, _)| *id != truth).map(|(_, p)| p).collect();
            let total: f64 = wrong.iter().sum();
            let entropy: f64 = wrong.iter().map(|p| -(p / total) * (p / total).ln()).sum();
            1.0 + m.scale * (1.0 - entropy / (wrong.len() as f64).ln())
        });
        let by_judge = modifiers.judge.as_ref().map_or(1.0, |m| {
            let expected = ratio.powi(4) - 2.0 * ratio.powi(3) + 2.0 * ratio;
            let weight = (scores[batch.texts[target]] / expected).powf(m.exponent);
            assert!(m.min < weight && weight < m.max, "{weight} says nothing at its bounds");
            weight
        });
        by_ratio * by_entropy * by_judge
    };
    (0..batch.truths.len()).map(of_target).collect()
}

/// Computes `Σ_i w_i · −Σ_v q_i(v) log p_i(v) / n`.
fn plain_cross_entropy(
    batch: &MaskedBatch,
    log_probabilities: &[Vec<f64>],
    weights: &[f64],
    smoothing: f64,
) -> f64 {
    let mut sum = 0.0;
    for (target, logprobs) in log_probabilities.iter().enumerate() {
        for (id, logprob) in logprobs.iter().enumerate() {
            let is_true = id == batch.truths[target] as usize;
            let q = smoothing / logprobs.len() as f64 + if is_true { 1.0 - smoothing } else { 0.0 };
            sum -= weights[target] * q * logprob;
        }
    }
    sum / log_probabilities.len() as f64
}

/// Computes the mean of `−ln σ` for wrong characters and `−ln (1 − σ)` for correct ones.
fn plain_critic(
    model: &Transformer,
    texts: &[MaskedText],
    filled: &[Vec<u32>],
    scope: CriticScope,
) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for (text, filled) in texts.iter().zip(filled) {
        let alone = grpo_model::TokenBatch::from_iter([filled.as_slice()]);
        let hidden = model.hidden(&alone, &mut Dropout::off());
        let logits = model.critic(hidden).unwrap().into_data();
        for (place, logit) in logits.iter::<f64>().enumerate() {
            if scope == CriticScope::MaskedOnly && !text.is_target[place] {
                continue;
            }
            let wrong = 1.0 / (1.0 + (-logit).exp());
            let is_wrong = filled[place] != text.original[place];
            sum -= if is_wrong { wrong.ln() } else { (1.0 - wrong).ln() };
            count += 1.0;
        }
    }
    sum / count
}

/// Returns a judge for texts of nine characters that gives them distinct scores.
fn judge(data: &MaskedData) -> SequenceScorer {
    judge_of(data, 9)
}

fn judge_of(data: &MaskedData, length: usize) -> SequenceScorer {
    let sizes = InfillerConfig::new(data.characters.len(), length, 1, 2, 8);
    let config = sizes.sequence_scorer().unwrap();
    SequenceScorer::new(larger(Transformer::random(&config, 2, &Device::flex()).unwrap())).unwrap()
}

fn steps() -> StepsConfig {
    let new = grpo_train::OptimizerConfig::new(1e-3);
    let optimizer = grpo_train::OptimizerConfig { weight_decay: 0.0, ..new };
    StepsConfig {
        steps: 10,
        batch_size: 6,
        micro_batch_tokens: None,
        warmup_steps: 0,
        learning_rate_floor: 0.1,
        learning_rate_decay: grpo_train::Decay::Cosine {},
        dropout: 0.0,
        eval_every: 10,
        patience: 0,
        min_gain: 0.0,
        optimizer,
    }
}

fn check(modifiers: ModifierConfig, critic: Option<CriticConfig>) {
    let data = data();
    let sizes = InfillerConfig {
        critic: critic.is_some(),
        ..InfillerConfig::new(data.characters.len(), 9, 1, 2, 8)
    };
    let model = model(&sizes);
    let transfer = TransferConfig::default();
    let config = MaskedLmConfig { steps: steps(), eval_batches: 1, modifiers, critic, transfer };
    let settings = SamplingSettings {
        forbidden: data.characters.specials().to_vec(),
        ..SamplingSettings::default()
    };
    let distribution = settings.checked(data.characters.len()).unwrap();
    let rng = CounterRng::new(1, Purpose::SAMPLING);
    let judge = config.modifiers.judge.as_ref().map(|_| judge(&data));
    let judge = judge.as_ref();
    config.check_with(&model, &data, judge).unwrap();
    let batches = PreparedBatches::new(data.train.clone());
    let objective =
        MaskedLmObjective { data: &data, batches, judge, config: &config, distribution, rng };
    let mut computed = objective.step(&model, 3, &mut Dropout::off()).unwrap();

    let texts = data.train.batch(3, 6).unwrap();
    let batch = MaskedBatch::new(&texts, &data.characters);
    let base = data.characters.base_len();
    let here = log_probabilities(&model, &batch, base);
    let hidden = model.hidden(&batch.inputs, &mut Dropout::off());
    let hidden = gather_rows(hidden, batch.places(&model.device()));
    let filled = objective.filled(&model, &hidden, &texts, &batch, 0, 3).unwrap();
    let scores: Vec<f64> =
        judge.iter().flat_map(|judge| filled.iter().map(|text| judge.score(text))).collect();
    let weights = plain_weights(&texts, &batch, &here, &scores, &config.modifiers);
    let plain = |model: &Transformer| {
        let logprobs = log_probabilities(model, &batch, base);
        let smoothing = config.modifiers.label_smoothing;
        let cross_entropy = plain_cross_entropy(&batch, &logprobs, &weights, smoothing);
        cross_entropy
            + config.critic.map_or(0.0, |critic| {
                critic.weight(3) * plain_critic(model, &texts, &filled, critic.scope)
            })
    };
    let expected = plain(&model);
    assert!((computed.loss - expected).abs() < 1e-5, "{} {expected}", computed.loss);

    let mut compared = 0;
    for parameter in parameters(&model) {
        let gradient = Gradient::of(&model, parameter.id, &mut computed.gradients);
        // Test the element with the largest gradient, and one in the middle.
        let largest =
            (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()));
        for element in largest.into_iter().chain([gradient.len() / 2]) {
            if gradient.is_empty() {
                continue;
            }
            let step = 2e-3;
            let at = |by| plain(&moved(&model, parameter.id, element, by));
            let quotient = (at(step) - at(-step)) / (2.0 * f64::from(step));
            let found = f64::from(gradient[element]);
            let tolerance = 2e-3 * quotient.abs() + 1e-3;
            assert!(
                (found - quotient).abs() < tolerance,
                "{}[{element}]: {found}, and the quotient is {quotient}",
                parameter.path
            );
            compared += usize::from(quotient.abs() > 2e-2);
        }
    }
    assert!(compared > 10, "only {compared} gradients are large enough to say anything");
}

/// Extracts the gradient of a single parameter.
struct Gradient<'a> {
    id: ParamId,
    gradients: &'a mut GradientsParams,
    found: Vec<f32>,
}

impl Gradient<'_> {
    fn of(model: &Transformer, id: ParamId, gradients: &mut GradientsParams) -> Vec<f32> {
        let mut visitor = Gradient { id, gradients, found: Vec::new() };
        model.visit(&mut visitor);
        visitor.found
    }
}

impl burn::module::ModuleVisitor for Gradient<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.id == self.id
            && let Some(gradient) = self.gradients.get::<D>(param.id)
        {
            self.found = gradient.into_data().iter().collect();
        }
    }
}

#[test]
fn plain_cross_entropy_has_its_gradients() {
    check(ModifierConfig::default(), None);
}

#[test]
fn label_smoothing_has_its_gradients_and_leaves_out_what_is_no_character() {
    check(ModifierConfig { label_smoothing: 0.1, ..ModifierConfig::default() }, None);
}

#[test]
fn entropy_weighting_has_its_gradients() {
    let entropy = Some(EntropyWeighting { scale: 2.0 });
    check(ModifierConfig { entropy, ..ModifierConfig::default() }, None);
}

#[test]
fn mask_ratio_weighting_has_its_gradients() {
    let mask_ratio = Some(MaskRatioWeighting::default());
    check(ModifierConfig { mask_ratio, ..ModifierConfig::default() }, None);
}

#[test]
fn judge_weighting_has_its_gradients() {
    let judge = Some(JudgeWeighting {
        model: std::path::PathBuf::new(),
        exponent: 1.5,
        min: 0.01,
        max: 100.0,
        accept_failed_judge: false,
    });
    check(ModifierConfig { judge, ..ModifierConfig::default() }, None);
}

#[test]
fn a_judge_is_there_where_it_weighs_and_sees_whole_texts() {
    let data = data();
    let sizes = InfillerConfig::new(data.characters.len(), 9, 1, 2, 8);
    let config = sizes.infiller().unwrap();
    let model = Transformer::random(&config, 1, &Device::flex().autodiff()).unwrap();
    let judge = judge(&data);
    let weighting = JudgeWeighting {
        model: std::path::PathBuf::new(),
        exponent: 1.0,
        min: 0.1,
        max: 10.0,
        accept_failed_judge: false,
    };
    let plain = MaskedLmConfig::plain(steps());
    let mut weighed = plain.clone();
    weighed.modifiers.judge = Some(weighting);
    assert!(plain.check_with(&model, &data, None).is_ok());
    assert!(weighed.check_with(&model, &data, Some(&judge)).is_ok());
    let fault = |config: &MaskedLmConfig, judge| {
        config.check_with(&model, &data, judge).unwrap_err().to_string()
    };
    assert!(fault(&plain, Some(&judge)).starts_with("the judge has no effect without"));
    assert!(fault(&weighed, None).starts_with("modifiers.judge requires a judge"));
    let short = judge_of(&data, 8);
    let found = fault(&weighed, Some(&short));
    assert!(
        found.contains("the judge's context is 8 characters, but texts have up to 9"),
        "{found}"
    );
}

#[test]
fn the_critic_has_its_gradients_in_both_scopes() {
    for scope in [CriticScope::MaskedAndIgnore, CriticScope::MaskedOnly] {
        let critic = CriticConfig { scope, ..CriticConfig::default() };
        check(ModifierConfig::default(), Some(critic));
    }
}
