//! Compares entire optimizer steps with results from TRL (loss) and PyTorch (AdamW).

use std::path::Path;

use burn::tensor::TensorData;
use grpo_core::Preset;
use grpo_data::{Completion, CompletionParts, Finish, Group, Prompt, SampleKey, SampledUnder};
use grpo_model::{
    Frozen, Parameter, Policy, Positions, QueryKeyNorm, StoredTensors, Transformer, parameters,
};
use grpo_rewards::{Outcome, Scored};
use grpo_train::{
    AdvantageSettings, Decayed, EvalConfig, GrpoConfig, LearnResult, Learner, LossSettings,
    OptimizerConfig, ReferenceSettings, SamplerCheck, SamplingConfig, ScheduleConfig, TrainConfig,
};

use super::golden_models::{LOGITS, check_ids, check_length, load, logits, start};
use crate::golden::{ExpectedTraining, GoldenModel};
use crate::report::{Suite, Tolerance};
use crate::{Options, SelftestError};

/// Relative tolerance for the gradient norm and for the loss, which counts as at least 0.01.
const OF_STEP: f64 = 1e-3;
/// Maximum distance between a tensor and its expected value, relative to how much training changes
/// it.
const OF_DISTANCE: f64 = 3e-3;

pub(super) fn suite(
    golden: &GoldenModel,
    expected: &ExpectedTraining,
    options: &Options,
) -> Result<Suite, SelftestError> {
    let mut suite = start("optimizer steps", golden, "TRL and torch");
    let device = &options.device;
    let before = load(&golden.path.join("before"), options, &device.clone().autodiff())?;
    let after = load(&golden.path.join("after"), options, device)?;
    if before.description() != after.description() {
        let problem = "the models in before and after have different sizes";
        return Err(golden.fault("steps", problem.to_owned()));
    }
    for (row, (prompt, completion)) in
        expected.prompts.iter().zip(&expected.completions).enumerate()
    {
        let key = |name: &str| format!("{name}[{row}]");
        check_ids(golden, &key("prompts"), prompt, 1, &before)?;
        check_ids(golden, &key("completions"), completion, 1, &before)?;
        check_length(golden, &key("completions"), prompt.len() + completion.len(), &before)?;
    }
    let trained = |error: grpo_train::TrainError| golden.fault("config", error.to_string());
    let config = config(golden, expected)?;
    config.check().map_err(|fault| trained(fault.into()))?;
    let policy = Policy::Whole(before.clone());
    let reference = Frozen::snapshot(&policy);
    let mut learner = Learner::new(policy, reference, &config).map_err(trained)?;
    let mut groups = groups(expected);
    let learned = learner.learn(&mut groups, expected.optimizer.lr).map_err(trained)?;

    advantages(&mut suite, expected, &groups);
    steps(&mut suite, expected, &learned);
    let (got, _) = learner.policy().parts();
    weights(&mut suite, expected, &before, &after, got);
    if has_idle_key_biases(got) {
        let ids = [expected.prompts[0].as_slice(), &expected.completions[0]].concat();
        key_biases(&mut suite, got, &ids);
    }
    Ok(suite)
}

fn advantages(suite: &mut Suite, expected: &ExpectedTraining, groups: &[Group]) {
    let mut case = suite.case("advantages");
    let bound = Tolerance::of_largest_or_1(1e-5); // TRL's are in f32
    let samples = groups.iter().flat_map(|group| &group.samples);
    let got: Vec<f64> = samples.map(|sample| sample.advantage).collect();
    case.list(&|i| format!("advantages[{i}]"), &got, &expected.advantages, bound);
}

