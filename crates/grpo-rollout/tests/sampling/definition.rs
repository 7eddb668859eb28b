//! Compares samples with the definition of the distribution.

use std::collections::BTreeSet;

use grpo_data::{Finish, Group};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, TokenBatch, Transformer};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings};

use crate::support::{
    CONTEXT, END, KEY, VOCABULARY, all_ids, bent, completions, distribution, forbidding, model,
    prompt, prompts, sample, settings,
};

/// Returns the logits after each token in `ids`, computed in a single pass without a cache.
fn logits(model: &Frozen<Transformer>, ids: &[u32]) -> Vec<Vec<f64>> {
    let ids = TokenBatch::from_iter([ids]);
    let flat: Vec<f64> = model.logits(model.hidden(&ids)).into_data().iter().collect();
    flat.chunks(VOCABULARY).map(<[f64]>::to_vec).collect()
}

/// Returns the probability of each id after `seen` according to the definition, or 0 if it cannot
/// be sampled.
fn probabilities(logits: &[f64], seen: &[u32], settings: &SamplingSettings) -> Vec<f64> {
    let penalty = settings.repetition_penalty.map_or(1.0, f64::from);
    let weight = |id: u32| {
        let logit = logits[id as usize];
        let bent = match (seen.contains(&id), logit > 0.0) {
            (true, true) => logit / penalty,
            (true, false) => logit * penalty,
            (false, _) => logit,
        };
        (bent / f64::from(settings.temperature)).exp()
    };
    let ids = (0..logits.len() as u32).filter(|id| !settings.forbidden.contains(id));
    let mut left: Vec<(u32, f64)> = ids.map(|id| (id, weight(id))).collect();
    left.sort_by(|a, b| b.1.total_cmp(&a.1));
    left.truncate(settings.top_k.unwrap_or(usize::MAX));
    if let Some(top_p) = settings.top_p {
        let total: f64 = left.iter().map(|(_, weight)| weight).sum();
        let mut before = 0.0;
        left.retain(|(_, weight)| {
            let stays = before < f64::from(top_p) * total;
            before += weight;
            stays
        });
    }
    let least = f64::from(settings.min_p.unwrap_or(0.0)) * left[0].1;
    left.retain(|(_, weight)| *weight >= least);
    let total: f64 = left.iter().map(|(_, weight)| weight).sum();
    let mut probabilities = vec![0.0; logits.len()];
    left.iter().for_each(|(id, weight)| probabilities[*id as usize] = weight / total);
    probabilities
}

/// Acceptance test 4: recorded log-probabilities agree with a pass without a cache.
#[track_caller]
fn check_recorded(sampling: &SamplingSettings) {
    let distribution = distribution(sampling);
    let truncated = distribution.is_truncated();
    let groups = sample(RolloutSettings { distribution, ..settings() }, &prompts(), KEY);
    let model = Frozen::snapshot(&model());
    let mut ends = 0;
    let mut sizes = BTreeSet::new();
    for completion in completions(&groups) {
        let under = completion.sampled_under();
        assert_eq!(under.temperature, sampling.temperature);
        assert_eq!(under.repetition_penalty, sampling.repetition_penalty.unwrap_or(1.0));
        assert_eq!(under.forbidden, sampling.forbidden);
        assert_eq!(under.kept.is_some(), truncated);
        let ids = completion.ids();
        let logits = logits(&model, &ids[..ids.len() - 1]);
        let first = ids.len() - completion.actions();
        for (action, &recorded) in completion.sampling_logprobs().unwrap().iter().enumerate() {
            let place = first + action;
            let probabilities = probabilities(&logits[place - 1], &ids[..place], sampling);
            if let Some(kept) = &under.kept {
                let possible = |id: &u32| probabilities[*id as usize] > 0.0;
                let possible: Vec<u32> = (0..VOCABULARY as u32).filter(possible).collect();
                assert_eq!(kept[action].iter().collect::<Vec<u32>>(), possible);
                assert_eq!(kept[action].vocabulary(), VOCABULARY);
                sizes.insert(possible.len());
            }
            let p = probabilities[ids[place] as usize];
            // The random number depends on the position in the whole sequence, including the
            // prompt.
            let uniform = completion.key().uniform(KEY.purpose, place as u32);
            let before: f64 = probabilities[..ids[place] as usize].iter().sum();
            let within = before - 1e-5..before + p + 1e-5;
            assert!(within.contains(&uniform), "{uniform} drew what has {within:?}");
            assert!((f64::from(recorded) - p.ln()).abs() < 1e-5, "{recorded} for {}", p.ln());
        }
        ends += usize::from(completion.finish() == Finish::EndToken);
    }
    assert!(ends > 0, "no completion ended by itself: the test shows little");
    let varies = sampling.top_p.is_some() || sampling.min_p.is_some();
    assert!(!varies || sizes.len() > 1, "kept sets of {sizes:?} ids: the test shows little");
}

