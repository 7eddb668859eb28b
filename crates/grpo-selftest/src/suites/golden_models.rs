//! Compares models and adapters with results from transformers and PEFT.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use grpo_logprob::{Scores, Targets, score};
use grpo_model::{
    Adapted, AdapterFolder, Frozen, KvCache, LanguageModel, ModelFolder, Policy, SentenceEncoder,
    TokenBatch, Transformer,
};

use crate::golden::{ExpectedAdapter, ExpectedSentence, ExpectedSequence, GoldenModel};
use crate::report::{Suite, Tolerance};
use crate::tensors::{Precision, host};
use crate::{Options, SelftestError};

/// Tolerance for logits from two f32 implementations.
pub(super) const LOGITS: f64 = 2e-4;
/// Tolerance for log-probabilities and entropies from two f32 implementations.
pub(super) const SCORES: f64 = 1e-4;
/// Tolerance for results from different batch layouts in the same implementation.
const LAYOUTS: f64 = 1e-5;

pub(super) fn policy(
    golden: &GoldenModel,
    expected: &[ExpectedSequence],
    options: &Options,
) -> Result<Suite, SelftestError> {
    let mut suite = start("policy", golden, "transformers");
    let model = load(&golden.path, options, &options.device)?;
    for (number, sequence) in expected.iter().enumerate() {
        let ExpectedSequence { prompt, completion, greedy, .. } = sequence;
        let key = |name: &str| format!("sequences[{number}].{name}");
        check_ids(golden, &key("prompt"), prompt, 1, &model)?;
        check_ids(golden, &key("completion"), completion, 1, &model)?;
        check_ids(golden, &key("greedy"), greedy, 0, &model)?;
        for (name, behind) in [("completion", completion.len()), ("greedy", greedy.len())] {
            check_length(golden, &key(name), prompt.len() + behind, &model)?;
        }
    }
    let frozen = Frozen::snapshot(&model);
    for (number, sequence) in expected.iter().enumerate() {
        let mut case = suite.case(format!("sequence {number}"));
        let place = |what: &'static str| move |i: usize| format!("{what}[{i}]");
        let whole = [sequence.prompt.as_slice(), &sequence.completion].concat();
        let last = logits(&frozen, &whole);
        let got = &last[last.len() - frozen.vocabulary_size()..];
        let bound = Tolerance::EXACT.plus(LOGITS);
        case.list(&place("last_logits"), got, &sequence.last_logits, bound);
        let bound = Tolerance::EXACT.plus(SCORES);
        let alone = TokenBatch::from_iter([whole.as_slice()]);
        for (temperature, logprobs, entropies) in [
            (1.0, &sequence.logprobs, &sequence.entropies),
            (0.8, &sequence.cool_logprobs, &sequence.cool_entropies),
        ] {
            let got = scores(&frozen, &alone, 0, sequence, temperature);
            let [at_logprobs, at_entropies] = ["logprobs", "entropies"]
                .map(|what| format!("{what} at temperature {temperature}"));
            case.list(&|i| format!("{at_logprobs}[{i}]"), &host(got.logprobs), logprobs, bound);
            case.list(&|i| format!("{at_entropies}[{i}]"), &host(got.entropies), entropies, bound);
        }
        let ids = |ids: &[u32]| ids.iter().map(|&id| f64::from(id)).collect::<Vec<_>>();
        let greedy = greedy(&frozen, &sequence.prompt, sequence.greedy.len());
        let exact = Tolerance::EXACT;
        case.list(&place("greedy"), &ids(&greedy), &ids(&sequence.greedy), exact);
    }
    layouts(&mut suite, &frozen, expected);
    Ok(suite)
}

/// Compares batched sequences with sequences that are processed separately.
fn layouts(suite: &mut Suite, model: &Frozen<Transformer>, sequences: &[ExpectedSequence]) {
    let order: Vec<usize> = (0..sequences.len()).collect();
    let reversed: Vec<usize> = order.iter().rev().copied().collect();
    for (label, order, size, layout, temperature) in [
        ("packed together", &order, order.len(), Layout::Packed, 1.0),
        ("packed in reverse", &reversed, order.len(), Layout::Packed, 1.0),
        ("packed in pairs", &order, 2, Layout::Packed, 0.8),
        ("as continuations of their prompts", &order, order.len(), Layout::BehindPrompts, 0.8),
        ("through the cache", &order, order.len(), Layout::Cached, 1.0),
    ] {
        let mut case = suite.case(label.to_owned());
        for part in order.chunks(size) {
            let together: Vec<&ExpectedSequence> = part.iter().map(|&i| &sequences[i]).collect();
            let hidden = layout.hidden(model, &together);
            for ((&number, sequence), hidden) in part.iter().zip(together).zip(hidden) {
                let whole = [sequence.prompt.as_slice(), &sequence.completion].concat();
                let alone = TokenBatch::from_iter([whole.as_slice()]);
                let expected = host(scores(model, &alone, 0, sequence, temperature).logprobs);
                let got = host(scores_of(model, hidden, sequence, temperature).logprobs);
                let place = |i: usize| format!("logprobs[{number}][{i}]");
                case.list(&place, &got, &expected, Tolerance::EXACT.plus(LAYOUTS));
            }
        }
    }
}

