//! Compares gradients of the diversity terms with exact expectations over all completions, and with
//! difference quotients computed in plain f64 loops.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::TokenSet;
use grpo_data::{CompletionParts, Finish, SampleKey, SampledUnder, SpecialIds};
use grpo_eval::DiversityMeasure;
use grpo_model::{Dropout, TokenBatch, Transformer};
use grpo_molecules::MolGptConfig;
use grpo_rewards::EmbedderConfig;

use super::*;
use crate::OptimizerConfig;
use crate::collate::micro_batches;

mod steps;

const VOCABULARY: usize = 3;
const END: u32 = 2;
const LONGEST: usize = 2;
const PROMPT: [u32; 2] = [1, 0];

/// Creates a model whose probabilities are far from uniform.
fn model(seed: u64) -> Transformer {
    struct Larger;
    impl ModuleMapper for Larger {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            // Norm scales stay at 1.
            let factor = if D == 2 { 12.0 } else { 1.0 };
            param.map(|value| Tensor::from_inner(value.inner() * factor).require_grad())
        }
    }
    let config = MolGptConfig::new(VOCABULARY, 8, 1, 2, 8).to_config().unwrap();
    Transformer::random(&config, seed, &Device::flex().autodiff()).unwrap().map(&mut Larger)
}

fn codec() -> Codec {
    Codec::of_ids(SpecialIds { bos: None, eos: vec![END], learned_end: Some(END), pad: None })
}

fn config(diversity: DiversityConfig) -> PretrainConfig {
    PretrainConfig {
        condition_dropout: None,
        epochs: 1,
        batch_size: 4,
        micro_batch_tokens: None,
        activation_checkpointing: false,
        precision: Default::default(),
        warmup_epochs: 0.0,
        learning_rate_floor: 1.0,
        learning_rate_decay: crate::Decay::Cosine {},
        dropout: 0.0,
        eval_every: 0,
        patience: 0,
        min_gain: 0.0,
        optimizer: OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::new(1e-2) },
        limits: None,
        eval: None,
        diversity: Some(diversity),
    }
}

fn score_function(weight: f64, measure: DiversityMeasure, sampling: [f32; 2]) -> DiversityConfig {
    let [temperature, top_p] = sampling;
    let is_semantic = measure == DiversityMeasure::Semantic;
    DiversityConfig::ScoreFunction(ScoreFunctionConfig {
        safe_mode: false,
        weight,
        measure,
        embedder: is_semantic.then_some(EmbedderConfig::HashedNgrams { width: 64 }),
        generations: 3,
        max_examples: 2,
        every: 2,
        temperature,
        top_p,
        max_new_tokens: LONGEST,
    })
}

fn examples() -> Vec<Example> {
    let of = |ids: &[u32], first_target| Example::new(ids.to_vec(), first_target);
    vec![of(&[1, 0, 0, 2], 2), of(&[0, 1, 2], 1), of(&[1, 1, 0, 2], 3), of(&[0, 0, 0, 1, 2], 2)]
}

fn term(config: &PretrainConfig, model: &Transformer) -> ScoreFunction {
    config.check().unwrap();
    let diversity = config.diversity.as_ref().unwrap();
    let term = DiversityTerm::new(diversity, config, model, &codec(), &examples(), 5).unwrap();
    let DiversityTerm::ScoreFunction(term) = term else { panic!("a score function") };
    *term
}

/// A possible completion.
#[derive(Clone)]
struct Outcome {
    ids: Vec<u32>,
    kept: Vec<Vec<u32>>,
    probability: f64,
}