fn steps(suite: &mut Suite, expected: &ExpectedTraining, learned: &LearnResult) {
    for (number, step) in expected.steps.iter().enumerate() {
        let mut case = suite.case(format!("step {}", number + 1));
        let got = learned.updates.get(number);
        let of = |number: Option<f64>| number.unwrap_or(f64::NAN);
        let bound = Tolerance::EXACT.plus(OF_STEP * step.loss.abs().max(0.01));
        case.number("loss", of(got.map(|update| update.loss)), step.loss, bound);
        let bound = Tolerance::of_largest(OF_STEP);
        case.number("grad_norm", of(got.map(|update| update.grad_norm)), step.grad_norm, bound);
        let metrics = got.map(|update| update.tokens.metrics()).unwrap_or_default();
        for (name, &value) in &step.metrics {
            let found = metrics.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
            let bound = Tolerance::EXACT.plus(OF_STEP * value.abs().max(0.01));
            case.number(name, of(found), value, bound);
        }
    }
}

/// Checks that `‖ours − after‖ ≤ 3e-3 · ‖after − before‖` for each tensor. Also checks that no
/// weight differs by more than AdamW can move it.
///
/// Only the second check applies to GPT-2 key biases. A bias that is added to all keys shifts all
/// attention scores of a query by the same amount, which has no effect after the softmax. The exact
/// gradient is therefore 0, and the computed gradient consists of rounding errors only. AdamW
/// normalises these errors, so both implementations move the biases by up to a full step in a
/// random direction. [`key_biases`] verifies that they have no effect.
fn weights(
    suite: &mut Suite,
    expected: &ExpectedTraining,
    before: &Transformer,
    after: &Transformer,
    got: &Transformer,
) {
    let reach = Tolerance::EXACT.plus(2.0 * expected.optimizer.reach(expected.steps.len()));
    let is_idle = has_idle_key_biases(got);
    let [before, after, got] = [before, after, got].map(|model| StoredTensors::of(model).read());
    for (name, after) in &after {
        let mut case = suite.case(name);
        let host = |data: &TensorData| data.iter::<f64>().collect::<Vec<_>>();
        let [mut before, mut after, mut got] = [host(&before[name]), host(after), host(&got[name])];
        case.list(&|i| format!("{name}[{i}]"), &got, &after, reach);
        if is_idle && name.ends_with("attn.c_attn.bias") {
            let keys = before.len() / 3..2 * (before.len() / 3);
            for all in [&mut before, &mut after, &mut got] {
                all.drain(keys.clone());
            }
        }
        let distance = |from: &[f64]| {
            from.iter().zip(&after).map(|(x, a)| (x - a).powi(2)).sum::<f64>().sqrt()
        };
        let (moved, off) = (distance(&before), distance(&got));
        let share = if off == 0.0 { 0.0 } else { off / moved };
        let bound = Tolerance::of_largest_or_1(OF_DISTANCE);
        case.number(
            "distance from its expected value, relative to its movement",
            share,
            0.0,
            bound,
        );
    }
}

/// Returns whether keys have biases but no rotary positions. With rotary positions, each bias would
/// be rotated by an angle that depends on the key.
fn has_idle_key_biases(model: &Transformer) -> bool {
    let of = model.description();
    let are_compared_as_they_are =
        of.positions == Positions::Learned && of.query_key_norm == QueryKeyNorm::None;
    of.joint_inputs && of.biases.attention_inputs && are_compared_as_they_are
}

/// Adding 1 to all key biases must not change the logits beyond rounding errors.
fn key_biases(suite: &mut Suite, model: &Transformer, ids: &[u32]) {
    let mut case = suite.case("key biases without effect");
    let moved = |parameter: Parameter| {
        let mut value = parameter.value().into_data();
        if parameter.path.ends_with("attention.inputs.0.bias") {
            let third = parameter.num_elements() / 3;
            let values = value.as_mut_slice::<f32>().expect("the values are f32");
            values[third..2 * third].iter_mut().for_each(|bias| *bias += 1.0);
        }
        (parameter.path, value)
    };
    let frozen = Frozen::snapshot(model);
    let values = parameters(model).into_iter().map(moved).collect();
    let other = frozen.clone().with_values(values, Path::new("after"));
    let other = other.expect("the values belong to the model's own parameters");
    let bound = Tolerance::of_largest_or_1(LOGITS);
    case.list(&|i| format!("logits[{i}]"), &logits(&other, ids), &logits(&frozen, ids), bound);
}

