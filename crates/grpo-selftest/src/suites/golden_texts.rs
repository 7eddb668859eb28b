//! Compares infillers and sequence scorers with results from PyTorch.

use grpo_kernels::{gather_rows, indices};
use grpo_model::{Dropout, HeadKind, LanguageModel, TokenBatch, Transformer};

use super::golden_models::{LOGITS, SCORES, check_ids, check_length, load, start};
use crate::golden::{ExpectedBlanks, ExpectedScore, GoldenModel};
use crate::report::{Suite, Tolerance};
use crate::tensors::host;
use crate::{Options, SelftestError};

pub(super) fn infiller(
    golden: &GoldenModel,
    expected: &[ExpectedBlanks],
    options: &Options,
) -> Result<Suite, SelftestError> {
    let mut suite = start("infiller", golden, "torch");
    let model = load(&golden.path, options, &options.device)?;
    for (number, ExpectedBlanks { text, .. }) in expected.iter().enumerate() {
        let key = format!("sequences[{number}].text");
        check_ids(golden, &key, text, 1, &model)?;
        check_length(golden, &key, text.len(), &model)?;
    }
    let all: TokenBatch = expected.iter().map(|text| text.text.as_slice()).collect();
    for (number, text) in expected.iter().enumerate() {
        let alone = TokenBatch::from_iter([text.text.as_slice()]);
        for (label, batch, row) in [("alone", &alone, 0), ("packed together", &all, number)] {
            let mut case = suite.case(format!("text {number}, {label}"));
            let hidden = model.hidden(batch, &mut Dropout::off()).slice([batch.rows(row)]);
            let bound = Tolerance::EXACT.plus(LOGITS);
            let got = host(model.logits(hidden.clone()));
            case.list(&|i| format!("logits[{i}]"), &got, &text.logits.concat(), bound);
            let critic = model.critic(hidden).map(host).unwrap_or_default();
            case.list(&|i| format!("critic[{i}]"), &critic, &text.critic, bound);
        }
    }
    Ok(suite)
}

pub(super) fn scorer(
    golden: &GoldenModel,
    expected: &[ExpectedScore],
    options: &Options,
) -> Result<Suite, SelftestError> {
    let mut suite = start("judge", golden, "torch");
    let model = load(&golden.path, options, &options.device)?;
    for (number, ExpectedScore { text, .. }) in expected.iter().enumerate() {
        check_ids(golden, &format!("sequences[{number}].text"), text, 0, &model)?;
    }
    if model.description().head != HeadKind::Score {
        return Err(golden.fault("sequences", "the model in this folder has no scores".to_owned()));
    }
    let texts: Vec<&[u32]> = expected.iter().map(|text| text.text.as_slice()).collect();
    for (number, (text, together)) in expected.iter().zip(scores(&model, &texts)).enumerate() {
        let alone = scores(&model, &[text.text.as_slice()])[0];
        for (label, got) in [("alone", alone), ("packed together", together)] {
            let mut case = suite.case(format!("text {number}, {label}"));
            let bound = Tolerance::EXACT.plus(SCORES);
            case.list(&|_| "score".to_owned(), &[got], &[text.score], bound);
        }
    }
    Ok(suite)
}

/// Scores texts packed together. Each is read behind CLS, without PAD, and up to the context.
fn scores(model: &Transformer, texts: &[&[u32]]) -> Vec<f64> {
    let cls = model.vocabulary_size() as u32 - 1;
    let mut batch = TokenBatch::new();
    for text in texts {
        let text = text.iter().copied().filter(|&id| id != cls - 1);
        let ids = std::iter::once(cls).chain(text).take(model.context_length());
        batch.push(&ids.collect::<Vec<u32>>());
    }
    let hidden = model.hidden(&batch, &mut Dropout::off());
    let first = (0..batch.sequences()).map(|index| batch.rows(index).start);
    let first = indices(first, &hidden.device());
    model.score(gather_rows(hidden, first)).map(host).unwrap_or_default()
}
