use std::collections::BTreeSet;

use burn::tensor::Device;
use grpo_data::Bonus;
use grpo_model::{Frozen, LanguageModel, Transformer, score_completions, weights_digest};
use grpo_molecules::MolGptConfig;
use grpo_rewards::Identity;
use grpo_train::{GrpoConfig, LearnResult, Learner};

use super::*;

/// Completions are the letters `a` to `d`; their order does not matter.
fn identities(texts: &[&str]) -> Vec<Identity> {
    texts.iter().map(|text| Identity::Canonical(sorted(text))).collect()
}

fn sorted(text: &str) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters.into_iter().collect()
}

/// Writes the letters in a random rotation, with the ids 1 to 4 and the end token 0.
struct Letters;

impl Variation for Letters {
    fn written(&self, canonical: &str, random: Option<u32>) -> Option<Vec<u32>> {
        let mut ids: Vec<u32> =
            canonical.bytes().map(|letter| u32::from(letter - b'a') + 1).collect();
        let count = ids.len() as u32;
        ids.rotate_left((random.unwrap_or(0) % count) as usize);
        ids.push(0);
        Some(ids)
    }

    fn mutated(&self, parent: &str, random: &mut dyn FnMut() -> u32) -> Option<String> {
        Some(sorted(&format!("{parent}{}", char::from(b'a' + (random() % 4) as u8))))
    }

    fn combined(&self, [a, b]: [&str; 2], _: &mut dyn FnMut() -> u32) -> Option<String> {
        Some(sorted(&format!("{a}{b}")))
    }
}

/// Returns an archive with these completions and rewards.
fn archive(calls: &[(&str, f64)]) -> Archive {
    limited_archive(calls, None)
}

fn limited_archive(calls: &[(&str, f64)], max_calls: Option<u32>) -> Archive {
    let mut archive = Archive::new(identities, max_calls);
    let call = |(text, reward): &(&str, f64)| ArchivedCall {
        text: (*text).to_owned(),
        terms: vec![(1.0, *reward)],
        parts: vec![("valid".into(), 1.0)],
    };
    archive.restore(calls.iter().map(call).collect());
    archive
}

fn settings(text: &str) -> ReplayConfig {
    toml::from_str(text).unwrap()
}

fn replay(config: ReplayConfig) -> Replay {
    Replay::new(config, Arc::new(Letters), 6, SampledUnder::default(), 5)
}

const CALLS: [(&str, f64); 5] = [("a", 0.2), ("bb", 0.9), ("abc", 0.5), ("d", 0.9), ("cc", 0.1)];

#[test]
fn the_best_come_first_and_earlier_ones_before_equal_ones() {
    let archive = archive(&CALLS);
    let best: Vec<&str> = archive.best().map(|call| call.text.as_str()).collect();
    assert_eq!(best, ["bb", "d", "abc", "a", "cc"]);
    assert_eq!(
        archive.calls().iter().map(ArchivedCall::reward).collect::<Vec<_>>(),
        CALLS.map(|it| it.1)
    );
}

/// As after an interrupted step.
#[test]
fn forgotten_calls_leave_no_trace() {
    let mut archive = archive(&CALLS);
    archive.forget_after(3);
    let expected = self::archive(&CALLS[..3]);
    assert_eq!(archive.calls(), expected.calls());
    assert!(archive.best().eq(expected.best()));
    assert!(archive.contains("abc") && !archive.contains("d"));
}

/// Frequencies of 60,000 draws against the weights, computed with a plain loop.
#[test]
fn completions_are_drawn_by_rank() {
    let archive = archive(&CALLS);
    let config = settings("rank_coefficient = 0.25\ncapacity = 4");
    let ranked = Ranked::new(&archive, &config);
    let mut random = Random::new(1, 0, 0);
    let mut counts = [0_u32; 4];
    for _draw in 0..60_000 {
        counts[ranked.draw_index(&mut random).unwrap()] += 1;
    }
    // Two of the four share the best reward: 3 ranks, whose weights have the offset 0.75.
    let (best, others) = (1.0 / 0.75, [1.0 / 1.75, 1.0 / 2.75]);
    let weights = [best / 2.0, best / 2.0, others[0], others[1]];
    let total: f64 = weights.iter().sum();
    for (count, weight) in counts.iter().zip(weights) {
        let share: f64 = weight / total;
        let deviation = (share * (1.0 - share) / 60_000.0).sqrt();
        let seen = f64::from(*count) / 60_000.0;
        assert!((seen - share).abs() < 4.0 * deviation, "{counts:?}");
    }
    assert_eq!(Ranked::new(&Archive::new(identities, None), &config).draw(&mut random), None);
}

