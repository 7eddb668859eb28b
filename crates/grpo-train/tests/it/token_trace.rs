//! Compares token traces with their definition, and checks that recording does not affect training.

use grpo_core::{Preset, TokenOutcome};
use grpo_data::{Completion, Group, Outcome, TokenTrace};
use grpo_model::Frozen;
use grpo_train::{
    AboveTolerance, GrpoConfig, LearnResult, Learner, LossSettings, Metrics, SamplerCheck,
    StepReport,
};

use crate::choices::{choices, smooth};
use crate::oracle::{advantages, completions, log_softmax, logprobs};
use crate::sampler_check::recorded;
use crate::support::{
    SEED, begin, chains, config, grpo, model, parameters, take_step, timeless, vocabulary,
};

/// Performs two steps with or without recording. Returns the last report and the parameters.
fn two_steps(config: &GrpoConfig, is_recording: bool) -> (StepReport, Vec<f32>) {
    let mut grpo = grpo(config.clone(), chains());
    grpo.set_recording(is_recording);
    take_step(&mut grpo, 0);
    let report = take_step(&mut grpo, 1);
    (report, parameters(grpo.policy()))
}

#[test]
fn what_is_learned_is_the_same_bit_for_bit() {
    for loss in choices() {
        let mut config = smooth(loss);
        config.train.micro_batch_tokens = 50;
        let (without, expected) = two_steps(&config, false);
        let (with, after) = two_steps(&config, true);
        assert!(after == expected, "{loss:?}");
        let numbers = |report: &StepReport| timeless(&Metrics::of(report, 1));
        assert_eq!(numbers(&with), numbers(&without), "{loss:?}");
        assert!(without.samples().all(|sample| sample.trace.is_none()));
        for (trace, completion) in traces(&with.groups).into_iter().zip(completions(&with)) {
            let TokenTrace { numbers, outcomes } = trace;
            let names: Vec<&str> = numbers.iter().map(|(name, _)| name).collect();
            assert_eq!(
                names,
                ["logprobs", "entropies", "gradients", "surrogate_gradients", "ref_logprobs"]
            );
            assert!(numbers.iter().all(|(_, list)| list.len() == completion.actions()));
            assert_eq!(outcomes.len(), completion.actions());
            for (words, gradient) in outcomes.iter().zip(&numbers["surrogate_gradients"]) {
                let outcomes = TokenOutcome::split(words).unwrap();
                let is_one_an_update = outcomes.len() == 2 && outcomes[0] != outcomes[1];
                assert!(is_one_an_update || outcomes.len() == 1, "{words}");
                let moved = outcomes.contains(&TokenOutcome::Moved);
                assert!(moved || *gradient == 0.0, "{outcomes:?} {gradient} {loss:?}");
            }
        }
    }
}

fn traces(groups: &[Group]) -> Vec<&TokenTrace> {
    let samples = groups.iter().flat_map(|group| &group.samples);
    samples.map(|sample| sample.trace.as_ref().unwrap()).collect()
}

#[track_caller]
fn close(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "got {got}, expected {expected}");
}

/// Tests the second step of a run with one update per step. ρ is 1, but the policy differs from the
/// reference.
#[test]
fn numbers_are_those_of_the_definitions() {
    for bias_correction in [false, true] {
        let loss = LossSettings {
            kl_coef: Some(0.3),
            kl_bias_correction: Some(bias_correction),
            ..LossSettings::default()
        };
        let mut config = GrpoConfig { loss, ..config() };
        config.train.micro_batch_tokens = 70;
        let reference = model(vocabulary().len(), 2.0);
        let mut grpo = grpo(config, chains());
        take_step(&mut grpo, 0);
        grpo.set_recording(true);
        let policy = grpo.policy().clone();
        let report = take_step(&mut grpo, 1);
        let advantages: Vec<f64> = advantages(&report);
        let records = traces(&report.groups);
        let all: Vec<&Completion> = completions(&report).collect();
        let mut largest_kl = 0.0_f64;
        for ((record, completion), advantage) in records.iter().zip(&all).zip(&advantages) {
            let (of_policy, of_reference) =
                (logprobs(&policy, completion), logprobs(&reference, completion));
            let weight = 1.0 / (completion.actions() * all.len()) as f64;
            for (t, distribution) in log_softmax(&policy, completion).iter().enumerate() {
                close(record.numbers["logprobs"][t], of_policy[t], 1e-5);
                close(record.numbers["ref_logprobs"][t], of_reference[t], 1e-5);
                let entropy: f64 = distribution.iter().map(|log| -log.exp() * log).sum();
                close(record.numbers["entropies"][t], entropy, 1e-5);
                let surrogate = -advantage * weight;
                close(record.numbers["surrogate_gradients"][t], surrogate, 1e-6 * weight);
                // k3 = exp(e) − e − 1, where e = log π_ref − log π_θ, multiplied by ρ if bias
                // correction is enabled.
                let e = of_reference[t] - of_policy[t];
                let k3 = if bias_correction { e.exp() - e - 1.0 } else { 0.0 };
                let kl = 0.3 * (k3 + 1.0 - e.exp()) * weight;
                close(
                    record.numbers["gradients"][t] - record.numbers["surrogate_gradients"][t],
                    kl,
                    1e-5 * weight,
                );
                largest_kl = largest_kl.max(kl.abs());
                let outcome = match *advantage == 0.0 {
                    true => TokenOutcome::ZeroAdvantage,
                    false => TokenOutcome::Moved,
                };
                assert_eq!(record.outcomes[t], outcome.name());
            }
        }
        assert!(largest_kl > 1e-5, "a penalty that is nothing shows nothing");
    }
}

