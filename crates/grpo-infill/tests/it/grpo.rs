//! GRPO with an infiller. All blanks of a text are filled at once, and scored under the
//! distribution from which they were drawn.

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor};
use grpo_core::{KlEstimator, Preset, Reduction, RewardScale};
use grpo_data::{Codec, Completion, Group, Prompt, Sample, TextCodec};
use grpo_infill::{Characters, FillBlanks, InfillerConfig};
use grpo_model::{
    Dropout, Frozen, LanguageModel, ModelConfig, ProductPrecision, TokenBatch, Transformer,
};
use grpo_rewards::Reward;
use grpo_train::{Decode, Grpo, GrpoConfig, Metrics, Parts, StepReport};

use crate::oracle::advantages;
use crate::training::{config, distance, parameters, pattern, shaken_with};

const MASK: u32 = 8;

fn characters() -> Characters {
    Characters::from_texts(["abcdefgh"]).unwrap()
}

fn sizes() -> ModelConfig {
    InfillerConfig::new(11, 16, 2, 2, 16).infiller().unwrap()
}

/// Returns an infiller with probabilities far from uniform.
fn infiller() -> Transformer {
    shaken_with(Codec::from_text_codec(characters()), sizes(), 2.0)
}

fn settings() -> GrpoConfig {
    let mut config = config();
    config.sampling.max_new_tokens = 16;
    config.sampling.temperature = 0.8;
    config.sampling.top_p = Some(0.95);
    config.loss.preset = Preset::Reinforce;
    config.loss.kl_estimator = Some(KlEstimator::Exact);
    config
}

fn texts() -> Vec<Prompt> {
    let ids: [&[u32]; 3] =
        [&[0, MASK, 2, MASK, 1], &[MASK, 1, MASK, MASK, 4, 5, 6, MASK], &[7, 6, MASK]];
    ids.iter().zip(0..).map(|(ids, index)| Prompt::of_ids(index, ids.to_vec())).collect()
}

fn begin(
    reward: Arc<dyn Reward>,
    policy: Transformer,
    reference: Frozen<Transformer>,
    config: GrpoConfig,
) -> Grpo<Transformer> {
    let characters = characters();
    let actions = Arc::new(FillBlanks { mask_id: MASK, forbidden: characters.specials().to_vec() });
    let decode: Decode = Arc::new(move |ids| characters.decode(ids));
    let parts = Parts {
        policy,
        reference,
        engine: actions,
        reward,
        extensions: Vec::new(),
        longest_prompt: 16,
        epoch: None,
        decode,
    };
    Grpo::new(parts, config, 3).unwrap()
}

fn grpo(config: GrpoConfig) -> Grpo<Transformer> {
    let policy = infiller();
    // The rewards depend on what is filled in.
    let reward = pattern("^a[a-d]c|^[a-d]b|^h.[a-d]");
    begin(reward, policy.clone(), Frozen::snapshot(&policy), config)
}

fn metric(report: &StepReport, name: &str) -> f64 {
    Metrics::of(report, 0).get(name).unwrap_or_else(|| panic!("{name} is measured"))
}

/// Acceptance tests 3 and 4: before the first update, the policy equals the reference, and the
/// trainer computes the same probabilities as the sampler. This includes truncation, temperature
/// and forbidden IDs.
#[test]
fn at_the_first_step_policy_reference_and_sampler_are_one() {
    for precision in [ProductPrecision::F32, ProductPrecision::Bf16, ProductPrecision::F16] {
        for estimator in [KlEstimator::Exact, KlEstimator::K3] {
            let mut config = settings();
            config.train.precision = precision;
            config.loss.kl_estimator = Some(estimator);
            config.loss.preset = Preset::Grpo;
            config.loss.kl_coef = Some(0.1);
            let report = grpo(config).step(&texts(), 0).unwrap();
            let check = |name: &str, holds: fn(f64) -> bool| {
                let value = metric(&report, name);
                assert!(holds(value), "{precision:?}, {estimator:?}: {name} = {value}");
            };
            check("kl", |kl| kl.abs() < 1e-6);
            check("clip_ratio/region_mean", |ratio| ratio == 0.0);
            // Bit for bit.
            check("sampling/sampling_logp_difference/max", |difference| difference == 0.0);
            check("frac_reward_zero_std", |fraction| fraction < 1.0);
            check("grad_norm", |norm| norm > 0.0);
        }
    }
}

