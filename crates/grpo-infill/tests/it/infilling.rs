//! Single-pass infilling: comparison with the definition, independence of other texts, and rejected
//! inputs.

use burn::tensor::Device;
use grpo_data::{Codec, Completion, Finish, Group, Prompt, SampleKey};
use grpo_infill::{Characters, InfillerConfig, Infilling, InfillingSettings};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, LanguageModel, TokenBatch, Transformer};
use grpo_rollout::Engine;
use proptest::prelude::*;

use crate::support::{KEY, completions, in_pool, prompt, shaken};

const MASK: u32 = 8;
const IDS: usize = 11;

fn characters() -> Characters {
    Characters::from_texts(["abcdefgh"]).unwrap()
}

/// Returns an infiller with probabilities far from uniform.
fn infiller() -> Transformer {
    let config = InfillerConfig::new(IDS, 24, 2, 2, 16).infiller().unwrap();
    shaken(Codec::from_text_codec(characters()), config)
}

/// Sampling settings that forbid everything except characters.
fn bent() -> SamplingSettings {
    let forbidden = characters().specials().to_vec();
    SamplingSettings { temperature: 0.8, top_p: Some(0.7), forbidden, ..Default::default() }
}

fn settings(sampling: SamplingSettings) -> InfillingSettings {
    let distribution = sampling.checked(IDS).unwrap();
    InfillingSettings { group_size: 6, mask_id: MASK, distribution }
}

fn infilling(sampling: SamplingSettings) -> Infilling {
    Infilling::new(settings(sampling), &infiller(), 24).unwrap()
}

/// Texts with one blank, with several blanks, and with nothing but blanks.
fn texts() -> Vec<Prompt> {
    let ids: [&[u32]; 5] = [
        &[0, MASK, 2, 3],
        &[MASK, 1, MASK, MASK, 4, 5, 6, MASK],
        &[MASK; 9],
        &[7, 6, 5, 4, 3, 2, MASK],
        &[MASK],
    ];
    ids.iter().zip(0..).map(|(ids, index)| prompt(index, ids)).collect()
}

fn sample(sampling: SamplingSettings) -> Vec<Group> {
    infilling(sampling).sample(&Frozen::snapshot(&infiller()), &texts(), KEY).unwrap()
}

/// Computes the probability of each ID at `place` under [`bent`], using plain loops over the
/// model's logits.
fn probabilities(model: &Transformer, text: &[u32], place: usize) -> Vec<f64> {
    let mut batch = TokenBatch::new();
    batch.push(text);
    let hidden = model.hidden(&batch, &mut grpo_model::Dropout::off());
    let logits: Vec<f64> = model.logits(hidden).into_data().iter::<f64>().collect();
    let row = &logits[place * IDS..(place + 1) * IDS];
    let weights: Vec<f64> =
        row.iter().enumerate().map(|(id, l)| if id < 8 { (l / 0.8).exp() } else { 0.0 }).collect();
    let total: f64 = weights.iter().sum();
    let mut order: Vec<usize> = (0..IDS).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    let (mut kept, mut sum) = (vec![0.0; IDS], 0.0);
    for id in order {
        if sum >= 0.7 {
            break;
        }
        kept[id] = weights[id] / total;
        sum += kept[id];
    }
    kept.iter().map(|p| p / sum).collect()
}

/// All blanks are filled, and the rest of the text is unchanged. Special tokens and characters
/// removed by truncation never occur. Log-probabilities refer to the truncated distribution.
#[test]
fn every_blank_of_every_row_is_filled_from_the_distribution_that_is_scored() {
    let model = infiller();
    let groups = sample(bent());
    assert_eq!(groups.len(), 5);
    for (group, text) in groups.iter().zip(texts()) {
        assert_eq!((group.samples.len(), &group.prompt), (6, &text));
        for (completion, sample) in group.completions().zip(0..) {
            let key = SampleKey { seed: KEY.seed, step: KEY.step, prompt: text.index, sample };
            assert_eq!((completion.key(), completion.policy_version()), (key, KEY.policy_version));
            assert_eq!(completion.finish(), Finish::Filled);
            assert_eq!(completion.sampled_under().mask_id, Some(MASK));
            assert_eq!(completion.text_ids(), completion.ids());
            let mut logprobs = completion.sampling_logprobs().unwrap().iter();
            for (place, (&id, &asked)) in completion.ids().iter().zip(&text.ids).enumerate() {
                assert!(id < 8, "{id} is not a character");
                assert_eq!(completion.action_mask()[place], asked == MASK);
                if asked != MASK {
                    assert_eq!(id, asked);
                    continue;
                }
                let all = probabilities(&model, &text.ids, place);
                let expected = all[id as usize];
                // Each position and sample has its own random number.
                let u = completion.key().uniform(KEY.purpose, place as u32);
                let below: f64 = all[..id as usize].iter().sum();
                assert!((below - 1e-5..below + expected + 1e-5).contains(&u), "{u} of {below}");
                let found = f64::from(*logprobs.next().unwrap()).exp();
                assert!((found - expected).abs() < 1e-5, "{found} against {expected}");
            }
            assert!(logprobs.next().is_none());
        }
    }
    // The samples differ from each other.
    let first: Vec<&[u32]> = groups[2].completions().map(Completion::ids).collect();
    assert!(first.iter().any(|ids| *ids != first[0]));
}

