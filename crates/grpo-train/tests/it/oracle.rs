//! Computes log-probabilities and metrics of a step from their definitions, one completion at a
//! time, in f64.

use grpo_data::{Completion, Group};
use grpo_model::{Frozen, LanguageModel, TokenBatch};
use grpo_train::StepReport;

/// Returns log-probabilities of all tokens at each action, `[action][vocabulary]`, at temperature
/// 1.
pub(crate) fn log_softmax<M: LanguageModel>(model: &M, completion: &Completion) -> Vec<Vec<f64>> {
    let model = Frozen::snapshot(model);
    let ids = &completion.ids()[..completion.ids().len() - 1];
    let input = TokenBatch::from_iter([ids]);
    let flat: Vec<f64> = model.logits(model.hidden(&input)).into_data().iter().collect();
    flat.chunks(model.vocabulary_size())
        .skip(ids.len() - completion.actions())
        .map(|logits| {
            let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
            logits.iter().map(|logit| logit - total.ln()).collect()
        })
        .collect()
}

/// Returns the log-probability of each action.
pub(crate) fn logprobs<M: LanguageModel>(model: &M, completion: &Completion) -> Vec<f64> {
    let all = log_softmax(model, completion);
    all.iter().zip(completion.action_ids()).map(|(all, id)| all[id as usize]).collect()
}

pub(crate) fn completions(report: &StepReport) -> impl Iterator<Item = &Completion> {
    report.groups.iter().flat_map(Group::completions)
}

/// Returns the advantages of all samples.
pub(crate) fn advantages(report: &StepReport) -> Vec<f64> {
    report.samples().map(|sample| sample.advantage).collect()
}

/// Applies `f` to each completion and concatenates the results.
pub(crate) fn over_actions(report: &StepReport, f: impl Fn(&Completion) -> Vec<f64>) -> Vec<f64> {
    completions(report).flat_map(f).collect()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