/// The reward function sees the entire filled text.
#[test]
fn the_reward_reads_the_whole_text() {
    let report = grpo(settings()).step(&texts(), 0).unwrap();
    for (place, sample) in report.samples().enumerate() {
        let text = &sample.text;
        let prompt = characters().decode(&texts()[place / 8].ids);
        assert_eq!(text.chars().count(), prompt.chars().count());
        let kept = text.chars().zip(prompt.chars()).filter(|(_, asked)| *asked != '␣');
        assert!(kept.clone().all(|(now, asked)| now == asked), "{text} of {prompt}");
        assert!(text.chars().all(|c| ('a'..='h').contains(&c)), "{text}");
    }
}

/// The text of a group is normally processed once for the entire group. The update is the same with
/// separate texts, other micro-batch sizes, and activation checkpointing.
#[test]
fn shared_texts_and_micro_batches_change_nothing() {
    for reduction in [Reduction::SequenceMean, Reduction::SequenceSum, Reduction::TokenMean] {
        let run = |tokens: usize, checkpointing: bool| {
            let mut config = settings();
            config.loss.kl_coef = Some(0.1);
            config.loss.reduction = Some(reduction);
            config.train.micro_batch_tokens = tokens;
            config.train.activation_checkpointing = checkpointing;
            // With a smaller epsilon, Adam would amplify the rounding errors of small gradients.
            config.optimizer.epsilon = 1e-3;
            let mut grpo = grpo(config);
            let before = parameters(grpo.policy());
            grpo.step(&texts(), 0).unwrap();
            (before, parameters(grpo.policy()))
        };
        let (before, together) = run(4096, false);
        let way = distance(&before, &together);
        assert!(way > 1e-3, "{way}");
        for other in [run(1, false).1, run(9, false).1, run(4096, true).1] {
            let away = distance(&together, &other);
            assert!(away < 2e-3 * way, "{away} of {way}");
        }
    }
}

/// Computes `−1/n Σ_i A_i Σ_j log π(o_ij | x_i)` over the blanks j from the model's logits, one
/// completion at a time. The distribution is the one used for sampling: temperature 0.8, restricted
/// to characters and to what top-p kept.
fn reinforce(policy: &Transformer, completions: &[&Completion], advantages: &[f64]) -> Tensor<1> {
    let mut loss = Tensor::zeros([1], &policy.device());
    for (completion, advantage) in completions.iter().zip(advantages) {
        let mask = completion.action_mask();
        let blanked = |(&id, &action): (&u32, &bool)| if action { MASK } else { id };
        let text: Vec<u32> = completion.ids().iter().zip(mask).map(blanked).collect();
        let tokens = TokenBatch::from_iter([text.as_slice()]);
        let logits = policy.logits(policy.hidden(&tokens, &mut Dropout::off())) / 0.8;
        let kept = completion.sampled_under().kept.as_ref().unwrap();
        let blanks = (0..text.len()).filter(|&place| mask[place]);
        for (place, kept) in blanks.zip(kept) {
            let of = |id: u32| {
                let (place, id) = (place, id as usize);
                logits.clone().slice([place..place + 1, id..id + 1]).reshape([1])
            };
            let all = kept.iter().map(|id| of(id).exp()).reduce(|a, b| a + b).unwrap();
            let logprob = of(completion.ids()[place]) - all.log();
            loss = loss - logprob * (advantage / completions.len() as f64);
        }
    }
    loss
}

/// Returns the gradient of every parameter in the order of [`parameters`], or 0 for unused
/// parameters.
fn flat(policy: &Transformer, gradients: &Gradients) -> Vec<f32> {
    struct Numbers<'a>(Vec<f32>, &'a Gradients);
    impl ModuleVisitor for Numbers<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            match param.val().grad(self.1) {
                Some(gradient) => self.0.extend(gradient.into_data().iter::<f32>()),
                None => self.0.resize(self.0.len() + param.val().shape().num_elements(), 0.0),
            }
        }
    }
    let mut numbers = Numbers(vec![], gradients);
    policy.visit(&mut numbers);
    numbers.0
}

