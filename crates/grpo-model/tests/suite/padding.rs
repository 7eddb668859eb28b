//! Where a batch is padded changes nothing.

use burn::tensor::Device;
use grpo_model::{
    CausalLm, Dropout, Frozen, KvCache, Padding, SentenceEncoder, TokenBatch, Transformer,
};

use crate::configs::{bert, config, language_models, llama, rotations, with};
use crate::support::{assert_close, host, largest, of_tokens, shaken};

const ROWS: [&[u32]; 5] =
    [&[4, 1, 18, 3, 3, 9], &[7], &[0, 0, 0], &[12, 5, 6, 17], &[2, 11, 13, 1, 8, 10, 14, 0, 16]];

fn models() -> impl Iterator<Item = Transformer> {
    let rotated =
        rotations().map(|rope| with(llama(), serde_json::json!({"rope_parameters": rope})));
    let all = language_models().into_iter().chain(rotated);
    all.map(|json| shaken(&config(&json), 1, &Device::flex()))
}

/// Hidden states of each token of each row.
fn hidden(model: &Transformer, rows: &[&[u32]], padding: Padding) -> Vec<f64> {
    let batch = TokenBatch::new(rows.iter().copied(), padding);
    of_tokens(model.hidden(&batch, None, &mut Dropout::off()), &batch)
}

#[test]
fn batches_padded_on_either_side_give_what_rows_give_alone() {
    for model in models() {
        let alone: Vec<f64> =
            ROWS.iter().flat_map(|row| hidden(&model, &[row], Padding::Right)).collect();
        let tolerance = 1e-6 * largest(&alone);
        for padding in [Padding::Left, Padding::Right] {
            assert_close(&hidden(&model, &ROWS, padding), &alone, tolerance);
            let cut = [&ROWS[..2], &ROWS[2..]].map(|rows| hidden(&model, rows, padding));
            assert_close(&cut.concat(), &alone, tolerance);
        }
    }
}

/// Prompts padded on the left, a column after the other, and rows taken out on the way.
#[test]
fn a_cache_begun_with_padding_gives_what_rows_give_alone() {
    const NEXT: [u32; 4] = [9, 2, 15, 3];
    for model in models() {
        let model = Frozen::snapshot(&model);
        let alone = |row: &[u32]| host(model.hidden(&TokenBatch::from_iter([row]), None));
        let mut cache = KvCache::new();
        let prompts = TokenBatch::new(ROWS, Padding::Left);
        let first = of_tokens(model.extend(&prompts, None, &mut cache), &prompts);
        let expected = ROWS.map(alone).concat();
        let tolerance = 1e-6 * largest(&expected);
        assert_close(&first, &expected, tolerance);

        let mut rows: Vec<Vec<u32>> = ROWS.iter().map(|row| row.to_vec()).collect();
        for (step, &id) in NEXT.iter().enumerate() {
            if step == 1 {
                cache.select(&[3, 0, 1]);
                rows = [3, 0, 1].map(|row: usize| rows[row].clone()).to_vec();
            }
            if step == 3 {
                cache.select(&[2, 2]);
                rows = vec![rows[2].clone(), rows[2].clone()];
            }
            // Other ids in other rows.
            let column: Vec<u32> = (0..rows.len() as u32).map(|row| (id + row) % 19).collect();
            rows.iter_mut().zip(&column).for_each(|(row, &id)| row.push(id));
            let batch: TokenBatch = column.chunks(1).collect();
            let got = host(model.extend(&batch, None, &mut cache));
            let width = got.len() / rows.len();
            let last = |row: &Vec<u32>| alone(row)[(row.len() - 1) * width..].to_vec();
            assert_close(&got, &rows.iter().flat_map(last).collect::<Vec<f64>>(), tolerance);
        }
        assert_eq!(cache.positions(), prompts.columns() + NEXT.len());
    }
}

/// Several columns at once behind a padded beginning.
#[test]
fn a_cache_takes_several_columns_at_once() {
    for model in models() {
        let begin = TokenBatch::new([&ROWS[0][..3], &ROWS[3][..1]], Padding::Left);
        let rest = TokenBatch::from_iter([&ROWS[0][3..], &ROWS[3][1..]]);
        let mut cache = KvCache::new();
        model.extend(&begin, None, &mut cache);
        let got = host(model.extend(&rest, None, &mut cache));
        let alone = |row: &[u32]| {
            host(model.hidden(&TokenBatch::from_iter([row]), None, &mut Dropout::off()))
        };
        let width = got.len() / 6;
        let expected = [alone(ROWS[0])[3 * width..].to_vec(), alone(ROWS[3])[width..].to_vec()];
        assert_close(&got, &expected.concat(), 1e-6 * largest(&expected.concat()));
    }
}

#[test]
#[should_panic(expected = "the rows of a cache end in the same column: pad on the left")]
fn a_cache_of_rows_that_end_in_different_columns() {
    let model = shaken(&config(&llama()), 1, &Device::flex());
    model.extend(&TokenBatch::new(ROWS, Padding::Right), None, &mut KvCache::new());
}

#[test]
#[should_panic(expected = "only the first tokens of a cache are padded")]
fn padding_behind_the_first_tokens_of_a_cache() {
    let model = shaken(&config(&llama()), 1, &Device::flex());
    let mut cache = KvCache::new();
    model.extend(&TokenBatch::new(ROWS, Padding::Left), None, &mut cache);
    model.extend(&TokenBatch::new(ROWS, Padding::Left), None, &mut cache);
}

#[test]
#[should_panic(expected = "65 tokens in a context of 64")]
fn more_tokens_than_the_context_has() {
    let model = shaken(&config(&llama()), 1, &Device::flex());
    let long = [0_u32; 60];
    let mut cache = KvCache::new();
    model.extend(&TokenBatch::from_iter([long.as_slice()]), None, &mut cache);
    model.extend(&TokenBatch::from_iter([&long[..5]]), None, &mut cache);
}

#[test]
fn padding_is_no_part_of_a_sentence_vector() {
    let model = shaken(&config(&bert()), 1, &Device::flex());
    let encoder = SentenceEncoder::new(model).unwrap();
    let alone: Vec<f64> = ROWS
        .iter()
        .flat_map(|row| host(encoder.mean_pooled(&TokenBatch::from_iter([*row]))))
        .collect();
    let of = |padding| host(encoder.mean_pooled(&TokenBatch::new(ROWS, padding)));
    for padding in [Padding::Left, Padding::Right] {
        assert_close(&of(padding), &alone, 1e-6 * largest(&alone));
    }
    let unit = host(encoder.unit(&TokenBatch::from_iter(ROWS)));
    for (unit, mean) in unit.chunks(24).zip(alone.chunks(24)) {
        let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert_close(unit, &mean.iter().map(|x| x / length).collect::<Vec<f64>>(), 1e-6);
    }
}

#[test]
fn a_causal_model_is_no_encoder() {
    let model = shaken(&config(&llama()), 1, &Device::flex());
    assert_eq!(
        SentenceEncoder::new(model).unwrap_err().to_string(),
        "a sentence encoder is a model like BERT, in which all tokens see each other"
    );
}