/// Enumerates all possible completions in plain loops.
fn outcomes(model: &Transformer, [temperature, top_p]: [f32; 2]) -> Vec<Outcome> {
    let mut found = Vec::new();
    let mut open = vec![Outcome { ids: vec![], kept: vec![], probability: 1.0 }];
    while let Some(outcome) = open.pop() {
        if outcome.ids.len() == LONGEST || outcome.ids.last() == Some(&END) {
            found.push(outcome);
            continue;
        }
        let ids = [&PROMPT, outcome.ids.as_slice()].concat();
        let hidden = model.hidden(&TokenBatch::from_iter([ids.as_slice()]), &mut Dropout::off());
        let logits: Vec<f64> = model.logits(hidden).into_data().iter().collect();
        let last = &logits[logits.len() - VOCABULARY..];
        let weights: Vec<f64> =
            last.iter().map(|logit| (logit / f64::from(temperature)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut order: Vec<u32> = (0..VOCABULARY as u32).collect();
        order.sort_by(|&a, &b| weights[b as usize].total_cmp(&weights[a as usize]));
        let (mut kept, mut mass) = (Vec::new(), 0.0);
        for id in order {
            if mass < f64::from(top_p) * total {
                mass += weights[id as usize];
                kept.push(id);
            }
        }
        kept.sort_unstable();
        for &id in &kept {
            let mut longer = outcome.clone();
            longer.ids.push(id);
            longer.kept.push(kept.clone());
            longer.probability *= weights[id as usize] / mass;
            open.push(longer);
        }
    }
    found
}

fn completion(outcome: &Outcome, [temperature, top_p]: [f32; 2], sample: u32) -> Completion {
    let kept = outcome.kept.iter().map(|kept| TokenSet::from_sorted(kept, VOCABULARY).unwrap());
    let actions = outcome.ids.len();
    Completion::new(CompletionParts {
        prefix: Default::default(),
        ids: [&PROMPT, outcome.ids.as_slice()].concat(),
        action_mask: (0..PROMPT.len() + actions).map(|place| place >= PROMPT.len()).collect(),
        sampling_logprobs: Some(vec![-1.0; actions]),
        finish: Finish::Length,
        key: SampleKey { seed: 0, step: 0, prompt: 0, sample },
        policy_version: 0,
        sampled_under: SampledUnder {
            temperature,
            kept: (top_p < 1.0).then(|| kept.collect()),
            ..SampledUnder::default()
        },
    })
}

fn group(outcomes: [&Outcome; 3], sampling: [f32; 2]) -> Group {
    let completions = (0..).zip(outcomes).map(|(sample, o)| completion(o, sampling, sample));
    Group::new(Prompt::of_ids(0, PROMPT.to_vec()), completions)
}

fn texts(outcomes: [&Outcome; 3]) -> [String; 3] {
    outcomes.map(|outcome| codec().decode(&outcome.ids))
}

/// Calls `with` for each possible group of three completions.
fn each_group<'a>(outcomes: &'a [Outcome], mut with: impl FnMut([&'a Outcome; 3], f64)) {
    for a in outcomes {
        for b in outcomes {
            for c in outcomes {
                with([a, b, c], a.probability * b.probability * c.probability);
            }
        }
    }
}

/// Returns the group with the highest diversity, optionally among groups that contain two equal
/// completions.
fn most_diverse<'a>(
    outcomes: &'a [Outcome],
    diversity: &Diversity,
    has_twins: bool,
) -> [&'a Outcome; 3] {
    let (mut most, mut found) = (0.0, None);
    each_group(outcomes, |group, _| {
        let texts = texts(group);
        let score = diversity.of(&texts.each_ref().map(String::as_str)).unwrap();
        let [a, b, c] = group.map(|outcome| &outcome.ids);
        if (a == b || b == c || a == c) == has_twins && score > most {
            (most, found) = (score, Some(group));
        }
    });
    found.expect("some groups are diverse")
}

/// Computes `E[D(Y)]` in plain loops.
fn expected_diversity(model: &Transformer, diversity: &Diversity, sampling: [f32; 2]) -> f64 {
    let outcomes = outcomes(model, sampling);
    let mut sum = 0.0;
    each_group(&outcomes, |group, probability| {
        let texts = texts(group);
        sum += probability * diversity.of(&texts.each_ref().map(String::as_str)).unwrap();
    });
    sum
}

/// Flattens the gradients in the order of the module's parameters.
fn numbers(model: &Transformer, gradients: &GradientsParams) -> Vec<f64> {
    struct Numbers<'a>(&'a GradientsParams, Vec<f64>);
    impl ModuleVisitor for Numbers<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.0.get::<D>(param.id).map(Tensor::into_data);
            match gradient {
                Some(gradient) => self.1.extend(gradient.iter::<f64>()),
                None => self.1.extend(std::iter::repeat_n(0.0, param.val().shape().num_elements())),
            }
        }
    }
    let mut numbers = Numbers(gradients, Vec::new());
    model.visit(&mut numbers);
    numbers.1
}

/// Returns a copy of the model with its parameters moved by `by` along a direction.
fn moved(model: &Transformer, direction: &[f64], by: f64) -> Transformer {
    struct Move<'a>(&'a [f64], f64);
    impl ModuleMapper for Move<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let count = param.val().shape().num_elements();
            let (own, rest) = self.0.split_at(count);
            self.0 = rest;
            let by = self.1;
            param.map(|value| {
                let (shape, device) = (value.dims(), value.device().inner());
                let old = value.inner().into_data();
                let new: Vec<f32> =
                    old.iter::<f64>().zip(own).map(|(old, way)| (old + by * way) as f32).collect();
                let new = Tensor::from_data(TensorData::new(new, shape), &device);
                Tensor::from_inner(new).require_grad()
            })
        }
    }
    model.clone().map(&mut Move(direction, by))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Compares the gradient with difference quotients of `value`, both along the gradient and along