/// How sequences are passed to the model.
#[derive(Clone, Copy)]
enum Layout {
    Packed,
    BehindPrompts,
    Cached,
}

impl Layout {
    /// Returns the hidden states that predict the completion of each sequence.
    fn hidden(
        self,
        model: &Frozen<Transformer>,
        sequences: &[&ExpectedSequence],
    ) -> Vec<Tensor<2>> {
        let mut batch = TokenBatch::new();
        let mut rows = Vec::new();
        for sequence in sequences {
            let own = &sequence.completion[..sequence.completion.len() - 1];
            let mut of_sequence = Vec::new();
            match self {
                Self::Packed | Self::Cached => {
                    let index = batch.push(&[sequence.prompt.as_slice(), own].concat());
                    of_sequence.extend(batch.rows(index));
                }
                Self::BehindPrompts => {
                    let prompt = batch.push(&sequence.prompt);
                    of_sequence.extend(batch.rows(prompt));
                    if !own.is_empty() {
                        let index = batch.push_behind(prompt, own);
                        of_sequence.extend(batch.rows(index));
                    }
                }
            }
            rows.push(of_sequence[sequence.prompt.len() - 1..].to_vec());
        }
        let hidden = match self {
            Self::Packed | Self::BehindPrompts => model.hidden(&batch),
            Self::Cached => {
                let mut cache = KvCache::new();
                let slots: Vec<_> = sequences.iter().map(|_| cache.open()).collect();
                model.extend(&batch, &mut cache, &slots)
            }
        };
        let chosen = |rows: Vec<usize>| {
            let parts = rows.into_iter().map(|row| hidden.clone().narrow(0, row, 1));
            Tensor::cat(parts.collect(), 0)
        };
        rows.into_iter().map(chosen).collect()
    }
}

pub(super) fn encoder(
    golden: &GoldenModel,
    expected: &[ExpectedSentence],
    options: &Options,
) -> Result<Suite, SelftestError> {
    let mut suite = start("encoder", golden, "transformers");
    let model = load(&golden.path, options, &options.device)?;
    for (number, ExpectedSentence { input_ids, .. }) in expected.iter().enumerate() {
        let key = format!("sequences[{number}].input_ids");
        check_ids(golden, &key, input_ids, 1, &model)?;
        check_length(golden, &key, input_ids.len(), &model)?;
    }
    let encoder = SentenceEncoder::new(model)?;
    let sentences: Vec<&[u32]> = expected.iter().map(|s| s.input_ids.as_slice()).collect();
    let last = sentences.len() - 1;
    for label in ["alone", "packed together", "packed in reverse"] {
        for (row, sentence) in expected.iter().enumerate() {
            let mut case = suite.case(format!("sentence {row}, {label}"));
            let (batch, row) = match label {
                "alone" => (TokenBatch::from_iter([sentences[row]]), 0),
                "packed together" => (sentences.iter().copied().collect(), row),
                _ => (sentences.iter().rev().copied().collect(), last - row),
            };
            let of_row = |vectors: Tensor<2>| host(vectors.narrow(0, row, 1));
            let bound = Tolerance::EXACT.plus(LOGITS);
            let (pooled, unit) = (encoder.mean_pooled(&batch), encoder.unit(&batch));
            case.list(
                &|i| format!("mean_pooled[{i}]"),
                &of_row(pooled),
                &sentence.mean_pooled,
                bound,
            );
            case.list(&|i| format!("unit[{i}]"), &of_row(unit), &sentence.unit, bound);
        }
    }
    Ok(suite)
}