/// The gradient matches the formula: only blanks contribute, each with its own distribution, summed
/// over a text.
#[test]
fn the_gradient_is_that_of_the_formula() {
    let mut config = settings();
    config.loss.kl_coef = None;
    config.loss.reduction = Some(Reduction::SequenceSum);
    config.advantage.scale = Some(RewardScale::None);
    // With these settings, Adam's first step is −g / (|g| + 1), from which every element of the
    // gradient can be recovered.
    config.optimizer.learning_rate = 1.0;
    config.optimizer.epsilon = 1.0;
    config.optimizer.max_grad_norm = 1e9;
    let mut grpo = grpo(config);
    let policy = grpo.policy().clone();
    let report = grpo.step(&texts(), 0).unwrap();
    let completions: Vec<&Completion> = report.groups.iter().flat_map(Group::completions).collect();
    let loss = reinforce(&policy, &completions, &advantages(&report));
    let expected = flat(&policy, &loss.backward());
    let norm = expected.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
    assert!(norm > 0.1, "{norm}");
    assert!(
        (report.learned.grad_norm() - norm).abs() < 1e-4 * norm,
        "{} {norm}",
        report.learned.grad_norm()
    );

    let (before, after) = (parameters(&policy), parameters(grpo.policy()));
    let read = |(before, after): (&f32, &f32)| (before - after) / (1.0 - (before - after).abs());
    let found: Vec<f32> = before.iter().zip(&after).map(read).collect();
    let largest = expected.iter().fold(0.0_f32, |largest, g| largest.max(g.abs()));
    let away = distance(&found, &expected);
    assert!(away < 1e-4 * largest, "{away} of {largest}");
}

/// Acceptance test 7: there is a single blank with eight possible characters, one of which is
/// rewarded.
#[test]
fn the_rewarded_character_is_found() {
    let mut config = settings();
    config.train.group_size = 16;
    config.sampling.top_p = None;
    config.loss.kl_coef = None;
    let policy = Transformer::random(&sizes(), 1, &Device::flex().autodiff()).unwrap();
    let mut grpo = begin(pattern("^ae"), policy.clone(), Frozen::snapshot(&policy), config);
    let text = [Prompt::of_ids(0, vec![0, MASK, 2])];
    let share =
        |report: &StepReport| report.samples().filter_map(Sample::reward).sum::<f64>() / 16.0;
    let first = grpo.step(&text, 0).unwrap();
    assert!(share(&first) < 0.4, "{}", share(&first));
    (1..60).for_each(|step| drop(grpo.step(&text, step).unwrap()));
    let rewarded = grpo.step(&text, 60).unwrap().groups[0].completions().find_map(|c| {
        (c.ids()[1] == 4).then(|| f64::from(c.sampling_logprobs().unwrap()[0]).exp())
    });
    assert!(rewarded.is_some_and(|p| p > 0.9), "{rewarded:?}");
}

/// Acceptance test 6: if all rewards are equal, only the KL penalty moves the policy, and it moves
/// it back towards the reference. Neither a differentiated k1 estimate nor a KL restricted to the
/// top-p set would do that.
#[test]
fn the_exact_kl_draws_the_policy_back() {
    for top_p in [None, Some(0.05)] {
        drawn_back(top_p);
    }
}

fn drawn_back(top_p: Option<f32>) {
    let mut config = settings();
    config.loss.kl_coef = Some(1.0);
    config.sampling.top_p = top_p;
    config.train.steps = 1000;
    let reference = Transformer::random(&sizes(), 2, &Device::flex().autodiff()).unwrap();
    let mut grpo = begin(pattern("."), infiller(), Frozen::snapshot(&reference), config);
    let kls: Vec<f64> = (0..30)
        .map(|step| {
            let report = grpo.step(&texts(), step).unwrap();
            assert_eq!(metric(&report, "frac_reward_zero_std"), 1.0);
            metric(&report, "kl")
        })
        .collect();
    assert!(kls.iter().all(|kl| *kl >= 0.0));
    assert!(kls[29] < 0.5 * kls[0], "{} from {}", kls[29], kls[0]);
}

/// A group in which all rewards are equal contributes nothing, regardless of other groups. This is
/// decided for each group, not based on the first one.
#[test]
fn a_group_of_equal_rewards_is_left_out_alone() {
    let mut config = settings();
    config.loss.kl_coef = None;
    let mut grpo = grpo(config);
    // In the first text, the blank doesn't affect whether the pattern matches.
    let texts = [vec![4, 4, MASK], vec![7, MASK, MASK, MASK]];
    let texts: Vec<Prompt> =
        texts.into_iter().zip(0..).map(|(ids, index)| Prompt::of_ids(index, ids)).collect();
    let report = grpo.step(&texts, 0).unwrap();
    let is_zero = |group: usize| report.groups[group].samples.iter().all(|s| s.advantage == 0.0);
    assert!(is_zero(0) && !is_zero(1), "{:?}", advantages(&report));
    assert_eq!(metric(&report, "frac_reward_zero_std"), 0.5);
    assert!(report.learned.grad_norm() > 0.0);
}