/// At each position, the frequency of each character equals its probability.
#[test]
fn frequencies_are_probabilities() {
    let model = infiller();
    let text = prompt(3, &[0, MASK, 2, 3]);
    let many = InfillingSettings { group_size: 4000, ..settings(bent()) };
    let groups = Infilling::new(many, &model, 4)
        .unwrap()
        .sample(&Frozen::snapshot(&model), std::slice::from_ref(&text), KEY)
        .unwrap();
    let expected = probabilities(&model, &text.ids, 1);
    for (id, p) in expected.iter().enumerate() {
        let count = completions(&groups).filter(|c| c.ids()[1] == id as u32).count() as f64;
        let error = (p * (1.0 - p) / 4000.0).sqrt();
        assert!((count / 4000.0 - p).abs() <= 4.0 * error, "{id}: {count} of 4000 against {p}");
    }
}

#[test]
fn what_is_filled_beside_it_and_by_how_many_threads_changes_nothing() {
    let (infilling, model) = (infilling(bent()), Frozen::snapshot(&infiller()));
    let all = sample(bent());
    for threads in [1, 3] {
        assert_eq!(all, in_pool(threads, || infilling.sample(&model, &texts(), KEY).unwrap()));
    }
    for group in &all {
        for (completion, number) in group.completions().zip(0..) {
            let alone = infilling.again(&model, &group.prompt, number, KEY).unwrap();
            assert_eq!(*completion, alone);
        }
    }
    let other = grpo_rollout::StepKey { step: 4, ..KEY };
    assert_ne!(all, infilling.sample(&model, &texts(), other).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn texts_keep_what_is_no_blank(ids in proptest::collection::vec(0..=MASK, 1..24)) {
        let text = prompt(0, &ids);
        let model = Frozen::snapshot(&infiller());
        let filled = infilling(bent()).sample(&model, std::slice::from_ref(&text), KEY);
        if !ids.contains(&MASK) {
            let refusal = "text 0 has no blank to fill; each text requires at least one";
            prop_assert_eq!(filled.unwrap_err().to_string(), refusal);
            return Ok(());
        }
        for completion in completions(&filled.unwrap()) {
            prop_assert_eq!(completion.actions(), ids.iter().filter(|id| **id == MASK).count());
            for (now, before) in completion.ids().iter().zip(&ids) {
                prop_assert!(*now < MASK && (*before == MASK || now == before));
            }
        }
    }
}

#[test]
fn refuses_texts_that_cannot_be_filled() {
    let refusal = |settings: InfillingSettings, longest| {
        Infilling::new(settings, &infiller(), longest).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(InfillingSettings { group_size: 0, ..settings(bent()) }, 4),
        "group_size = 0 is out of range; expected 1 or more"
    );
    assert_eq!(
        refusal(settings(SamplingSettings { forbidden: vec![9, 10], ..bent() }), 4),
        "the mask id 8 could be sampled; it must be forbidden"
    );
    assert_eq!(
        refusal(settings(SamplingSettings { repetition_penalty: Some(1.1), ..bent() }), 4),
        "sampling.repetition_penalty requires previously sampled tokens, but all blanks are filled in one pass; remove it"
    );
    assert_eq!(
        refusal(settings(bent()), 25),
        "a text of 25 characters does not fit into the model's context of 24; shorten it, or use a model with a longer context"
    );
    let other = SamplingSettings { forbidden: vec![MASK], ..Default::default() };
    let other =
        InfillingSettings { distribution: other.checked(IDS + 1).unwrap(), ..settings(bent()) };
    assert_eq!(
        refusal(other, 4),
        "the sampling distribution has 12 tokens, but the model's vocabulary has 11"
    );
    let model = Frozen::snapshot(&infiller());
    let refused = |ids: &[u32]| {
        infilling(bent()).sample(&model, &[prompt(2, ids)], KEY).unwrap_err().to_string()
    };
    assert_eq!(refused(&[]), "a prompt has no tokens; expected at least the begin token");
    assert_eq!(refused(&[1, 2]), "text 2 has no blank to fill; each text requires at least one");
    assert_eq!(refused(&[MASK, 11]), "prompt token id 11 is outside the vocabulary of 11 tokens");
    assert!(refused(&[MASK; 25]).starts_with("a text of 25 characters does not fit"));
    // Freezing the model removes its autodiff.
    let on_tape = Transformer::random(
        &InfillerConfig::new(IDS, 24, 1, 2, 16).infiller().unwrap(),
        1,
        &Device::flex().autodiff(),
    );
    let frozen = Frozen::snapshot(&on_tape.unwrap());
    assert_eq!(frozen.parameters_on_tape(), 0);
    assert!(infilling(bent()).sample(&frozen, &texts(), KEY).is_ok());
}