#[test]
fn recorded_logprobs_are_those_of_a_full_pass() {
    check_recorded(&SamplingSettings::default());
    check_recorded(&SamplingSettings { temperature: 0.7, ..forbidding(&[4, 9]) });
    check_recorded(&SamplingSettings { temperature: 1.3, top_k: Some(5), ..forbidding(&[]) });
    check_recorded(&SamplingSettings { temperature: 1.5, top_k: Some(6), ..forbidding(&[2, 3]) });
    bent().iter().for_each(check_recorded);
}

#[test]
fn groups_are_whole_and_in_order() {
    let groups = sample(settings(), &prompts(), KEY);
    assert_eq!(groups.len(), prompts().len());
    for (group, prompt) in groups.iter().zip(prompts()) {
        assert_eq!(group.prompt, prompt);
        assert_eq!(group.samples.len(), 9);
        for (completion, sample) in group.completions().zip(0..) {
            let key = completion.key();
            assert_eq!((key.seed, key.step), (7, 3));
            assert_eq!((key.prompt, key.sample), (prompt.index, sample));
            assert_eq!(completion.policy_version(), 5);
            assert!(completion.ids().starts_with(&prompt.ids));
            let (given, chosen) = completion.action_mask().split_at(prompt.ids.len());
            assert!(given.iter().all(|action| !action) && chosen.iter().all(|action| *action));
        }
    }
    // Completions in a group must differ.
    let distinct: BTreeSet<&[u32]> = all_ids(&groups[..1]).into_iter().collect();
    assert!(distinct.len() > 5, "{distinct:?}");
    assert!(sample_nothing().is_empty());
}

fn sample_nothing() -> Vec<Group> {
    let model = model();
    let rollout = Autoregressive::new(settings(), &model, 1).unwrap();
    rollout.sample(&Frozen::snapshot(&model), &[], KEY).unwrap()
}

#[test]
fn the_end_id_is_the_last_action_and_the_limit_holds() {
    let both = RolloutSettings { max_new_tokens: 4, end_ids: vec![END, 8], ..settings() };
    let groups = sample(both, &prompts(), KEY);
    let mut seen = BTreeSet::new();
    for completion in completions(&groups) {
        let ids: Vec<u32> = completion.action_ids().collect();
        let end = ids.iter().position(|id| [END, 8].contains(id));
        match completion.finish() {
            Finish::Filled => panic!("nothing was filled"),
            Finish::EndToken => assert_eq!(end, Some(ids.len() - 1), "{ids:?}"),
            Finish::Length => assert_eq!((end, ids.len()), (None, 4), "{ids:?}"),
            Finish::Stop => panic!("nothing else ends a completion: {ids:?}"),
        }
        assert!(ids.len() <= 4);
        seen.insert((completion.finish() == Finish::Length, ids.last() == Some(&8)));
    }
    assert_eq!(seen.len(), 3, "either end and the limit: {seen:?}");
}

#[test]
fn the_context_can_be_filled_to_its_last_place() {
    let endless = RolloutSettings {
        max_new_tokens: CONTEXT,
        distribution: distribution(&forbidding(&[END])),
        ..settings()
    };
    for completion in completions(&sample(endless, &[prompt(0, &[0])], KEY)) {
        assert_eq!((completion.actions(), completion.finish()), (CONTEXT, Finish::Length));
    }
}
/// Counts how often each id is the first token after the prompt.
#[track_caller]
fn check_frequencies(sampling: &SamplingSettings) {
    const SAMPLES: usize = 4000;
    let distribution = distribution(sampling);
    let once =
        RolloutSettings { group_size: SAMPLES, max_new_tokens: 1, distribution, ..settings() };
    let groups = sample(once, &[prompt(0, &[0, 3])], KEY);
    let mut counts = [0_usize; VOCABULARY];
    completions(&groups).for_each(|completion| counts[completion.ids()[2] as usize] += 1);
    let logits = logits(&Frozen::snapshot(&model()), &[0, 3]);
    let expected = probabilities(&logits[1], &[0, 3], sampling);
    let n = SAMPLES as f64;
    for (id, (&count, p)) in counts.iter().zip(&expected).enumerate() {
        let standard_error = (p * (1.0 - p) / n).sqrt();
        let share = count as f64 / n;
        assert!((share - p).abs() <= 5.0 * standard_error, "id {id}: {share}, expected {p}");
    }
    // The distribution must be far enough from uniform to detect a sampler that ignores the logits.
    let equal = 1.0 / VOCABULARY as f64;
    assert!(expected.iter().any(|p| (p - equal).abs() > 10.0 * (equal / n).sqrt()), "{expected:?}");
}

#[test]
fn frequencies_are_the_probabilities_of_the_model() {
    check_frequencies(&SamplingSettings::default());
    bent().iter().for_each(check_frequencies);
}
