//! Iterative infilling: comparison with plain loops, independence of the layout, and rejected
//! inputs.

use grpo_infill::{
    Denoising, DenoisingSettings, Filled, Infilling, InfillingSettings, Quality, RemaskRule,
    RemaskSchedule, Trust, Wrongness,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use grpo_data::{CounterRng, Prompt, Purpose};
use grpo_logprob::SamplingSettings;
use grpo_model::Frozen;
use grpo_rollout::{Engine, StepKey};

use crate::neighbours::{LENGTH, MASK, Neighbours, SIZE, SPECIALS, blanked, characters, logits};
use crate::support::{in_pool, prompt};

const SEED: u64 = 5;
const PURPOSE: Purpose = Purpose::EVALUATION;
/// Offset of the random numbers that select blanks to refill. Positions are smaller.
const CHOICE: u32 = 1 << 31;

fn sampling() -> SamplingSettings {
    SamplingSettings { temperature: 0.8, top_p: Some(0.95), ..SamplingSettings::default() }
}

fn settings() -> DenoisingSettings {
    DenoisingSettings::new(3, characters(sampling()), MASK)
}

fn fill(settings: &DenoisingSettings, texts: &[Prompt], trust: Trust<'_>) -> Vec<Vec<Filled>> {
    let model = Neighbours::new(1.0);
    let denoising = Denoising::new(settings.clone(), &model).unwrap();
    denoising.fill(&Frozen::snapshot(&model), texts, trust, Quality::None, SEED, PURPOSE).unwrap()
}

/// A critic with arbitrary estimates that depend on the neighbours.
fn opinions(ids: &[u32]) -> Vec<f64> {
    let before = std::iter::once(&0).chain(ids);
    ids.iter()
        .zip(before)
        .map(|(&id, &before)| f64::from((id * 5 + before * 3) % 11) / 10.0)
        .collect()
}

/// Returns all combinations of rule and trust.
fn ways() -> impl Iterator<Item = (RemaskRule, Trust<'static>)> {
    let critic: &'static Wrongness<'static> = &opinions;
    [RemaskRule::Ratio, RemaskRule::Threshold]
        .into_iter()
        .flat_map(move |rule| [(rule, Trust::Probability), (rule, Trust::Critic(critic))])
}

/// Regression test for a bug in the original: only the last row of a batch was updated, and the
/// others kept their blanks.
#[test]
fn no_row_of_a_batch_keeps_a_blank_and_nothing_else_changes() {
    let texts = blanked();
    for (rule, trust) in ways() {
        for iterations in [1, 2, 15] {
            let settings = DenoisingSettings { iterations, rule, ..settings() };
            let groups = fill(&settings, &texts, trust);
            assert_eq!(groups.len(), texts.len());
            for (text, group) in texts.iter().zip(&groups) {
                assert_eq!(group.len(), 3);
                for filled in group {
                    let was_blank = |&i: &usize| text.ids[i] == MASK;
                    let blanks: Vec<usize> = (0..text.ids.len()).filter(was_blank).collect();
                    assert_eq!(filled.blanks, blanks);
                    assert_eq!(filled.logprobs.len(), blanks.len());
                    assert_eq!(filled.ids.len(), text.ids.len());
                    for (i, id) in filled.ids.iter().enumerate() {
                        assert!(!SPECIALS.contains(id), "{rule:?} {iterations}: {:?}", filled.ids);
                        assert!(blanks.contains(&i) || *id == text.ids[i], "{:?}", filled.ids);
                    }
                }
            }
        }
    }
}

/// Reference implementation. Returns the IDs, log-probabilities and number of iterations for one
/// sample of a text.
fn by_the_definition(
    settings: &DenoisingSettings,
    text: &Prompt,
    sample: u32,
    critic: Option<&Wrongness<'_>>,
) -> (Vec<u32>, Vec<f64>, usize) {
    let rng = CounterRng::new(SEED, PURPOSE);
    let mut ids = text.ids.clone();
    let blanks: Vec<usize> = (0..ids.len()).filter(|&i| ids[i] == MASK).collect();
    let mut chosen = vec![0.0; ids.len()];
    let mut done = 0;
    for iteration in 0..settings.iterations {
        let seen = ids.clone();
        done += usize::from(seen.contains(&MASK));
        for &place in blanks.iter().filter(|&&place| seen[place] == MASK) {
            let uniform = rng.uniform([place as u32, sample, text.index, iteration as u32]);
            let probabilities = nucleus(&logits(&seen, place));
            let mut left = uniform;
            let hit = probabilities.iter().position(|&p| {
                left -= p;
                left < 0.0
            });
            ids[place] = hit.unwrap() as u32;
            chosen[place] = probabilities[hit.unwrap()].ln();
        }
        if iteration + 1 == settings.iterations {
            break;
        }
        let opinions = critic.map(|critic| critic(&ids));
        let wrong = |place: usize| {
            let wrong = match &opinions {
                Some(opinions) => opinions[place],
                None => 1.0 - chosen[place].exp(),
            };
            let chance =
                rng.uniform([CHOICE + place as u32, sample, text.index, iteration as u32 + 1]);
            0.8 * wrong + 0.2 * chance
        };
        let part = iteration as f64 / (settings.iterations - 2) as f64;
        let ratio = match settings.schedule {
            RemaskSchedule::Linear { from, to } => from + (to - from) * part,
            RemaskSchedule::List(ref ratios) => ratios[iteration],
        };
        let mut order = blanks.clone();
        order.sort_by(|&a, &b| wrong(b).partial_cmp(&wrong(a)).unwrap());
        match settings.rule {
            RemaskRule::Ratio => order.truncate((blanks.len() as f64 * ratio + 1e-9) as usize),
            RemaskRule::Threshold => order.retain(|&place| wrong(place) > 1.0 - ratio),
        }
        order.iter().for_each(|&place| ids[place] = MASK);
    }
    (ids, blanks.iter().map(|&place| chosen[place]).collect(), done)
}

/// Computes the distribution over characters with temperature 0.8 and top-p 0.95.
fn nucleus(logits: &[f64]) -> Vec<f64> {
    let mut weights: Vec<f64> = logits.iter().map(|logit| (logit / 0.8).exp()).collect();
    SPECIALS.iter().for_each(|&id| weights[id as usize] = 0.0);
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].partial_cmp(&weights[a]).unwrap());
    let total: f64 = weights.iter().sum();
    let mut before = 0.0;
    for id in order {
        let weight = weights[id];
        if before >= 0.95 * total {
            weights[id] = 0.0;
        }
        before += weight;
    }
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

