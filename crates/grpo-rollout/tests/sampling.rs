//! Sampling against the definition, against itself in other layouts, and against what it refuses.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{Codec, Completion, Finish, Group, Prompt, Purpose};
use grpo_model::{
    Frozen, ModelConfig, ModelFolder, ModelSpec, MolGptConfig, StoredAs, TokenBatch, Transformer,
};
use grpo_rollout::{Decode, Rollout, RolloutError, RolloutSettings, StepKey};
use grpo_sampling::{SamplingDistribution, SamplingSettings};

const VOCABULARY: usize = 12;
const CONTEXT: usize = 20;
const END: u32 = 0;
const KEY: StepKey = StepKey { seed: 7, purpose: Purpose::Sampling, step: 3, policy_version: 5 };

/// A small model whose probabilities are far from equal.
fn model() -> Transformer {
    scaled(2.0)
}

/// A model whose weights are `scale` times the first values and some more.
fn scaled(scale: f32) -> Transformer {
    let config = ModelConfig::molgpt(&MolGptConfig::new(VOCABULARY, CONTEXT, 2, 2, 16)).unwrap();
    let device = Device::flex();
    let folder = tempfile::tempdir().unwrap();
    let model = Transformer::random(&config, 1, &device).unwrap();
    let spec = ModelSpec { config, codec: Codec::of_ids(Default::default()) };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let path = folder.path().join("model.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    for (i, number) in file[header..].chunks_exact_mut(4).enumerate() {
        let value = f32::from_le_bytes((&*number).try_into().unwrap());
        let shake = ((i as u32).wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0 - 0.5;
        number.copy_from_slice(&(scale * value + 0.4 * shake).to_le_bytes());
    }
    std::fs::write(&path, file).unwrap();
    ModelFolder::load(folder.path(), &device).unwrap().model
}

fn forbidding(forbidden: &[u32]) -> SamplingSettings {
    SamplingSettings { forbidden: forbidden.to_vec(), ..SamplingSettings::default() }
}

fn distribution(settings: &SamplingSettings) -> SamplingDistribution {
    settings.clone().checked(VOCABULARY).unwrap()
}

/// What cuts the distribution and what bends it.
fn bent() -> [SamplingSettings; 4] {
    let plain = SamplingSettings::default;
    [
        SamplingSettings { top_p: Some(0.8), ..plain() },
        SamplingSettings { min_p: Some(0.2), ..plain() },
        SamplingSettings { repetition_penalty: Some(1.6), ..plain() },
        SamplingSettings {
            temperature: 1.4,
            top_k: Some(9),
            top_p: Some(0.95),
            min_p: Some(0.05),
            repetition_penalty: Some(1.2),
            forbidden: vec![3],
        },
    ]
}

fn settings() -> RolloutSettings {
    RolloutSettings {
        group_size: 9,
        max_new_tokens: 12,
        end_ids: vec![END],
        distribution: distribution(&SamplingSettings::default()),
        batch_size: 64,
    }
}

fn prompt(index: u32, ids: &[u32]) -> Prompt {
    Prompt::of_ids(index, ids.to_vec())
}

/// Prompts of different lengths, neighbours of equal length among them.
fn prompts() -> Vec<Prompt> {
    let ids: [&[u32]; 6] = [&[0], &[0], &[0, 3], &[0, 5, 7, 2], &[0], &[0, 2, 1]];
    ids.iter().zip(0..).map(|(ids, index)| prompt(index, ids)).collect()
}

fn sample(settings: RolloutSettings, prompts: &[Prompt], key: StepKey) -> Vec<Group> {
    let model = model();
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap();
    let rollout = Rollout::new(settings, &model, longest).unwrap();
    rollout.sample(&Frozen::snapshot(&model), prompts, key).unwrap()
}

fn completions(groups: &[Group]) -> impl Iterator<Item = &Completion> {
    groups.iter().flat_map(|group| &group.completions)
}

fn all_ids(groups: &[Group]) -> Vec<&[u32]> {
    completions(groups).map(Completion::ids).collect()
}

/// Logits after each token of `ids`, from one pass without a cache.
fn logits(model: &Frozen<Transformer>, ids: &[u32]) -> Vec<Vec<f64>> {
    let ids = TokenBatch::from_iter([ids]);
    let flat: Vec<f64> = model.logits(model.hidden(&ids, None)).into_data().iter().collect();
    flat.chunks(VOCABULARY).map(<[f64]>::to_vec).collect()
}

/// The probability of each id after `seen`, by the definition; 0 for what cannot be drawn.
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

/// Acceptance test 4: what the sampler recorded is what a pass without a cache says.
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
        for (action, &recorded) in completion.sampling_logprobs().iter().enumerate() {
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
        assert_eq!(group.completions.len(), 9);
        for (completion, sample) in group.completions.iter().zip(0..) {
            let key = completion.key();
            assert_eq!((key.seed, key.step), (7, 3));
            assert_eq!((key.prompt, key.sample), (prompt.index, sample));
            assert_eq!(completion.policy_version(), 5);
            assert!(completion.ids().starts_with(&prompt.ids));
            let (given, chosen) = completion.action_mask().split_at(prompt.ids.len());
            assert!(given.iter().all(|action| !action) && chosen.iter().all(|action| *action));
        }
    }
    // A group is no copy of one completion.
    let distinct: BTreeSet<&[u32]> = all_ids(&groups[..1]).into_iter().collect();
    assert!(distinct.len() > 5, "{distinct:?}");
    assert!(sample_nothing().is_empty());
}

