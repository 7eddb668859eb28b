//! Compares infillers and sequence scorers with results from PyTorch.

use burn::tensor::Device;
use grpo_model::{Dropout, LanguageModel, SequenceScorer, TokenBatch};

use super::golden_models::{LOGITS, SCORES, check_ids, check_length, load, start};
use crate::SelftestError;
use crate::golden::{ExpectedBlanks, ExpectedScore, GoldenModel};
use crate::report::{Suite, Tolerance};
use crate::tensors::host;

pub(super) fn infiller(
    golden: &GoldenModel,
    expected: &[ExpectedBlanks],
    device: &Device,
) -> Result<Suite, SelftestError> {
    let mut suite = start("infiller", golden, "torch");
    let model = load(&golden.path, device)?;
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
    device: &Device,
) -> Result<Suite, SelftestError> {
    let mut suite = start("judge", golden, "torch");
    let model = load(&golden.path, device)?;
    for (number, ExpectedScore { text, .. }) in expected.iter().enumerate() {
        check_ids(golden, &format!("sequences[{number}].text"), text, 0, &model)?;
    }
    let scorer = SequenceScorer::new(model)?;
    let texts: Vec<&[u32]> = expected.iter().map(|text| text.text.as_slice()).collect();
    let all = scorer.batch(&texts, scorer.cls_id());
    let together = host(scorer.forward(&all, &mut Dropout::off()));
    for (number, (text, together)) in expected.iter().zip(together).enumerate() {
        let alone = scorer.score(&text.text);
        for (label, got) in [("alone", alone), ("packed together", together)] {
            let mut case = suite.case(format!("text {number}, {label}"));
            let bound = Tolerance::EXACT.plus(SCORES);
            case.list(&|_| "score".to_owned(), &[got], &[text.score], bound);
        }
    }
    Ok(suite)
}