#[test]
fn what_is_filled_is_what_the_definition_fills() {
    let texts = blanked();
    let mut ends = Vec::new();
    let falling = RemaskSchedule::Linear { from: 0.95, to: 0.05 };
    let rising = RemaskSchedule::Linear { from: 0.05, to: 0.8 };
    let changing = RemaskSchedule::List(vec![0.5, 0.0, 0.9, 0.3, 0.05, 0.6]);
    let ways = [falling, rising, changing]
        .into_iter()
        .flat_map(|schedule| ways().map(move |(rule, trust)| (schedule.clone(), rule, trust)));
    for (schedule, rule, trust) in ways {
        let critic = match trust {
            Trust::Probability => None,
            Trust::Critic(critic) => Some(critic),
        };
        let settings = DenoisingSettings { iterations: 7, schedule, rule, ..settings() };
        for (text, group) in texts.iter().zip(fill(&settings, &texts, trust)) {
            for (filled, sample) in group.iter().zip(0..) {
                let (ids, logprobs, iterations) =
                    by_the_definition(&settings, text, sample, critic);
                assert_eq!(filled.ids, ids, "{rule:?}, text {}, sample {sample}", text.index);
                assert_eq!(filled.iterations, iterations);
                for (found, expected) in filled.logprobs.iter().zip(&logprobs) {
                    assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
                }
                let mean = logprobs.iter().sum::<f64>() / logprobs.len() as f64;
                assert!((filled.mean_logprob() - mean).abs() < 1e-5);
                ends.push(iterations);
            }
        }
    }
    // Some texts ended early, others didn't.
    assert!(ends.contains(&7) && ends.iter().any(|&end| end < 7), "{ends:?}");
}

/// A single iteration is the single pass used to train policies.
#[test]
fn one_iteration_is_a_single_pass() {
    let texts = blanked();
    let model = Neighbours::new(1.0);
    let single =
        InfillingSettings { group_size: 3, mask_id: MASK, distribution: characters(sampling()) };
    let key = StepKey { seed: SEED, purpose: PURPOSE, step: 0, policy_version: 0 };
    let infilling = Infilling::new(single, &model, LENGTH).unwrap();
    let expected = infilling.sample(&Frozen::snapshot(&model), &texts, key).unwrap();
    let settings = DenoisingSettings { iterations: 1, ..settings() };
    let found = fill(&settings, &texts, Trust::Probability);
    assert!(found.iter().map(Vec::len).eq(expected.iter().map(|group| group.samples.len())));
    for (filled, completion) in
        found.iter().flatten().zip(expected.iter().flat_map(|group| group.completions()))
    {
        assert_eq!(filled.ids, completion.ids());
        assert_eq!(filled.logprobs, completion.sampling_logprobs().unwrap());
    }
}