fn sample_nothing() -> Vec<Group> {
    let model = model();
    let rollout = Rollout::new(settings(), &model, 1).unwrap();
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
            Finish::EndToken => assert_eq!(end, Some(ids.len() - 1), "{ids:?}"),
            Finish::Length => assert_eq!((end, ids.len()), (None, 4), "{ids:?}"),
            Finish::Stop => panic!("nothing else ends a completion: {ids:?}"),
        }
        assert!(ids.len() <= 4);
        seen.insert((completion.finish() == Finish::Length, ids.last() == Some(&8)));
    }
    assert_eq!(seen.len(), 3, "either end and the limit: {seen:?}");
}

/// A stopped completion is the beginning of the one that is not stopped, to the last bit.
#[test]
fn stop_strings_end_completions_and_change_nothing_else() {
    let model = model();
    let letter = |id: &u32| char::from(b'a' + *id as u8);
    let decode: Decode = Arc::new(move |ids| ids.iter().map(letter).collect());
    let plain = sample(settings(), &prompts(), KEY);
    let text = |completion: &Completion| decode(&completion.action_ids().collect::<Vec<u32>>());
    // What stands inside of some completion.
    let long = completions(&plain).map(text).find(|text| text.len() > 8).unwrap();
    let strings = [long[4..6].to_owned(), "zz".to_owned(), "d".to_owned()];
    let rollout = Rollout::new(settings(), &model, 4).unwrap();
    let rollout = rollout.stopping_at(&strings, &decode).unwrap();
    let stopped = rollout.sample(&Frozen::snapshot(&model), &prompts(), KEY).unwrap();
    let mut finishes = BTreeSet::new();
    for (stopped, plain) in completions(&stopped).zip(completions(&plain)) {
        let whole = text(plain);
        let ends = strings.iter().filter_map(|string| Some(whole.find(string)? + string.len()));
        let length = ends.min().unwrap_or(whole.len());
        assert_eq!(text(stopped), whole[..length], "of {whole}");
        assert_eq!(stopped.sampling_logprobs(), &plain.sampling_logprobs()[..length]);
        let is_end = stopped.ids().last() == Some(&END);
        let finish = if length < whole.len() { Finish::Stop } else { stopped.finish() };
        assert_eq!((stopped.finish(), is_end), (finish, finish == Finish::EndToken));
        finishes.insert(format!("{finish:?}"));
    }
    assert_eq!(finishes.len(), 3, "all three ends are needed: {finishes:?}");
    let error = Rollout::new(settings(), &model, 4).unwrap();
    let error = error.stopping_at(&[String::new()], &decode).unwrap_err();
    assert_eq!(error, RolloutError::EmptyStop);
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

#[test]
fn batches_decide_nothing() {
    check_batches(&SamplingSettings::default());
}

#[test]
fn batches_decide_nothing_of_a_bent_distribution() {
    let plain = all_ids(&sample(settings(), &prompts(), KEY)).concat();
    for sampling in bent() {
        let first = check_batches(&sampling);
        assert_ne!(all_ids(&first).concat(), plain, "{sampling:?} changes nothing");
    }
}

/// The same completions and kept sets in batches of any size.
#[track_caller]
fn check_batches(sampling: &SamplingSettings) -> Vec<Group> {
    let of = |batch_size| {
        let distribution = distribution(sampling);
        sample(RolloutSettings { batch_size, distribution, ..settings() }, &prompts(), KEY)
    };
    let one = of(1);
    for batch_size in [7, 64] {
        let other = of(batch_size);
        assert_eq!(all_ids(&one), all_ids(&other), "batches of {batch_size}");
        for (a, b) in completions(&one).zip(completions(&other)) {
            assert_eq!((a.key(), a.finish()), (b.key(), b.finish()));
            assert_eq!(a.sampled_under(), b.sampled_under(), "batches of {batch_size}");
            for (a, b) in a.sampling_logprobs().iter().zip(b.sampling_logprobs()) {
                assert!((a - b).abs() < 1e-6, "{a} and {b} in batches of {batch_size}");
            }
        }
    }
    one
}

#[test]
fn other_prompts_of_the_step_decide_nothing() {
    let all = sample(settings(), &prompts(), KEY);
    let mut chosen = prompts();
    chosen.swap(0, 3);
    chosen.remove(1);
    for group in sample(settings(), &chosen, KEY) {
        let alone = &all[group.prompt.index as usize];
        assert_eq!(all_ids(&[group]), all_ids(std::slice::from_ref(alone)));
    }
}

#[test]
fn the_same_key_gives_the_same_and_another_key_gives_others() {
    let of = |key| sample(settings(), &prompts(), key);
    let first = of(KEY);
    assert_eq!(first, of(KEY));
    for other in [
        StepKey { seed: 8, ..KEY },
        StepKey { step: 4, ..KEY },
        StepKey { purpose: Purpose::Evaluation, ..KEY },
    ] {
        let equal =
            all_ids(&first).iter().zip(all_ids(&of(other))).filter(|(a, b)| *a == b).count();
        // Of 54 completions, a few are short enough to be drawn twice.
        assert!(equal < 27, "{equal} completions of {other:?} are those of {KEY:?}");
    }
    // The version is a label: it is no coordinate of the random numbers.
    let later = of(StepKey { policy_version: 6, ..KEY });
    assert_eq!(all_ids(&first), all_ids(&later));
    assert!(completions(&later).all(|completion| completion.policy_version() == 6));
}

/// How often each id comes first after the prompt.
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
    // Far enough from equal that a sampler of equal shares would be found out.
    let equal = 1.0 / VOCABULARY as f64;
    assert!(expected.iter().any(|p| (p - equal).abs() > 10.0 * (equal / n).sqrt()), "{expected:?}");
}