fn config(golden: &GoldenModel, expected: &ExpectedTraining) -> Result<GrpoConfig, SelftestError> {
    let settings = &expected.config;
    let preset = match settings.loss_type.as_str() {
        "grpo" => Preset::Grpo,
        "dapo" => Preset::Dapo,
        "dr_grpo" => Preset::DrGrpo,
        other => {
            let problem = format!("{other}; expected grpo, dapo or dr_grpo");
            return Err(golden.fault("config.loss_type", problem));
        }
    };
    let low = settings.epsilon.unwrap_or(0.2);
    let longest = expected.completions.iter().map(Vec::len).max().unwrap_or(1);
    let k = settings.num_generations;
    Ok(GrpoConfig {
        train: TrainConfig {
            steps: 1,
            prompts_per_step: (expected.completions.len() / k) as u32,
            group_size: k,
            updates_per_rollout: expected.steps.len() as u32,
            // Small enough to produce several micro-batches.
            micro_batch_tokens: 3,
            activation_checkpointing: true,
            precision: Default::default(),
            reward_time_limit: 60.0,
            max_roll_backs: 3,
            max_failed_rewards: 0.0,
        },
        sampling: SamplingConfig {
            temperature: settings.temperature as f32,
            max_new_tokens: longest,
            ..SamplingConfig::default()
        },
        advantage: AdvantageSettings {
            scale: Some(settings.scale_rewards),
            ..AdvantageSettings::default()
        },
        loss: LossSettings {
            preset,
            epsilon_low: Some(low),
            epsilon_high: Some(settings.epsilon_high.unwrap_or(low)),
            delta: settings.delta,
            ratio_level: Some(settings.importance_sampling_level),
            kl_coef: Some(settings.beta),
            ..LossSettings::default()
        },
        // The completions were sampled by TRL. Only losses and weights are compared.
        kl_controller: None,
        reference: ReferenceSettings::default(),
        guards: None,
        sampler_check: SamplerCheck { above: None, tolerance: f64::MAX },
        optimizer: OptimizerConfig {
            betas: expected.optimizer.betas,
            epsilon: expected.optimizer.eps,
            weight_decay: expected.optimizer.weight_decay,
            weight_decay_on: Decayed::All,
            max_grad_norm: expected.max_grad_norm,
            ..OptimizerConfig::new(expected.optimizer.lr)
        },
        schedule: ScheduleConfig::default(),
        eval: EvalConfig::default(),
    })
}

fn groups(expected: &ExpectedTraining) -> Vec<Group> {
    let k = expected.config.num_generations;
    let completion = |i: usize| {
        let (prompt, actions) = (&expected.prompts[i], &expected.completions[i]);
        Completion::new(CompletionParts {
            prefix: Default::default(),
            ids: [prompt.as_slice(), actions].concat(),
            action_mask: [vec![false; prompt.len()], vec![true; actions.len()]].concat(),
            sampling_logprobs: Some(
                expected.old_logprobs[i][..actions.len()]
                    .iter()
                    .map(|&logprob| logprob as f32)
                    .collect(),
            ),
            finish: Finish::EndToken,
            key: SampleKey { seed: 0, step: 0, prompt: (i / k) as u32, sample: (i % k) as u32 },
            policy_version: 0,
            sampled_under: SampledUnder {
                temperature: expected.config.temperature as f32,
                ..SampledUnder::default()
            },
        })
    };
    let group = |g: usize| {
        let prompt = Prompt::of_ids(g as u32, expected.prompts[g * k].clone());
        let mut group = Group::new(prompt, (g * k..(g + 1) * k).map(completion));
        for (sample, &reward) in group.samples.iter_mut().zip(&expected.config.rewards[g * k..]) {
            sample.outcome = Some(Outcome::Scored(Scored::new(vec![(1.0, reward)], Vec::new())));
        }
        group
    };
    (0..expected.completions.len() / k).map(group).collect()
}
