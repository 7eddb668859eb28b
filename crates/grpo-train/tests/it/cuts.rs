//! Tests that the gradient does not depend on how completions are split into micro-batches or which
//! prompts they share. It must be equal to the sum over completions that are processed separately.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Gradients, Int, Tensor};
use grpo_core::Preset;
use grpo_data::{
    Completion, CompletionParts, Finish, Group, Prefix, Prompt, SampleKey, SampledUnder,
};
use grpo_model::{Dropout, Frozen, LanguageModel, TokenBatch, Transformer};
use grpo_molecules::MolGptConfig;
use grpo_rewards::{Outcome, Scored};
use grpo_train::{Learner, LossSettings};

use crate::support::{config, distance, parameters, shaken};

const VOCABULARY: usize = 12;
const GROUP: usize = 4;

fn policy(scale: f32) -> Transformer {
    let mut sizes = MolGptConfig::new(VOCABULARY, 32, 1, 2, 16);
    (sizes.num_props, sizes.partial_props, sizes.scaffold) = (2, true, true);
    shaken(sizes.to_config().unwrap(), scale)
}

/// Conditions of a group: none, values, tokens, or both.
fn prefix(index: u32) -> Prefix {
    let ids = [&[][..], &[], &[4, 7, 1], &[4, 7, 1]][index as usize % 4];
    let values = [&[][..], &[Some(0.5), None], &[], &[Some(-1.0), Some(2.0)]][index as usize % 4];
    Prefix { ids: ids.to_vec(), values: values.to_vec() }
}

/// Creates a group whose completions have the given lengths.
fn group(index: u32, prompt: &[u32], lengths: [usize; GROUP], policy: &Transformer) -> Group {
    let completion = |(sample, length): (u32, usize)| {
        let id = |t: usize| (t * t * 3 + t + 5 * sample as usize + 2 * index as usize) % VOCABULARY;
        let ids: Vec<u32> =
            prompt.iter().copied().chain((0..length).map(|t| id(t) as u32)).collect();
        let logprobs: Vec<f32> =
            logprobs(policy, &prefix(index), &ids, prompt.len()).into_data().iter().collect();
        Completion::new(CompletionParts {
            prefix: prefix(index),
            action_mask: (0..ids.len()).map(|t| t >= prompt.len()).collect(),
            ids,
            sampling_logprobs: Some(logprobs),
            finish: Finish::Length,
            key: SampleKey { seed: 1, step: 0, prompt: index, sample },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    };
    let completions = (0..).zip(lengths).map(completion);
    let prompt = Prompt::of_ids(index, prompt.to_vec());
    Group::new(Prompt { prefix: prefix(index), ..prompt }, completions)
}

/// Creates prompts of 1, 3, 4 and 10 tokens. Some neighbours are equal or share a prefix, and some
/// completions consist of a single token.
fn groups(policy: &Transformer) -> Vec<Group> {
    let long: &[u32] = &[3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
    let prompts: [(&[u32], [usize; GROUP]); 8] = [
        (&[2], [1, 5, 9, 2]),
        (&[2, 7, 1], [3, 1, 1, 6]),
        (&long[..4], [1, 8, 2, 5]),
        (long, [1, 1, 7, 3]),
        // The same prompt again, but in a different group.
        (long, [4, 2, 1, 11]),
        (&[3, 1, 4, 8], [1, 1, 1, 1]),
        (&[3, 1, 4, 1], [2, 6, 1, 3]),
        (&[2], [5, 1, 2, 12]),
    ];
    (0..)
        .zip(prompts)
        .map(|(index, (prompt, lengths))| group(index, prompt, lengths, policy))
        .collect()
}

/// Returns log-probabilities of `ids`, starting at index `first`, for a single sequence.
/// Differentiable if the policy is.
fn logprobs(policy: &Transformer, prefix: &Prefix, ids: &[u32], first: usize) -> Tensor<1> {
    let mut input = TokenBatch::new();
    input.push_conditional(prefix, &ids[..ids.len() - 1]);
    let logits = policy.logits(policy.hidden(&input, &mut Dropout::off()));
    let actions = ids.len() - first;
    let logits = logits.narrow(0, first - 1, actions);
    let targets: Vec<i32> = ids[first..].iter().map(|&id| id as i32).collect();
    let targets: Tensor<1, Int> = Tensor::from_data(targets.as_slice(), &logits.device());
    log_softmax(logits, 1).gather(1, targets.reshape([actions, 1])).reshape([actions])
}

/// Rewards in a group, with a mean of 1 and a sample standard deviation of [`DEVIATION`].
const REWARDS: [f64; GROUP] = [0.0, 3.0, 1.0, 0.0];
const DEVIATION: f64 = std::f64::consts::SQRT_2;
/// Added to the standard deviation.
const EPSILON: f64 = 1e-4;

/// Computes the gradient of the GRPO loss at the sampling policy from its definition, using
/// `∇ratio = ∇log π`: `−1/G Σ_i 1/|o_i| Σ_t Â_i ∇log π(o_{i,t})` for [`Preset::Grpo`], and a single
/// mean over all tokens for [`Preset::Dapo`].
fn gradient(policy: &Transformer, groups: &[Group], preset: Preset) -> Vec<f32> {
    struct OfParameters<'a>(&'a Gradients, Vec<f32>);
    impl ModuleVisitor for OfParameters<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            match param.val().grad(self.0) {
                Some(gradient) => self.1.extend(gradient.into_data().iter::<f32>()),
                None => self.1.resize(self.1.len() + param.val().shape().num_elements(), 0.0),
            }
        }
    }
    let completions: Vec<(&Completion, f64)> = groups
        .iter()
        .flat_map(|group| group.completions().zip(REWARDS))
        .map(|(completion, reward)| (completion, (reward - 1.0) / (DEVIATION + EPSILON)))
        .collect();
    let count = completions.len() as f64;
    let tokens: usize = completions.iter().map(|(completion, _)| completion.actions()).sum();
    let mut sum: Vec<f64> = Vec::new();
    for (completion, advantage) in completions {
        let ids = completion.ids();
        let first = ids.len() - completion.actions();
        let logprobs = logprobs(policy, completion.prefix(), ids, first);
        let weight = match preset {
            Preset::Grpo => advantage / count / completion.actions() as f64,
            _ => advantage / tokens as f64,
        };
        let gradients = (logprobs.sum() * -weight).backward();
        let mut of = OfParameters(&gradients, Vec::new());
        policy.visit(&mut of);
        sum.resize(of.1.len(), 0.0);
        sum.iter_mut().zip(of.1).for_each(|(sum, gradient)| *sum += f64::from(gradient));
    }
    sum.into_iter().map(|gradient| gradient as f32).collect()
}