#[test]
fn proposals_stay_within_the_calls_that_are_left() {
    let replay = replay(settings("proposals = 3"));
    let count = |max_calls| {
        let archive = limited_archive(&CALLS, max_calls);
        replay.proposals(&archive, &Prompt::of_ids(0, vec![0]), 0).samples.len()
    };
    assert_eq!([None, Some(7), Some(5)].map(count), [3, 2, 0]);
}

#[test]
fn replayed_completions_are_distinct_forms_of_the_best_with_their_scores() {
    let archive = archive(&CALLS);
    let replay = replay(settings("samples = 3\ncapacity = 3\nrandomize = 0.5"));
    let prompt = Prompt::of_ids(0, vec![0]);
    let mut forms = BTreeSet::new();
    for step in 0..20 {
        let group = replay.group(&archive, &prompt, step, 0);
        let texts: BTreeSet<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
        assert_eq!(texts, BTreeSet::from(["abc", "bb", "d"]));
        for sample in &group.samples {
            let expected = CALLS.iter().find(|(text, _)| *text == sample.text).unwrap().1;
            assert_eq!(sample.reward(), Some(expected));
            let ids: Vec<u32> = sample.completion.action_ids().collect();
            let letters = ids[..ids.len() - 1].iter().map(|id| char::from(b'`' + *id as u8));
            let written: String = letters.collect();
            assert_eq!((sorted(&written), ids.last()), (sample.text.clone(), Some(&0)));
            forms.insert(written);
        }
        assert_eq!(replay.group(&archive, &prompt, step, 0), group);
    }
    // All rotations of the only completion that has several.
    assert_eq!(forms, ["abc", "bca", "cab", "bb", "d"].map(str::to_owned).into());
    // The token limit includes the end token.
    let long = [("aaaaaa", 1.0), ("bbbbb", 0.5)];
    let group = replay.group(&self::archive(&long), &prompt, 0, 0);
    assert_eq!(group.samples.iter().map(|sample| &*sample.text).collect::<Vec<_>>(), ["bbbbb"]);
}

#[test]
fn proposals_are_new() {
    let archive = archive(&CALLS);
    let prompt = Prompt::of_ids(0, vec![0]);
    let group =
        replay(settings("proposals = 6\nmutation_rate = 0.5")).proposals(&archive, &prompt, 3);
    let ids = |sample: &Sample| -> String {
        let ids: Vec<u32> = sample.completion.action_ids().collect();
        sorted(
            &ids[..ids.len() - 1].iter().map(|id| char::from(b'`' + *id as u8)).collect::<String>(),
        )
    };
    let texts: BTreeSet<String> = group.samples.iter().map(ids).collect();
    assert_eq!((texts.len(), group.samples.len()), (6, 6));
    assert!(texts.iter().all(|text| !archive.contains(text)), "{texts:?}");
    let none = Archive::new(identities, None);
    assert!(replay(settings("proposals = 6")).proposals(&none, &prompt, 3).samples.is_empty());
}

fn learner(loss: &str) -> Learner<Transformer> {
    let config = MolGptConfig::new(5, 16, 1, 2, 8).to_config().unwrap();
    let policy = Transformer::random(&config, 3, &Device::flex().autodiff()).unwrap();
    let mut config: GrpoConfig = toml::from_str(&format!(
        "train = {{ steps = 1, prompts_per_step = 1, group_size = 4 }}\nsampling = {{ max_new_tokens = 6 }}\noptimizer = {{ learning_rate = 1e-2, weight_decay = 0.0 }}\nloss = {{ {loss} }}",
    ))
    .unwrap();
    config.sampler_check.tolerance = 1e9;
    // The reference differs from the policy.
    let reference = config_reference(&policy);
    Learner::new(policy, reference, &config).unwrap()
}

fn config_reference(policy: &Transformer) -> Frozen<Transformer> {
    let config = MolGptConfig::new(5, 16, 1, 2, 8).to_config().unwrap();
    let other = Transformer::random(&config, 4, &LanguageModel::device(policy)).unwrap();
    Frozen::snapshot(&other)
}

