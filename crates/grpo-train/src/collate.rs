//! From completions and advantages to micro-batches: tensors for the loss, and the same numbers on the host.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use grpo_core::{BatchTotals, Reduction, token_weights};
use grpo_data::Completion;
use grpo_logprob::{Scores, score};
use grpo_model::{CausalLm, Dropout, Frozen};

use crate::batches::PaddedIds;

/// Some completions of a step, padded to one length. Position `t` of a row predicts token `t + 1`.
pub(crate) struct MicroBatch<'a> {
    pub(crate) completions: Vec<&'a Completion>,
    /// Â of each completion.
    pub(crate) advantages: Vec<f64>,
    /// `[b][t]`, true where the token predicted is an action.
    pub(crate) mask: Vec<Vec<bool>>,
    /// Weight of each token in the loss, `[b · t]`.
    weights: Vec<f32>,
    inputs: PaddedIds,
    targets: PaddedIds,
    temperature: f32,
    /// `[b · t · vocabulary]`, true where an id could not be drawn; `None` where all could.
    excluded: Option<Vec<bool>>,
    vocabulary: usize,
}

/// Cuts the completions of a step, in the order of their lengths, so that little is padded.
pub(crate) fn micro_batches<'a>(
    completions: &[(&'a Completion, f64)],
    size: usize,
    padding: u32,
    vocabulary: usize,
    reduction: Reduction,
    totals: &BatchTotals,
) -> Vec<MicroBatch<'a>> {
    let mut sorted = completions.to_vec();
    sorted.sort_by_key(|(completion, _)| completion.ids().len()); // stable
    sorted
        .chunks(size)
        .map(|rows| MicroBatch::new(rows, padding, vocabulary, reduction, totals))
        .collect()
}

impl<'a> MicroBatch<'a> {
    fn new(
        rows: &[(&'a Completion, f64)],
        padding: u32,
        vocabulary: usize,
        reduction: Reduction,
        totals: &BatchTotals,
    ) -> Self {
        let (completions, advantages): (Vec<&Completion>, Vec<f64>) = rows.iter().copied().unzip();
        let ids = completions.iter().map(|completion| completion.ids());
        let inputs = PaddedIds::new(ids.clone().map(|ids| &ids[..ids.len() - 1]), padding);
        let targets = PaddedIds::new(ids.map(|ids| &ids[1..]), padding);
        let mask: Vec<Vec<bool>> = completions
            .iter()
            .map(|completion| {
                let mut mask = completion.action_mask()[1..].to_vec();
                mask.resize(targets.columns, false);
                mask
            })
            .collect();
        let temperature = completions[0].sampled_under().temperature;
        assert!(
            completions.iter().all(|c| c.sampled_under().temperature == temperature),
            "the completions of a step are sampled at one temperature"
        );
        // Until `score` applies it: an ignored penalty would train on a wrong ratio.
        assert!(
            completions.iter().all(|c| c.sampled_under().repetition_penalty == 1.0),
            "completions that were sampled with a repetition penalty cannot be scored yet"
        );
        Self {
            weights: token_weights(&mask, reduction, totals),
            excluded: excluded(&completions, &mask, vocabulary),
            completions,
            advantages,
            mask,
            inputs,
            targets,
            temperature,
            vocabulary,
        }
    }

    /// Log-probabilities and entropies of the policy, on the tape, `[b · t]`.
    pub(crate) fn score_policy<M: CausalLm>(&self, policy: &M) -> Scores {
        let device = policy.device();
        let ids = self.inputs.clone().tensor(&device);
        let logits = policy.logits(policy.hidden(ids, None, &mut Dropout::off()));
        self.score(logits, &device)
    }

    /// Log-probabilities of a frozen model, `[b · t]`.
    pub(crate) fn score_frozen<M: CausalLm>(&self, model: &Frozen<M>) -> Tensor<1> {
        let device = model.device();
        let ids = self.inputs.clone().tensor(&device);
        self.score(model.logits(model.hidden(ids, None)), &device).logprobs
    }

    /// `[b, t]` of the weights, and `[b, 1]` of the advantages.
    pub(crate) fn constants(&self, device: &Device) -> (Tensor<2>, Tensor<2>) {
        let [rows, columns] = self.shape();
        let advantages: Vec<f32> = self.advantages.iter().map(|&a| a as f32).collect();
        (
            Tensor::from_data(TensorData::new(self.weights.clone(), [rows, columns]), device),
            Tensor::from_data(TensorData::new(advantages, [rows, 1]), device),
        )
    }

    /// Completions, and places of each.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.completions.len(), self.targets.columns]
    }

    fn score(&self, logits: Tensor<2>, device: &Device) -> Scores {
        let [rows, columns] = self.shape();
        let targets: Tensor<1, Int> = self.targets.clone().tensor(device).reshape([rows * columns]);
        let excluded = self.excluded.clone().map(|flags| -> Tensor<2, Bool> {
            let data = TensorData::new(flags, [rows * columns, self.vocabulary]);
            Tensor::from_data(data, device)
        });
        score(logits, targets, self.temperature, excluded)
    }
}

/// What could not be drawn at each position, where anything could not.
fn excluded(
    completions: &[&Completion],
    mask: &[Vec<bool>],
    vocabulary: usize,
) -> Option<Vec<bool>> {
    let under = completions.iter().map(|completion| completion.sampled_under());
    if under.clone().all(|under| under.forbidden.is_empty() && under.kept.is_none()) {
        return None;
    }
    let mut flags = Vec::with_capacity(mask.len() * mask[0].len() * vocabulary);
    for (under, mask) in under.zip(mask) {
        let mut kept = under.kept.iter().flatten();
        for &action in mask {
            let start = flags.len();
            // Places that are no actions keep all ids: their log-probabilities have weight 0, and stay finite.
            flags.resize(start + vocabulary, false);
            if !action {
                continue;
            }
            if let Some(kept) = kept.next() {
                flags[start..].fill(true);
                kept.iter().for_each(|id| flags[start + id as usize] = false);
            }
            under.forbidden.iter().for_each(|&id| flags[start + id as usize] = true);
        }
    }
    Some(flags)
}