/// Returns samples from the initial policy with their rewards.
fn sampled() -> Vec<Group> {
    take_step(&mut grpo(plain(), chains()), 0).groups
}

fn plain() -> GrpoConfig {
    let loss = LossSettings { preset: Preset::Grpo, ..LossSettings::default() };
    GrpoConfig { loss, ..config() }
}

/// Returns the samples after the initial policy has learned from them.
fn learned(mut groups: Vec<Group>, config: &GrpoConfig, rate: f64) -> (LearnResult, Vec<Group>) {
    let policy = model(vocabulary().len(), 2.0);
    let reference = Frozen::snapshot(&policy);
    let mut learner = Learner::new(policy, reference, config).unwrap();
    learner.set_recording(true);
    (learner.learn(&mut groups, rate).unwrap(), groups)
}

/// Performs `updates` updates with a learning rate of `rate`.
fn updated(updates: u32, rate: f64) -> Vec<Group> {
    let mut config = plain();
    config.train.updates_per_rollout = updates;
    learned(sampled(), &config, rate).1
}

#[test]
fn gradients_are_summed_over_updates_and_clipped_ones_add_nothing() {
    let once = updated(1, 0.0);
    // The policy doesn't change, so both updates must be the same.
    let twice = updated(2, 0.0);
    for (once, twice) in traces(&once).into_iter().zip(traces(&twice)) {
        for (once, twice) in once.numbers["gradients"].iter().zip(&twice.numbers["gradients"]) {
            assert_eq!(2.0 * once, *twice);
        }
        assert!(twice.outcomes.iter().all(|words| !words.contains('+')));
        assert_eq!(once.numbers["logprobs"], twice.numbers["logprobs"]);
    }
    // After a large update, many tokens are clipped.
    let far = updated(2, 0.03);
    let mut clipped = 0;
    for (once, far) in traces(&once).into_iter().zip(traces(&far)) {
        assert_eq!(once.numbers["logprobs"], far.numbers["logprobs"], "those of the first update");
        for (t, words) in far.outcomes.iter().enumerate() {
            if words == "moved+clipped" {
                assert_eq!(far.numbers["gradients"][t], once.numbers["gradients"][t]);
                clipped += 1;
            }
        }
    }
    assert!(clipped > 20, "{clipped} are clipped");
}

#[test]
fn what_nothing_scored_is_said_to_be_so() {
    let mut groups = sampled();
    let mut samples: Vec<_> = groups.iter_mut().flat_map(|group| &mut group.samples).collect();
    samples[3].outcome = Some(Outcome::abstained());
    samples[9].outcome = Some(Outcome::failed("no chemistry".to_owned()));
    let (_, groups) = learned(groups, &plain(), 0.0);
    for (place, trace) in traces(&groups).into_iter().enumerate() {
        let is_scored = ![3, 9].contains(&place);
        for (words, gradient) in trace.outcomes.iter().zip(&trace.numbers["gradients"]) {
            assert_eq!(words == TokenOutcome::NotScored.name(), !is_scored, "{place}");
            assert!(is_scored || *gradient == 0.0);
        }
    }
}

/// If a step is corrected, the first pass is discarded along with its traces.
#[test]
fn a_corrected_step_tells_of_the_loss_that_was_used() {
    let (_, plain_groups) = learned(sampled(), &plain(), 0.0);
    let wrong = recorded(&sampled(), |_, _, logprobs| logprobs[0] -= 0.25);
    let above = Some(AboveTolerance::Correct);
    let sampler_check = SamplerCheck { tolerance: 1e-3, above };
    let (result, wrong) = learned(wrong, &GrpoConfig { sampler_check, ..plain() }, 0.0);
    assert_eq!(result.corrected, Some(true));
    for (plain, corrected) in traces(&plain_groups).into_iter().zip(traces(&wrong)) {
        let expected = plain.numbers["gradients"][0] * 0.25_f64.exp();
        close(corrected.numbers["gradients"][0], expected, 1e-4 * expected.abs());
        assert!(corrected.outcomes.iter().all(|words| !words.contains('+')));
    }
}

#[test]
fn parts_of_the_update_and_memory_are_measured() {
    let mut config = config();
    config.train.updates_per_rollout = 2;
    let policy = model(vocabulary().len(), 2.0);
    let mut grpo = begin(policy, config, SEED, vocabulary().boundary(), chains()).unwrap();
    let report = take_step(&mut grpo, 0);
    let parts = report.learned.times;
    let sum = parts.reference + parts.forward + parts.backward + parts.optimizer;
    assert!(sum <= report.observed.times.update, "{:?}", report.observed.times);
    for part in [parts.reference, parts.forward, parts.backward, parts.optimizer] {
        assert!(!part.is_zero(), "{parts:?}");
    }
    let metrics = Metrics::of(&report, 1);
    for (name, _) in metrics.iter() {
        let folder = name.split('/').next().unwrap();
        let of_machine = ["time", "memory", "step_time", "tokens_per_second"].contains(&folder);
        assert_eq!(metrics.is_of_machine(name), of_machine, "{name}");
    }
    if cfg!(target_os = "linux") {
        let (now, peak) = (metrics.get("memory/rss").unwrap(), metrics.get("memory/peak").unwrap());
        assert!(now > 1e6 && peak >= now, "{now} {peak}");
        for phase in ["memory/rollout", "memory/reward", "memory/update"] {
            let after = metrics.get(phase).unwrap();
            // Linux counts pages per thread and adds the counts up occasionally, so reported values
            // may decrease slightly.
            assert!(after > 1e6 && peak + 1e6 >= after, "{phase} {after} {peak}");
        }
    }
}