#[test]
fn neither_other_texts_nor_other_samples_nor_threads_matter() {
    let texts = blanked();
    for (rule, trust) in ways() {
        let settings = DenoisingSettings { iterations: 5, rule, ..settings() };
        let together = in_pool(3, || fill(&settings, &texts, trust));
        assert_eq!(in_pool(1, || fill(&settings, &texts, trust)), together);
        for (text, group) in texts.iter().zip(&together) {
            let alone = fill(&settings, std::slice::from_ref(text), trust);
            assert_eq!(&alone[0], group);
            let fewer = DenoisingSettings { samples: 1, ..settings.clone() };
            assert_eq!(fill(&fewer, std::slice::from_ref(text), trust)[0], group[..1]);
        }
    }
}

#[test]
fn a_text_without_wrong_places_is_finished() {
    let texts = blanked();
    let settings = DenoisingSettings { rule: RemaskRule::Threshold, randomness: 0.0, ..settings() };
    let single =
        fill(&DenoisingSettings { iterations: 1, ..settings.clone() }, &texts, Trust::Probability);
    assert_eq!(fill(&settings, &texts, Trust::Critic(&|ids| vec![0.0; ids.len()])), single);
    // With the ratio rule, nothing ends early and blanks are always refilled.
    let always = DenoisingSettings { rule: RemaskRule::Ratio, ..settings };
    let groups = fill(&always, &texts, Trust::Critic(&|ids| vec![0.0; ids.len()]));
    let times: Vec<usize> = groups.iter().map(|group| group[0].iterations).collect();
    // The last of 14 ratios is 5 %, and a fraction of less than one blank is rounded down to none.
    assert_eq!(times, [14, 8, 13, 1, 12]);
}

/// An iteration without any errors above the threshold doesn't end the process if a later threshold
/// is lower.
#[test]
fn a_larger_ratio_after_a_smaller_one_has_its_turn() {
    let texts = blanked();
    let all = texts.iter().map(|text| text.ids.iter().filter(|&&id| id == MASK).count());
    let asked = AtomicUsize::new(0);
    let unsure = |ids: &[u32]| {
        asked.fetch_add(1, Relaxed);
        vec![0.5; ids.len()]
    };
    let times = |ratios: [f64; 4]| {
        let settings = DenoisingSettings {
            samples: 1,
            iterations: 5,
            schedule: RemaskSchedule::List(ratios.to_vec()),
            rule: RemaskRule::Threshold,
            randomness: 0.0,
            ..settings()
        };
        asked.store(0, Relaxed);
        let groups = fill(&settings, &texts, Trust::Critic(&unsure));
        assert!(groups.iter().map(|group| group[0].blanks.len()).eq(all.clone()));
        let times = groups.iter().map(|group| group[0].iterations).collect::<Vec<_>>();
        (times, asked.load(Relaxed))
    };
    let each = texts.len();
    assert_eq!(times([0.0, 0.9, 0.0, 0.9]), (vec![3; each], 4 * each));
    assert_eq!(times([0.9, 0.1, 0.2, 0.3]), (vec![2; each], 4 * each));
    // No later ratio can change anything, so the critic isn't called again.
    assert_eq!(times([0.9, 0.3, 0.3, 0.2]), (vec![2; each], 2 * each));
}

/// The critic reads the filled text. Everything it considers wrong is refilled until it finds no
/// more errors.
#[test]
fn a_critic_has_its_way() {
    let settings = DenoisingSettings {
        iterations: 200,
        schedule: RemaskSchedule::Linear { from: 0.5, to: 0.5 },
        rule: RemaskRule::Threshold,
        randomness: 0.0,
        ..settings()
    };
    let asked = AtomicUsize::new(0);
    let wants_twos = |ids: &[u32]| {
        asked.fetch_add(1, Relaxed);
        assert!(!ids.contains(&MASK), "a critic reads filled texts");
        ids.iter().map(|&id| f64::from(u8::from(id != 2))).collect()
    };
    let texts = [prompt(0, &[0, 7, 7, 0, 7]), prompt(1, &[7, 2, 1])];
    let groups = fill(&settings, &texts, Trust::Critic(&wants_twos));
    for filled in &groups[0] {
        assert_eq!(filled.ids, [0, 2, 2, 0, 2]);
        assert!(filled.iterations < 200);
    }
    assert!(groups[1].iter().all(|filled| filled.ids == [2, 2, 1]));
    let iterations: usize = groups.iter().flatten().map(|filled| filled.iterations).sum();
    assert_eq!(asked.into_inner(), iterations);
}