#[test]
fn frequencies_are_the_probabilities_of_the_model() {
    check_frequencies(&SamplingSettings::default());
    bent().iter().for_each(check_frequencies);
}

#[test]
fn a_diverged_model_is_not_sampled() {
    // Products of such weights are infinite.
    let model = scaled(1e30);
    let rollout = Rollout::new(settings(), &model, 1).unwrap();
    let error = rollout.sample(&Frozen::snapshot(&model), &[prompt(0, &[0])], KEY).unwrap_err();
    assert!(matches!(error, RolloutError::Diverged(_)));
    assert_eq!(
        error.to_string(),
        "the model's logits are not finite: it has diverged, or its weights are damaged"
    );
}

#[track_caller]
fn check_refused(settings: RolloutSettings, longest_prompt: usize, expected: &str) {
    let error: RolloutError = Rollout::new(settings, &model(), longest_prompt).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_cannot_be_sampled_is_refused() {
    check_refused(
        RolloutSettings { group_size: 0, ..settings() },
        1,
        "group_size = 0 would sample nothing; use 1 or more",
    );
    check_refused(
        RolloutSettings { max_new_tokens: 0, ..settings() },
        1,
        "max_new_tokens = 0 would sample nothing; use 1 or more",
    );
    check_refused(
        RolloutSettings { batch_size: 0, ..settings() },
        1,
        "batch_size = 0 would sample nothing; use 1 or more",
    );
    check_refused(
        RolloutSettings { end_ids: vec![11, 12], ..settings() },
        1,
        "the end id 12 is outside the vocabulary of 12 tokens",
    );
    let other = SamplingSettings::default().checked(VOCABULARY + 1).unwrap();
    check_refused(
        RolloutSettings { distribution: other, ..settings() },
        1,
        "the sampling distribution is over 13 tokens and the model's vocabulary has 12",
    );
    check_refused(settings(), 0, "a prompt has no tokens; it needs at least the beginning mark");
    check_refused(
        RolloutSettings { max_new_tokens: 18, ..settings() },
        4,
        "a prompt of 4 tokens and max_new_tokens = 18 do not fit into the model's context of 20 tokens; max_new_tokens may be at most 17",
    );
    let fits = RolloutSettings { max_new_tokens: 17, ..settings() };
    assert!(Rollout::new(fits, &model(), 4).is_ok());
    check_refused(
        RolloutSettings { max_new_tokens: usize::MAX, ..settings() },
        1,
        &format!(
            "a prompt of 1 tokens and max_new_tokens = {} do not fit into the model's context of 20 tokens; max_new_tokens may be at most 20",
            usize::MAX
        ),
    );
}