/// Result of a step: the parameters and all reported numbers.
#[derive(Debug)]
struct Learned {
    parameters: Vec<f32>,
    numbers: Vec<(String, f64)>,
}

fn learn(
    policy: &Transformer,
    groups: &[Group],
    budget: usize,
    updates: u32,
    loss: LossSettings,
) -> Learned {
    let mut config = config();
    config.train.group_size = GROUP;
    config.train.micro_batch_tokens = budget;
    config.train.updates_per_rollout = updates;
    config.loss = loss;
    config.advantage.epsilon = EPSILON;
    // A step is then a smooth function of the gradient: g / (|g| + 1).
    config.optimizer.epsilon = 1.0;
    config.optimizer.max_grad_norm = 1e6;
    let reference = Frozen::snapshot(&self::policy(1.9));
    let mut learner = Learner::new(policy.clone(), reference, &config).unwrap();
    let mut groups = groups.to_vec();
    let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
    for (sample, reward) in samples.zip(REWARDS.into_iter().cycle()) {
        sample.outcome = Some(Outcome::Scored(Scored::new(vec![(1.0, reward)], vec![])));
    }
    let learned = learner.learn(&mut groups, 1.0).unwrap();
    let mut numbers = Vec::new();
    for (i, update) in learned.updates.iter().enumerate() {
        let mut push = |name: &str, value| numbers.push((format!("{name} of update {i}"), value));
        push("loss", update.loss);
        push("grad_norm", update.grad_norm);
        push("entropy", update.tokens.kept_entropy().unwrap_or(0.0));
        push("tokens", update.tokens.tokens() as f64);
        update.tokens.metrics().into_iter().for_each(|(name, value)| push(name, value));
    }
    Learned { parameters: parameters(learner.policy()), numbers }
}

/// Micro-batch sizes in tokens: completions are processed separately, several at a time, or all
/// together.
const BUDGETS: [usize; 5] = [1, 7, 20, 64, 4096];

#[test]
fn the_gradient_is_that_of_each_completion_alone() {
    let policy = policy(2.0);
    let groups = groups(&policy);
    let before = parameters(&policy);
    for preset in [Preset::Grpo, Preset::Dapo] {
        let gradient = gradient(&policy, &groups, preset);
        let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let expected: Vec<f32> =
            before.iter().zip(&gradient).map(|(value, g)| value - g / (g.abs() + 1.0)).collect();
        let moved = distance(&before, &expected);
        assert!(moved > 1e-2, "{preset:?} moves by {moved} only");
        for budget in BUDGETS {
            let loss = LossSettings { preset, kl_coef: Some(0.0), ..LossSettings::default() };
            let learned = learn(&policy, &groups, budget, 1, loss);
            let apart = distance(&learned.parameters, &expected);
            assert!(apart < 5e-7, "{preset:?}, {budget} tokens: {apart} of {moved}");
            let (_, found) =
                learned.numbers.iter().find(|(name, _)| name.starts_with("grad_norm")).unwrap();
            assert!((found - norm).abs() < 1e-5 * norm, "{preset:?}, {budget} tokens");
        }
    }
}

/// Includes a KL penalty and a second update, in which ratios differ from 1.
#[test]
fn every_number_of_a_step_is_the_same_in_any_cut() {
    let policy = policy(2.0);
    let groups = groups(&policy);
    for preset in [Preset::Grpo, Preset::Dapo, Preset::DrGrpo] {
        let loss = LossSettings { preset, kl_coef: Some(0.05), ..LossSettings::default() };
        let [whole, others @ ..] =
            [4096, 64, 20, 7, 1].map(|budget| learn(&policy, &groups, budget, 2, loss));
        let moved = distance(&whole.parameters, &parameters(&policy));
        assert!(moved > 1e-2, "{preset:?} moved by {moved} only");
        for other in others {
            let apart = distance(&whole.parameters, &other.parameters);
            assert!(apart < 1e-4 * moved, "{preset:?}: {apart} of {moved}");
            assert_eq!(whole.numbers.len(), other.numbers.len());
            for ((name, a), (_, b)) in whole.numbers.iter().zip(&other.numbers) {
                assert!((a - b).abs() <= 1e-5 * (0.1 + a.abs()), "{preset:?}: {name}: {a} and {b}");
            }
        }
    }
}
