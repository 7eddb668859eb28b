//! The result for a sequence doesn't depend on the batch it is in.

use grpo_model::{
    Dropout, Frozen, KvCache, LanguageModel, SentenceEncoder, TokenBatch, Transformer,
};

use crate::configs::{bert, config, language_models, llama, rotations, with};
use crate::support::{assert_close, assert_same, device, host, largest, shaken};

const ROWS: [&[u32]; 5] =
    [&[4, 1, 18, 3, 3, 9], &[7], &[0, 0, 0], &[12, 5, 6, 17], &[2, 11, 13, 1, 8, 10, 14, 0, 16]];

fn models() -> impl Iterator<Item = Transformer> {
    let rotated =
        rotations().map(|rope| with(llama(), serde_json::json!({"rope_parameters": rope})));
    let all = language_models().into_iter().chain(rotated);
    all.map(|json| shaken(&config(&json), 1, &device()))
}

/// Returns the hidden states of all tokens in all sequences.
fn hidden(model: &Transformer, sequences: &[&[u32]]) -> Vec<f64> {
    let batch = TokenBatch::from_iter(sequences.iter().copied());
    host(model.hidden(&batch, &mut Dropout::off()))
}

#[test]
fn sequences_packed_together_give_what_they_give_alone() {
    for model in models() {
        let alone: Vec<f64> = ROWS.iter().flat_map(|row| hidden(&model, &[row])).collect();
        let tolerance = 1e-6 * largest(&alone);
        assert_close(&hidden(&model, &ROWS), &alone, tolerance);
        let cut = [&ROWS[..2], &ROWS[2..]].map(|rows| hidden(&model, rows));
        assert_close(&cut.concat(), &alone, tolerance);
    }
}

#[test]
fn continuations_of_a_shared_beginning_give_what_whole_sequences_give() {
    let first: &[u32] = &[3, 14, 9];
    let rest: [&[u32]; 3] = [&[5, 2], &[5], &[7, 1, 0, 2]];
    for model in models() {
        let mut batch = TokenBatch::from_iter([ROWS[0]]);
        let shared = batch.push(first);
        let behind = rest.map(|rest| batch.push_behind(shared, rest));
        batch.push(ROWS[1]);
        let got = host(model.hidden(&batch, &mut Dropout::off()));
        let width = model.description().width;
        let of = |rows: std::ops::Range<usize>| &got[rows.start * width..rows.end * width];
        for (sequence, rest) in behind.into_iter().zip(rest) {
            let expected = hidden(&model, &[&[first, rest].concat()]);
            let got = [of(batch.rows(shared)), of(batch.rows(sequence))].concat();
            assert_close(&got, &expected, 1e-6 * largest(&expected));
        }
        let neighbours = [of(batch.rows(0)), of(batch.rows(batch.sequences() - 1))].concat();
        let expected = [hidden(&model, &ROWS[..1]), hidden(&model, &ROWS[1..2])].concat();
        assert_close(&neighbours, &expected, 1e-6 * largest(&expected));
    }
}

/// Uses forks, single tokens and several tokens at once, and closes and opens sequences in between.
/// The results match those without a cache, and those of a separate cache for each sequence.
#[test]
fn cached_sequences_equal_separate_ones() {
    for model in models() {
        let model = Frozen::snapshot(&model);
        let mut cache = KvCache::new();
        let mut sequences: Vec<(Vec<u32>, _)> = Vec::new();
        let check = |cache: &mut KvCache, sequences: &mut Vec<(Vec<u32>, _)>, more: &[&[u32]]| {
            let slots: Vec<_> = sequences.iter().map(|(_, slot)| *slot).collect();
            let batch = TokenBatch::from_iter(more.iter().copied());
            let got = host(model.extend(&batch, cache, &slots));
            let width = got.len() / batch.tokens();
            for (i, (ids, _)) in sequences.iter_mut().enumerate() {
                let rows = batch.rows(i);
                let got = &got[rows.start * width..rows.end * width];
                let before = ids.len();
                ids.extend(more[i]);
                let whole = TokenBatch::from_iter([ids.as_slice()]);
                let full = host(model.hidden(&whole));
                let full = &full[before * width..];
                assert_close(got, full, 2e-6 * largest(full));
                let mut own = KvCache::new();
                let slot = [own.open()];
                for id in ids[..before].chunks(1) {
                    model.extend(&TokenBatch::from_iter([id]), &mut own, &slot);
                }
                let new = TokenBatch::from_iter([more[i]]);
                let alone = host(model.extend(&new, &mut own, &slot));
                assert_same(got, &alone, &format!("{ids:?}"));
            }
        };
        sequences.extend(ROWS[..3].iter().map(|_| (Vec::new(), cache.open())));
        check(&mut cache, &mut sequences, &ROWS[..3]);
        check(&mut cache, &mut sequences, &[&[9], &[2], &[15]]);
        cache.close(sequences.remove(1).1);
        let fork = (sequences[0].0.clone(), cache.fork(sequences[0].1));
        sequences.push(fork);
        check(&mut cache, &mut sequences, &[&[3, 4, 5], &[1], &[2; 12]]);
        sequences.push((Vec::new(), cache.open()));
        let long = [7_u32; 20];
        check(&mut cache, &mut sequences, &[&[8], &[8], &[8], &long]);
        let fork = (sequences[3].0.clone(), cache.fork(sequences[3].1));
        sequences.push(fork);
        check(&mut cache, &mut sequences, &[&[1], &[2], &[3], &[4], &[5]]);
    }
}

#[test]
#[should_panic(expected = "65 tokens exceed the context of 64")]
fn more_tokens_than_the_context_has() {
    let model = shaken(&config(&llama()), 1, &device());
    let long = [0_u32; 60];
    let mut cache = KvCache::new();
    let slots = [cache.open()];
    model.extend(&TokenBatch::from_iter([long.as_slice()]), &mut cache, &slots);
    model.extend(&TokenBatch::from_iter([&long[..5]]), &mut cache, &slots);
}

#[test]
fn neighbours_are_no_part_of_a_sentence_vector() {
    let model = shaken(&config(&bert()), 1, &device());
    let encoder = SentenceEncoder::new(model).unwrap();
    let alone: Vec<f64> = ROWS
        .iter()
        .flat_map(|row| host(encoder.mean_pooled(&TokenBatch::from_iter([*row]))))
        .collect();
    let together = host(encoder.mean_pooled(&TokenBatch::from_iter(ROWS)));
    assert_close(&together, &alone, 1e-6 * largest(&alone));
    let unit = host(encoder.unit(&TokenBatch::from_iter(ROWS)));
    for (unit, mean) in unit.chunks(24).zip(alone.chunks(24)) {
        let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert_close(unit, &mean.iter().map(|x| x / length).collect::<Vec<f64>>(), 1e-6);
    }
}

#[test]
fn a_causal_model_is_no_encoder() {
    let model = shaken(&config(&llama()), 1, &device());
    assert_eq!(
        SentenceEncoder::new(model).unwrap_err().to_string(),
        "a sentence encoder requires bidirectional attention, as in BERT"
    );
}