/// random directions.
#[track_caller]
fn check_gradient(model: &Transformer, gradient: &[f64], value: impl Fn(&Transformer) -> f64) {
    let norm = dot(gradient, gradient).sqrt();
    assert!(norm > 0.02, "a gradient of {norm} says nothing");
    let mut directions: Vec<Vec<f64>> = vec![gradient.iter().map(|g| g / norm).collect()];
    let rng = CounterRng::new(3, Purpose::EVALUATION);
    for direction in 0..4 {
        let way: Vec<f64> =
            (0..gradient.len()).map(|i| rng.normal([i as u32, direction, 0, 0])).collect();
        let length = dot(&way, &way).sqrt();
        directions.push(way.into_iter().map(|w| w / length).collect());
    }
    for direction in directions {
        let step = 4e-3;
        let at = |by| value(&moved(model, &direction, by));
        let quotient = (at(step) - at(-step)) / (2.0 * step);
        let found = dot(gradient, &direction);
        assert!(
            (found - quotient).abs() < 2e-3 * norm + 2e-5,
            "{found}, and the quotient is {quotient}"
        );
    }
}

/// The expected gradient over all groups must equal the gradient of −λ·E[D].
fn check_expectation(measure: DiversityMeasure, sampling: [f32; 2], seed: u64) {
    let model = model(seed);
    let weight = 0.7;
    let term = term(&config(score_function(weight, measure, sampling)), &model);
    let outcomes = outcomes(&model, sampling);
    let of_all: f64 = outcomes.iter().map(|outcome| outcome.probability).sum();
    assert!((of_all - 1.0).abs() < 1e-12 && outcomes.len() >= 4, "{}", outcomes.len());
    let (mut expected, mut score) = (Vec::new(), 0.0);
    each_group(&outcomes, |of_group, probability| {
        let sampled = term.judged(vec![group(of_group, sampling)]).unwrap();
        score += probability * sampled.contributions.score;
        let mut sum = GradientSum::default();
        term.add_gradients(&model, &sampled, &mut sum).unwrap();
        let gradient = numbers(&model, &sum.finish());
        expected.resize(gradient.len(), 0.0);
        expected.iter_mut().zip(gradient).for_each(|(sum, own)| *sum += probability * own);
    });
    let value = |model: &Transformer| expected_diversity(model, &term.diversity, sampling);
    assert!((score - value(&model)).abs() < 1e-9);
    check_gradient(&model, &expected, |model| -weight * value(model));
}

#[test]
fn the_score_function_is_the_gradient_of_the_expected_diversity() {
    check_expectation(DiversityMeasure::Semantic, [1.0, 1.0], 1);
    check_expectation(DiversityMeasure::Semantic, [0.7, 1.0], 2);
    check_expectation(DiversityMeasure::Bleu, [0.9, 1.0], 3);
    check_expectation(DiversityMeasure::Distinct, [0.9, 1.0], 4);
}

/// With truncated sampling, the ids that were kept at sampling time are used. A small step only
/// changes their probabilities.
#[test]
fn of_cut_draws_as_well() {
    check_expectation(DiversityMeasure::Semantic, [0.9, 0.9], 2);
}

/// Computes the expectation in a single pass, with all probabilities on the autodiff graph.
#[test]
fn the_estimator_has_no_bias_to_rounding() {
    let (model, sampling) = (model(2), [0.8, 1.0]);
    let term = term(&config(score_function(1.0, DiversityMeasure::Semantic, sampling)), &model);
    let outcomes = outcomes(&model, sampling);
    let completions: Vec<Completion> =
        (0..).zip(&outcomes).map(|(sample, o)| completion(o, sampling, sample)).collect();
    let all: Vec<&Completion> = completions.iter().collect();
    let micro = micro_batches(&all, usize::MAX, VOCABULARY).pop().unwrap();
    let forward = micro.forward(&model, false);
    let logprobs = micro.score_policy(&model, &forward.hidden).logprobs; // [n]
    let (count, actions) = (outcomes.len(), micro.sequences.len());
    let belongs = |o: usize| micro.sequences.iter().map(move |&own| f32::from(u8::from(own == o)));
    let belonging = TensorData::new((0..count).flat_map(belongs).collect(), [count, actions]);
    let belonging: Tensor<2> = Tensor::from_data(belonging, &logprobs.device());
    let sums = belonging.matmul(logprobs.unsqueeze_dim(1)); // [o, 1]
    let p: Tensor<2> = sums.exp();
    let pairs = (p.clone() * p.clone().transpose()).reshape([count * count, 1]);
    let triples = pairs * p.transpose(); // [o · o, o]
    let mut diversities: Vec<f32> = Vec::new();
    let mut mean = vec![0.0; 0];
    each_group(&outcomes, |of_group, probability| {
        let texts = texts(of_group);
        let texts = texts.each_ref().map(String::as_str);
        diversities.push(term.diversity.of(&texts).unwrap() as f32);
        let sampled = term.judged(vec![group(of_group, sampling)]).unwrap();
        let mut sum = GradientSum::default();
        term.add_gradients(&model, &sampled, &mut sum).unwrap();
        let gradient = numbers(&model, &sum.finish());
        mean.resize(gradient.len(), 0.0);
        mean.iter_mut().zip(gradient).for_each(|(sum, own)| *sum += probability * own);
    });
    let diversities = TensorData::new(diversities, [count * count, count]);
    let loss = (triples * Tensor::from_data(diversities, &model.device())).sum() * -1.0;
    let exact = numbers(&model, &GradientsParams::from_grads(loss.backward(), &model));
    let norm = dot(&exact, &exact).sqrt();
    let off: Vec<f64> = exact.iter().zip(&mean).map(|(exact, mean)| exact - mean).collect();
    assert!(
        norm > 0.02 && dot(&off, &off).sqrt() < 1e-5 * norm,
        "{norm} {}",
        dot(&off, &off).sqrt()
    );
}