pub(super) fn adapter(
    golden: &GoldenModel,
    expected: &ExpectedAdapter,
    options: &Options,
) -> Result<Suite, SelftestError> {
    let mut suite = start("adapter", golden, "PEFT");
    let base = golden.path.parent().unwrap_or(&golden.path).join(&expected.base);
    let model = load(&base, options, &options.device)?;
    check_ids(golden, "input_ids", &expected.input_ids, 1, &model)?;
    check_length(golden, "input_ids", expected.input_ids.len(), &model)?;
    let folder = AdapterFolder::load(&golden.path, &model, &options.device)?;
    let merged = model.merged(&folder.adapter);
    let adapted = Policy::Adapted(Adapted::new(&model, folder.adapter));
    let expected_logits = expected.logits.concat();
    let bound = Tolerance::EXACT.plus(LOGITS);
    let ways = [
        ("on top of the base", logits(&Frozen::snapshot(&adapted), &expected.input_ids)),
        ("merged into it", logits(&Frozen::snapshot(&merged), &expected.input_ids)),
    ];
    for (label, got) in ways {
        let mut case = suite.case(label);
        case.list(&|i| format!("logits[{i}]"), &got, &expected_logits, bound);
    }
    Ok(suite)
}

pub(super) fn start(name: &'static str, golden: &GoldenModel, by: &str) -> Suite {
    Suite::new(name, format!("{by}, {}", golden.name), Precision::F32)
}

pub(super) fn load(
    folder: &Path,
    options: &Options,
    device: &Device,
) -> Result<Transformer, SelftestError> {
    Ok(ModelFolder::load_model(folder, &options.families, device)?)
}

/// Checks that there are enough ids and that they are within the vocabulary.
pub(super) fn check_ids(
    golden: &GoldenModel,
    key: &str,
    ids: &[u32],
    least: usize,
    model: &Transformer,
) -> Result<(), SelftestError> {
    let vocabulary = model.description().vocabulary;
    if ids.len() < least {
        return Err(golden.fault(key, format!("{} ids, expected at least {least}", ids.len())));
    }
    match ids.iter().find(|id| **id as usize >= vocabulary) {
        Some(id) => {
            let problem = format!("token id {id} is outside the vocabulary of {vocabulary} tokens");
            Err(golden.fault(key, problem))
        }
        None => Ok(()),
    }
}

/// Checks that the tokens fit into the context length.
pub(super) fn check_length(
    golden: &GoldenModel,
    key: &str,
    tokens: usize,
    model: &Transformer,
) -> Result<(), SelftestError> {
    let context = model.description().context;
    if tokens > context {
        let problem = format!(
            "{tokens} tokens including the preceding ones exceed the model's context of {context}"
        );
        return Err(golden.fault(key, problem));
    }
    Ok(())
}

/// Scores the completion of a sequence, which is in row `row` of the batch.
fn scores(
    model: &Frozen<Transformer>,
    batch: &TokenBatch,
    row: usize,
    sequence: &ExpectedSequence,
    temperature: f32,
) -> Scores {
    let end = batch.rows(row).end;
    let n = sequence.completion.len();
    // Each token is predicted from the previous one.
    let hidden = model.hidden(batch).narrow(0, end - n - 1, n);
    scores_of(model, hidden, sequence, temperature)
}

/// Scores a completion, given the hidden states that predict it.
fn scores_of(
    model: &Frozen<Transformer>,
    hidden: Tensor<2>,
    sequence: &ExpectedSequence,
    temperature: f32,
) -> Scores {
    let targets = Targets::new(sequence.completion.clone(), model.vocabulary_size());
    score(hidden, &model.head(), &targets.at_temperature(temperature))
}

/// Returns the logits after each token, concatenated.
pub(super) fn logits<M: LanguageModel>(model: &Frozen<M>, ids: &[u32]) -> Vec<f64> {
    let hidden = model.hidden(&TokenBatch::from_iter([ids]));
    host(model.logits(hidden))
}

/// Generates a greedy continuation using the same KV cache as sampling.
fn greedy(model: &Frozen<Transformer>, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut cache = KvCache::new();
    let slot = cache.open();
    let mut next = prompt.to_vec();
    let mut continuation = Vec::new();
    while continuation.len() < count {
        let tokens = TokenBatch::from_iter([next.as_slice()]);
        let hidden = model.extend(&tokens, &mut cache, &[slot]);
        let rows = hidden.dims()[0];
        let logits = host(model.invariant_logits(hidden.narrow(0, rows - 1, 1)));
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let id = logits.iter().position(|&logit| logit == most).unwrap_or(0) as u32;
        continuation.push(id);
        next = vec![id];
    }
    continuation
}