/// An update with replayed completions equals one with sampled ones if they are compared with themselves.
#[test]
fn replay_minimises_the_loss_of_the_run() {
    let archive = archive(&CALLS);
    let replay = replay(settings("samples = 4"));
    let prompt = Prompt::of_ids(0, vec![0]);
    for loss in [
        "preset = \"grpo\", kl_coef = 0.1",
        "preset = \"dr_grpo\", kl_coef = 0.1, kl_placement = \"reward\", kl_estimator = \"k1\"",
    ] {
        let (mut one, mut other) = (learner(loss), learner(loss));
        let before = weights_digest(one.policy());
        for step in 0..3 {
            let group = replay.group(&archive, &prompt, step, 0);
            let learned = other.learn(&mut [group.clone()], 1e-2).unwrap();
            let replayed = one.replay(&mut [group], &learned, 1e-2).unwrap();
            assert_eq!(replayed.loss, learned.loss());
            assert_eq!(weights_digest(one.policy()), weights_digest(other.policy()), "{loss}");
            assert!(replayed.ledger.completions.is_empty());
            assert_eq!(replayed.ledger.replayed.map(|hash| hash.len()), Some(64));
        }
        assert_ne!(before, weights_digest(one.policy()));
    }
}

/// Replayed completions become more probable if they are better than the sampled ones, and less probable
/// if they are worse, even if all have the same reward.
#[test]
fn replayed_completions_are_compared_with_sampled_ones() {
    let replay = replay(settings("samples = 2"));
    let prompt = Prompt::of_ids(0, vec![0]);
    let group = replay.group(&archive(&[("ab", 0.5), ("cd", 0.5)]), &prompt, 0, 0);
    let learned = learner("preset = \"dr_grpo\"").learn(&mut [group.clone()], 1e-2).unwrap();
    for (sampled, sign) in [([Some(0.1), Some(0.3)], 1.0), ([None, Some(0.7)], -1.0)] {
        let mut learner = learner("preset = \"dr_grpo\"");
        let log_probability = |learner: &Learner<Transformer>| -> f64 {
            let actions: Vec<Vec<u32>> =
                group.completions().map(|of| of.action_ids().collect()).collect();
            let rows: Vec<(&[u32], &[u32])> =
                actions.iter().map(|ids| (&[0][..], ids.as_slice())).collect();
            let scores = score_completions(&Frozen::snapshot(learner.policy()), &rows, 1.0);
            scores.iter().flat_map(|scores| &scores.logprobs).sum()
        };
        let before = log_probability(&learner);
        let sampled = LearnResult { objectives: sampled.to_vec(), ..learned.clone() };
        learner.replay(&mut [group.clone()], &sampled, 1e-2).unwrap();
        assert!(sign * (log_probability(&learner) - before) > 0.01, "{:?}", sampled.objectives);
    }
}

/// A diversity filter lowers the rewards of sampled completions, but not what replayed ones are compared with.
#[test]
fn replayed_completions_are_compared_with_rewards_before_the_filter() {
    let replay = replay(settings("samples = 4"));
    let group = replay.group(&archive(&CALLS), &Prompt::of_ids(0, vec![0]), 0, 0);
    let mut filtered = group.clone();
    filtered.samples[1].bonus = Some(Bonus { weight: 1.0, value: -0.25 });
    let objectives = |group: Group| {
        let learned = learner(PENALIZED).learn(&mut [group], 1e-2).unwrap();
        learned.objectives.into_iter().map(Option::unwrap).collect::<Vec<f64>>()
    };
    let (plain, filtered) = (objectives(group), objectives(filtered));
    assert_eq!(plain.len(), 4);
    assert!(
        plain.iter().zip(&filtered).all(|(a, b)| (a - b).abs() < 1e-15),
        "{plain:?} {filtered:?}"
    );
}

const PENALIZED: &str =
    "preset = \"dr_grpo\", kl_coef = 0.1, kl_placement = \"reward\", kl_estimator = \"k1\"";

/// The penalty of replayed completions has the coefficient that the sampled ones had.
#[test]
fn a_changed_coefficient_does_not_affect_the_replay_of_the_step() {
    let replay = replay(settings("samples = 4"));
    let group = replay.group(&archive(&CALLS), &Prompt::of_ids(0, vec![0]), 0, 0);
    let learned = learner(PENALIZED).learn(&mut [group.clone()], 1e-2).unwrap();
    let digest = |kl_coef: f64| {
        let mut learner = learner(PENALIZED);
        learner.set_kl_coef(kl_coef);
        learner.replay(&mut [group.clone()], &learned, 1e-2).unwrap();
        weights_digest(learner.policy())
    };
    assert_eq!(digest(0.1), digest(5.0));
}