/// Acceptance test 9: the gradient is zero for equal completions and for a weight of 0.
#[test]
fn equal_completions_and_no_weight_add_no_gradient() {
    let (model, sampling) = (model(2), [0.9, 0.9]);
    let all = outcomes(&model, sampling);
    let settings = score_function(0.3, DiversityMeasure::Semantic, sampling);
    let diversity = term(&config(settings), &model).diversity;
    let different = group(most_diverse(&all, &diversity, true), sampling);
    let count = |weight, group: &Group| {
        let settings = score_function(weight, DiversityMeasure::Semantic, sampling);
        let term = term(&config(settings), &model);
        let mut sum = GradientSum::default();
        let sampled = term.judged(vec![group.clone()]).unwrap();
        term.add_gradients(&model, &sampled, &mut sum).unwrap();
        (sampled.contributions.score, sum.finish().len())
    };
    assert_eq!(count(0.3, &group([&all[1]; 3], sampling)), (0.0, 0));
    let (score, gradients) = count(0.3, &different);
    assert!(score > 0.1 && gradients > 0);
    assert_eq!(count(0.0, &different), (score, 0));
}

/// Each group has the same weight, no matter how completions are split into micro-batches.
#[test]
fn the_gradient_is_a_mean_over_prompts() {
    let (model, sampling) = (model(2), [0.9, 1.0]);
    let all = outcomes(&model, sampling);
    let settings = score_function(0.5, DiversityMeasure::Semantic, sampling);
    let diversity = term(&config(settings), &model).diversity;
    let groups = [true, false].map(|twins| group(most_diverse(&all, &diversity, twins), sampling));
    let of = |groups: &[Group], micro_batch_tokens, activation_checkpointing| {
        let settings = score_function(0.5, DiversityMeasure::Semantic, sampling);
        let config =
            PretrainConfig { micro_batch_tokens, activation_checkpointing, ..config(settings) };
        let term = term(&config, &model);
        let mut sum = GradientSum::default();
        let sampled = term.judged(groups.to_vec()).unwrap();
        term.add_gradients(&model, &sampled, &mut sum).unwrap();
        numbers(&model, &sum.finish())
    };
    let both = of(&groups, None, false);
    let halves: Vec<f64> = of(&groups[..1], None, false)
        .iter()
        .zip(of(&groups[1..], None, false))
        .map(|(one, other)| 0.5 * (one + other))
        .collect();
    let norm = dot(&both, &both).sqrt();
    assert!(norm > 1e-3);
    for other in [halves, of(&groups, Some(3), false), of(&groups, Some(5), true)] {
        let off: Vec<f64> = both.iter().zip(other).map(|(a, b)| a - b).collect();
        assert!(dot(&off, &off).sqrt() < 1e-5 * norm);
    }
}

#[test]
fn examples_are_drawn_each_once_and_in_every_place() {
    let model = model(1);
    let settings = score_function(1.0, DiversityMeasure::Bleu, [1.0, 1.0]);
    let term = term(&config(settings), &model);
    let mut seen = [0; 5];
    for step in 0..200 {
        let mut places = term.places(5, step);
        assert_eq!(places, term.places(5, step));
        places.iter().for_each(|&place| seen[place] += 1);
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 2);
    }
    // The expected count is 80. The bounds allow for five standard deviations.
    assert!(seen.iter().all(|&count| (45..=115).contains(&count)), "{seen:?}");
    assert_eq!(term.places(1, 0), [0]);
}