#[test]
fn quality_is_what_is_asked_for() {
    let model = Neighbours::new(1.0);
    let denoising = Denoising::new(settings(), &model).unwrap();
    let of = |quality: Quality<'_>| -> Vec<Filled> {
        let model = Frozen::snapshot(&model);
        let groups =
            denoising.fill(&model, &blanked(), Trust::Probability, quality, SEED, PURPOSE).unwrap();
        groups.into_iter().flatten().collect()
    };
    assert!(of(Quality::None).iter().all(|filled| filled.quality.is_none()));
    assert!(of(Quality::Own).iter().all(|filled| filled.quality == Some(filled.mean_logprob())));
    let first = |ids: &[u32]| f64::from(ids[0]) / 10.0;
    let judged = of(Quality::Judge(&first));
    assert!(judged.iter().all(|filled| filled.quality == Some(first(&filled.ids))));
    // The quality doesn't affect the result.
    let ids = |filled: Vec<Filled>| filled.into_iter().map(|filled| filled.ids).collect::<Vec<_>>();
    assert_eq!(ids(judged), ids(of(Quality::None)));
}

#[track_caller]
fn check_refused(settings: DenoisingSettings, expected: &str) {
    let error = Denoising::new(settings, &Neighbours::new(1.0)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn settings_that_fill_nothing_are_refused() {
    check_refused(
        DenoisingSettings { samples: 0, ..settings() },
        "samples = 0 is out of range; expected 1 or more",
    );
    check_refused(
        DenoisingSettings { iterations: 0, ..settings() },
        "iterations = 0 is out of range; expected 1 or more",
    );
    for bad in [-0.1, 1.1, f64::NAN] {
        check_refused(
            DenoisingSettings { randomness: bad, ..settings() },
            &format!("randomness of {bad} is out of range; expected 0 to 1"),
        );
        let with = |schedule| DenoisingSettings { schedule, iterations: 3, ..settings() };
        check_refused(
            with(RemaskSchedule::Linear { from: bad, to: 0.5 }),
            &format!("the first remasking ratio of {bad} is out of range; expected 0 to 1"),
        );
        check_refused(
            with(RemaskSchedule::Linear { from: 0.5, to: bad }),
            &format!("the last remasking ratio of {bad} is out of range; expected 0 to 1"),
        );
        check_refused(
            with(RemaskSchedule::List(vec![0.5, bad])),
            &format!("a remasking ratio of {bad} is out of range; expected 0 to 1"),
        );
    }
    check_refused(
        DenoisingSettings { schedule: RemaskSchedule::List(vec![0.5; 3]), ..settings() },
        "3 remasking ratios do not match 15 iterations; expected one fewer",
    );
    check_refused(
        DenoisingSettings {
            distribution: SamplingSettings::default().checked(SIZE + 1).unwrap(),
            ..settings()
        },
        "the sampling distribution has 11 tokens, but the model's vocabulary has 10",
    );
    check_refused(
        DenoisingSettings { mask_id: 6, ..settings() },
        "the mask id 6 could be sampled; it must be forbidden",
    );
    let penalty = SamplingSettings { repetition_penalty: Some(1.5), ..sampling() };
    check_refused(
        DenoisingSettings { distribution: characters(penalty), ..settings() },
        "sampling.repetition_penalty requires previously sampled tokens, but all blanks are filled in one pass; remove it",
    );
}

#[track_caller]
fn check_text(scale: f32, ids: &[u32], trust: Trust<'_>, expected: &str) {
    let model = Neighbours::new(scale);
    let denoising = Denoising::new(settings(), &model).unwrap();
    let texts = [prompt(0, &[7]), prompt(4, ids)];
    let model = Frozen::snapshot(&model);
    let found = denoising.fill(&model, &texts, trust, Quality::None, SEED, PURPOSE).unwrap_err();
    assert_eq!(found.to_string(), expected);
}

#[test]
fn texts_that_cannot_be_filled_are_refused() {
    let trust = Trust::Probability;
    let no_blank = "text 4 has no blank to fill; each text requires at least one";
    check_text(1.0, &[0, 1, 2], trust, no_blank);
    check_text(1.0, &[], trust, "a prompt has no tokens; expected at least the begin token");
    check_text(
        1.0,
        &[7; LENGTH + 1],
        trust,
        "a text of 17 characters does not fit into the model's context of 16; shorten it, or use a model with a longer context",
    );
    check_text(1.0, &[7, 10], trust, "prompt token id 10 is outside the vocabulary of 10 tokens");
    let diverged = "the model's logits are not finite: it has diverged, or its weights are damaged";
    check_text(f32::INFINITY, &[7], trust, diverged);
    check_text(1.0, &[7], Trust::Critic(&|ids| vec![f64::NAN; ids.len()]), diverged);
}
