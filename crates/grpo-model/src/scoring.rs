//! Scores completions with a frozen model.

use burn::tensor::{Int, Tensor, TensorData};
use grpo_logprob::{Targets, score};

use crate::{Frozen, LanguageModel, TokenBatch};

/// Per-token log-probabilities and entropies of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionScores {
    /// Log-probability `log π(token)` of each token.
    pub logprobs: Vec<f64>,
    /// Entropy of the distribution at each token, in nats.
    pub entropies: Vec<f64>,
}

/// Scores each completion given its prompt, using a single forward pass for all rows.
///
/// # Panics
/// Panics if a prompt or completion is empty, or if an ID is not in the vocabulary.
pub fn score_completions<M: LanguageModel>(
    model: &Frozen<M>,
    rows: &[(&[u32], &[u32])],
    temperature: f32,
) -> Vec<CompletionScores> {
    let (hidden, targets) = hidden_states(model, rows, temperature);
    let scores = score(hidden, &model.head(), &targets);
    let host = |tensor: Tensor<1>| -> Vec<f64> { tensor.into_data().iter::<f64>().collect() };
    let (logprobs, entropies) = (host(scores.logprobs), host(scores.entropies));
    let mut start = 0;
    let of_row = |(_, completion): &(&[u32], &[u32])| {
        let tokens = start..start + completion.len();
        start = tokens.end;
        CompletionScores {
            logprobs: logprobs[tokens.clone()].to_vec(),
            entropies: entropies[tokens].to_vec(),
        }
    };
    rows.iter().map(of_row).collect()
}

/// Returns the log-probability of every vocabulary entry at each position of a completion. The
/// result is indexed by `[position][token ID]`.
///
/// # Panics
/// Panics under the same conditions as [`score_completions`].
pub fn all_logprobs<M: LanguageModel>(
    model: &Frozen<M>,
    (prompt, completion): (&[u32], &[u32]),
    temperature: f32,
) -> Vec<Vec<f32>> {
    let (hidden, targets) = hidden_states(model, &[(prompt, completion)], temperature);
    let logprobs = grpo_logprob::all_logprobs(model.logits(hidden), &targets);
    let logprobs: Vec<f32> = logprobs.into_data().iter::<f32>().collect();
    logprobs.chunks(model.vocabulary_size()).map(<[f32]>::to_vec).collect()
}

/// Returns the hidden states that predict the completion tokens, and the tokens themselves.
fn hidden_states<M: LanguageModel>(
    model: &Frozen<M>,
    rows: &[(&[u32], &[u32])],
    temperature: f32,
) -> (Tensor<2>, Targets) {
    let inputs: Vec<Vec<u32>> = rows
        .iter()
        .map(|(prompt, completion)| {
            assert!(
                !prompt.is_empty() && !completion.is_empty(),
                "prompt and completion must not be empty"
            );
            [prompt, &completion[..completion.len() - 1]].concat()
        })
        .collect();
    let batch: TokenBatch = inputs.iter().map(Vec::as_slice).collect();
    // A token is predicted from the hidden state of its predecessor.
    let places: Vec<i32> = rows
        .iter()
        .enumerate()
        .flat_map(|(row, (prompt, completion))| {
            let first = batch.rows(row).start + prompt.len() - 1;
            (first..first + completion.len()).map(|place| place as i32)
        })
        .collect();
    let count = places.len();
    let places: Tensor<1, Int> =
        Tensor::from_data(TensorData::new(places, [count]), &model.device());
    let ids = rows.iter().flat_map(|(_, completion)| completion.iter().copied()).collect();
    let targets = Targets::new(ids, model.vocabulary_size()).at_temperature(temperature);
    (model.hidden(&batch).select(0, places), targets)
}
