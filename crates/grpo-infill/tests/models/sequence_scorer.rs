//! The sequence scorer: comparison with plain f64 loops, factors that affect a score,
//! initialisation from an infiller, and invalid directories.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{Codec, TextCodec};
use grpo_infill::{Characters, InfillerConfig, SequenceScorer};
use grpo_model::{
    Dropout, LanguageModel, ModelSpec, StoredAs, Transformer, linear_weights, weights_digest,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::configs::{bert, config, gpt2, with};
use crate::oracle::Oracle;
use crate::sizes::{characters, infiller, sequence_scorer};
use crate::support::{
    IntoGradients, assert_close, check_gradients, device, host, named_tensors, shaken, shakes,
    weights, write_folder,
};

/// Special tokens in vocabularies of 19 IDs.
const MASK: u32 = 16;
const PAD: u32 = 17;
const CLS: u32 = 18;
const TEXTS: [&[u32]; 4] = [&[4, 1, 15, 3, 3, 9, 2, 0], &[7], &[0, 0, 0], &[12, 5, MASK, 6]];

fn scorer(json: &Value, seed: u64, device: &Device) -> SequenceScorer {
    SequenceScorer::new(shaken(&config(json), seed, device)).unwrap()
}

fn oracle(json: &Value, scorer: &SequenceScorer) -> Oracle {
    Oracle::of(&config(json), scorer.model())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_small_scorer_is_its_definition(
        layers in 1..=3_usize, heads in 1..=3_usize, half in 1..=5_usize, vocabulary in 5..=23_usize,
        theta in 20.0..20_000.0_f64, seed in 0..1000_u64, text in prop::collection::vec(0..1000_u32, 0..=8),
    ) {
        let sizes = json!({
            "vocab_size": vocabulary, "n_layer": layers, "n_head": heads, "n_embd": heads * 2 * half,
            "rope_theta": theta,
        });
        let json = with(sequence_scorer(), sizes);
        let scorer = scorer(&json, seed, &device());
        let text: Vec<u32> = text.iter().map(|id| id % (vocabulary as u32 - 3)).collect();
        let (got, expected) = (scorer.score(&text), oracle(&json, &scorer).score(&text));
        prop_assert!((got - expected).abs() < 1e-5, "{got}, expected {expected}");
        prop_assert!((0.0..=1.0).contains(&got));
    }
}

/// Regression test for a bug in the original: it put CLS in front of a text of full length and kept
/// the last `block_size` IDs. CLS was lost, and the score was computed from an arbitrary character.
#[test]
fn a_text_that_is_too_long_loses_its_tail_and_not_cls() {
    let scorer = scorer(&sequence_scorer(), 1, &device());
    let oracle = oracle(&sequence_scorer(), &scorer);
    let long: [u32; 12] = [4, 1, 15, 3, 3, 9, 2, 0, 5, 5, 8, 11];
    // The block size is 8 characters. CLS has an additional position.
    assert_eq!(scorer.longest_text(), 8);
    for length in [8, 9, 12] {
        let got = scorer.score(&long[..length]);
        assert_close(&[got], &[oracle.score(&long[..8])], 1e-5);
        let batch = scorer.batch(&[&long[..length], &long[..2]], CLS);
        assert_eq!([batch.rows(0).len(), batch.rows(1).len()], [9, 3]);
    }
    let without_cls = oracle.score(&long[..7]);
    assert!((scorer.score(&long) - without_cls).abs() > 1e-3, "{without_cls}");
}

/// Regression test for a bug in the original, in which tokens attended to PAD. Short texts looked
/// cleaner as a result.
#[test]
fn padding_cannot_change_a_score() {
    let json = sequence_scorer();
    let scorer = scorer(&json, 1, &device());
    for text in TEXTS {
        let score = scorer.score(text);
        for tail in 1..6 {
            let padded = [text, &[PAD].repeat(tail)].concat();
            assert_eq!(scorer.score(&padded).to_bits(), score.to_bits());
        }
    }
    // The embedding of PAD is irrelevant.
    let other = with_another_vector(&json, &scorer, PAD);
    assert_ne!(weights_digest(other.model()), weights_digest(scorer.model()));
    for text in TEXTS {
        let padded = [text, &[PAD; 5]].concat();
        assert_eq!(other.score(&padded).to_bits(), scorer.score(text).to_bits());
    }
}

/// Regression test for a bug in the original: CLS and PAD had the same ID, and therefore the same
/// embedding.
#[test]
fn mask_pad_and_cls_are_vectors_of_their_own() {
    let json = sequence_scorer();
    let scorer = scorer(&json, 1, &device());
    let of = characters(&config(&json));
    assert_eq!([of.mask_id(), of.pad_id(), of.cls_id()], [MASK, PAD, CLS]);
    assert_eq!(scorer.cls_id(), CLS);
    let text = [4, MASK, 1];
    let change = |row| {
        let other = with_another_vector(&json, &scorer, row);
        (other.score(&text) - scorer.score(&text)).abs()
    };
    assert!(change(CLS) > 1e-4);
    assert!(change(MASK) > 1e-4);
    assert_eq!(change(PAD), 0.0);
}

/// Returns the scorer with a different embedding for one ID.
fn with_another_vector(json: &Value, scorer: &SequenceScorer, id: u32) -> SequenceScorer {
    let mut changed = weights(scorer.model());
    let (_, table) = changed.get_mut("tok_emb.weight").unwrap();
    table[id as usize * 24..][..24].iter_mut().zip(shakes("other")).for_each(|(x, y)| *x += y);
    let folder = tempfile::tempdir().unwrap();
    let config = config(json);
    write_folder(folder.path(), &config, &changed);
    let list = folder.path().join("characters.json");
    std::fs::write(list, characters(&config).to_json()).unwrap();
    SequenceScorer::load(folder.path(), &device()).unwrap().1
}

#[test]
fn texts_beside_it_are_no_part_of_a_score() {
    let scorer = scorer(&sequence_scorer(), 1, &device());
    let alone: Vec<f64> = TEXTS.iter().map(|text| scorer.score(text)).collect();
    let together = host(scorer.forward(&scorer.batch(&TEXTS, CLS), &mut Dropout::off()));
    assert_close(&together, &alone, 1e-6);
    // The comparison would be meaningless if scores were equal.
    assert!(alone.iter().all(|score| alone.iter().filter(|s| *s == score).count() == 1));
}

#[test]
fn gradients_are_those_of_the_definition() {
    let config = config(&sequence_scorer());
    let scorer = scorer(&sequence_scorer(), 1, &device().autodiff());
    // Large factors compensate for the small slope of the sigmoid.
    let factors: Vec<f32> = shakes("scores").take(TEXTS.len()).map(|w| 10.0 * w).collect();
    let scores = scorer.forward(&scorer.batch(&TEXTS, CLS), &mut Dropout::off());
    let weight = TensorData::new(factors.clone(), [TEXTS.len()]);
    let weight = Tensor::<1>::from_inner(Tensor::from_data(weight, &device()));
    let gradients = (scores * weight).sum().backward();
    let gradients = burn::optim::GradientsParams::from_grads(gradients, scorer.model());
    let model = scorer.model().clone().map(&mut IntoGradients(vec![gradients]));
    let of = |numbers: &BTreeMap<String, Vec<f64>>| -> f64 {
        let oracle = Oracle::of_numbers(&config, numbers.clone());
        TEXTS.iter().zip(&factors).map(|(text, &w)| oracle.score(text) * f64::from(w)).sum()
    };
    check_gradients(&weights(&model), &Oracle::of(&config, scorer.model()).tensors, of);
}

#[test]
fn a_score_is_off_the_tape_and_the_same_there() {
    let on_tape = scorer(&sequence_scorer(), 1, &device().autodiff());
    let off_tape = scorer(&sequence_scorer(), 1, &device());
    assert_eq!(on_tape.score(TEXTS[0]).to_bits(), off_tape.score(TEXTS[0]).to_bits());
    let scores = on_tape.forward(&on_tape.batch(&TEXTS, CLS), &mut Dropout::off());
    assert!(scores.is_autodiff());
}

#[test]
fn a_head_begins_with_its_first_values() {
    let sizes = InfillerConfig::new(19, 8, 1, 3, 24);
    let config = sizes.sequence_scorer().unwrap();
    let model = Transformer::random(&config, 0, &device()).unwrap();
    let listed: Vec<String> = named_tensors(&model)
        .iter()
        .filter(|(name, _)| !name.starts_with("blocks."))
        .map(|(name, data)| format!("{name} {:?}", data.shape().to_vec()))
        .collect();
    let expected = [
        "ln_f.bias [24]",
        "ln_f.weight [24]",
        "score_head.direction.weight [1, 24]",
        "score_head.scale [1]",
        "score_head.shift [1]",
        "tok_emb.weight [19, 24]",
    ];
    assert_eq!(listed, expected);
    let of = |name: &str| named_tensors(&model)[name].iter::<f64>().next();
    assert_eq!((of("score_head.scale"), of("score_head.shift")), (Some(1.0), Some(0.0)));
    // Six matrices in the block, and the score direction. Scale and shift have no weight decay.
    assert_eq!(linear_weights(&model).len(), 7);
}

#[test]
fn a_scorer_can_begin_as_an_infiller() {
    let trunk = shaken(&config(&infiller()), 5, &device());
    let own = config(&sequence_scorer());
    for on in [device(), device().autodiff()] {
        let scorer = SequenceScorer::from_trunk(&own, &trunk, 3, &on).unwrap();
        assert_eq!(scorer.model().device().is_autodiff(), on.is_autodiff());
        let (of_trunk, of_scorer) = (named_tensors(&trunk), named_tensors(scorer.model()));
        let new = named_tensors(&Transformer::random(&own, 3, &device()).unwrap());
        for (name, values) in of_scorer {
            match of_trunk.get(&name) {
                Some(trunk) => assert_eq!(&values, trunk, "{name}"),
                None => {
                    assert!(name.starts_with("score_head."), "{name}");
                    assert_eq!(values, new[&name]);
                }
            }
        }
    }
}

#[test]
fn a_scorer_cannot_begin_as_another_kind_of_model() {
    let own = config(&sequence_scorer());
    let refusal = |trunk: Value| {
        let trunk = Transformer::random(&config(&trunk), 0, &device()).unwrap();
        SequenceScorer::from_trunk(&own, &trunk, 0, &device()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(with(infiller(), json!({"n_embd": 12}))),
        "cannot start the scorer from the weights of this model: it has 19 ids, 2 blocks of width 12, 3 heads and rope_theta 50, but the scorer has 19 ids, 2 blocks of width 24, 3 heads and rope_theta 50; only block_size may differ"
    );
    assert!(refusal(gpt2()).contains("learned positions"));
    assert!(refusal(with(infiller(), json!({"rope_theta": 51.0}))).contains("rope_theta 51, but"));
    let other = config(&infiller());
    let trunk = shaken(&other, 5, &device());
    let wrong = SequenceScorer::from_trunk(&other, &trunk, 0, &device());
    assert_eq!(wrong.unwrap_err().to_string(), "a judge must be a sequence_scorer model");
}

/// The family is checked before the weights are read.
#[test]
fn folders_of_other_families_are_no_judges() {
    for (json, family) in [(infiller(), "infiller"), (gpt2(), "gpt2"), (bert(), "bert")] {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&json);
        write_folder(folder.path(), &config, &weights(&shaken(&config, 1, &device())));
        let refusal = SequenceScorer::load(folder.path(), &device()).unwrap_err().to_string();
        let expected = format!(
            "{} is not a judge: its model family is {family}; expected sequence_scorer, as written by `grpo train-judge`",
            folder.path().display()
        );
        assert_eq!(refusal, expected);
        assert!(SequenceScorer::new(shaken(&config, 1, &device())).is_err());
    }
}

#[test]
fn a_judge_survives_the_way_out_and_in() {
    let json = sequence_scorer();
    let scorer = scorer(&json, 1, &device());
    let folder = tempfile::tempdir().unwrap();
    let config = config(&json);
    let spec = ModelSpec { codec: Codec::from_text_codec(characters(&config)), config };
    spec.write(folder.path(), scorer.model(), StoredAs::F32).unwrap();
    let (again, judge) = SequenceScorer::load(folder.path(), &device()).unwrap();
    assert_eq!(again.config, spec.config);
    assert_eq!(again.codec.own::<Characters>(), spec.codec.own::<Characters>());
    assert_eq!(judge.score(TEXTS[0]).to_bits(), scorer.score(TEXTS[0]).to_bits());
}

#[test]
#[should_panic(expected = "CLS must be the last id of the scorer's vocabulary")]
fn cls_is_that_of_the_vocabulary() {
    scorer(&sequence_scorer(), 1, &device()).batch(&TEXTS, PAD);
}
