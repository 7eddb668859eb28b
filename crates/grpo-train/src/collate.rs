//! Packs completions into micro-batches that the model can process.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use burn::tensor::Tensor;
use grpo_data::{Completion, Prefix, TokenSet};
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::{Scores, Targets, exact_kl, score};
use grpo_model::{
    Dropout, Forward, Frozen, KnownActivations, LanguageModel, RolloutActivations, TokenBatch,
};

/// Some of a step's completions, packed for the model (docs/decisions/0013). An action is predicted
/// from the hidden state of the previous token, or of the masked position that it fills.
pub(crate) struct MicroBatch {
    /// Range of completion indices within the step.
    pub(crate) places: Range<usize>,
    /// Log-probabilities recorded by the sampler, `[n]`.
    pub(crate) sampling_logprobs: Option<Vec<f64>>,
    /// Completion index for each action, `[n]`.
    pub(crate) sequences: Vec<usize>,
    /// All tokens of each completion except the last, or the entire masked text. A prompt is
    /// included once per group.
    inputs: TokenBatch,
    /// Rows of `inputs` that predict actions, `[n]`. Other rows are not scored.
    rows: Vec<usize>,
    targets: Targets,
    /// Activations of `inputs` under the current policy, if they are known.
    known: Option<KnownActivations>,
}

/// Minimum length of a shared prompt. Separating a shorter prompt costs more than it saves, so it
/// is recomputed for each completion.
const SHARED_PROMPT: usize = 4;

/// Splits completions into micro-batches with at most `tokens` tokens each.
pub(crate) fn micro_batches(
    completions: &[&Completion],
    tokens: usize,
    vocabulary: usize,
) -> Vec<MicroBatch> {
    let mut micro_batches = Vec::new();
    let mut packed = Packed::default();
    let mut first = 0;
    for (place, completion) in completions.iter().enumerate() {
        let read = Read::of(completion);
        if place > first && packed.tokens() + packed.needed(&read) > tokens {
            let full = std::mem::take(&mut packed);
            micro_batches.push(MicroBatch::new(
                first,
                &completions[first..place],
                full,
                vocabulary,
            ));
            first = place;
        }
        packed.push(read);
    }
    micro_batches.push(MicroBatch::new(first, &completions[first..], packed, vocabulary));
    micro_batches
}

/// Model input for one completion.
struct Read<'a> {
    prefix: &'a Prefix,
    /// Tokens shared by the group, which are computed only once: a prompt or a masked text.
    shared: Cow<'a, [u32]>,
    /// Tokens that follow the shared ones.
    own: &'a [u32],
    /// For each input token, whether its hidden state predicts an action.
    predicts: &'a [bool],
}

impl<'a> Read<'a> {
    fn of(completion: &'a Completion) -> Self {
        let (ids, mask, prefix) = (completion.ids(), completion.action_mask(), completion.prefix());
        let predicts = predicts(completion);
        if let Some(mask_id) = completion.sampled_under().mask_id {
            let masked =
                ids.iter().zip(mask).map(|(&id, &action)| if action { mask_id } else { id });
            return Self { prefix, shared: masked.collect(), own: &[], predicts };
        }
        let read = &ids[..ids.len() - 1];
        let prompt = mask.iter().take_while(|&&action| !action).count();
        let is_short = prompt < SHARED_PROMPT && prefix.is_empty();
        let shared = if is_short { 0 } else { prompt.min(read.len()) };
        let (shared, own) = read.split_at(shared);
        Self { prefix, shared: Cow::Borrowed(shared), own, predicts }
    }

    /// Returns the number of shared tokens, including those of conditions.
    fn shared(&self) -> usize {
        self.prefix.ids.len() + self.shared.len()
    }
}

/// For each input token, returns whether its hidden state predicts an action. This is the case for
/// the token just before an action, or for the masked position itself.
fn predicts(completion: &Completion) -> &[bool] {
    match completion.sampled_under().mask_id {
        Some(_) => completion.action_mask(),
        None => &completion.action_mask()[1..],
    }
}

/// Packed model inputs for several completions.
#[derive(Default)]
struct Packed<'a> {
    inputs: TokenBatch,
    /// Conditions and shared tokens that were added most recently, with their sequence index.
    shared: Option<(&'a Prefix, Cow<'a, [u32]>, usize)>,
    /// Number of tokens in the conditions of `inputs`.
    of_prefixes: usize,
    rows: Vec<usize>,
}

impl<'a> Packed<'a> {
    /// Returns the number of tokens required to add a completion.
    fn needed(&self, read: &Read<'_>) -> usize {
        read.own.len() + if self.has(read) { 0 } else { read.shared() }
    }

    /// Returns the number of tokens, including those of conditions.
    fn tokens(&self) -> usize {
        self.inputs.tokens() + self.of_prefixes
    }

    /// Returns whether the shared tokens of `read` were the last ones to be added.
    fn has(&self, read: &Read<'_>) -> bool {
        let last = self.shared.as_ref();
        last.is_some_and(|(prefix, shared, _)| *prefix == read.prefix && *shared == read.shared)
    }

    fn push(&mut self, read: Read<'a>) {
        let (own, predicts) = (read.own, read.predicts);
        let mut rows: Vec<usize> = Vec::with_capacity(predicts.len());
        let behind = (!read.shared.is_empty()).then(|| self.sequence_of(read));
        rows.extend(behind.into_iter().flat_map(|sequence| self.inputs.rows(sequence)));
        if !own.is_empty() {
            let sequence = match behind {
                Some(first) => self.inputs.push_behind(first, own),
                None => self.inputs.push(own),
            };
            rows.extend(self.inputs.rows(sequence));
        }
        let predicting = rows.iter().zip(predicts).filter(|(_, predicts)| **predicts);
        self.rows.extend(predicting.map(|(&row, _)| row));
    }

    /// Returns the sequence of the shared tokens, which is added if necessary.
    fn sequence_of(&mut self, read: Read<'a>) -> usize {
        if let (Some((.., sequence)), true) = (&self.shared, self.has(&read)) {
            return *sequence;
        }
        let sequence = self.inputs.push_conditional(read.prefix, &read.shared);
        self.of_prefixes += read.prefix.ids.len();
        self.shared = Some((read.prefix, read.shared, sequence));
        sequence
    }
}

impl MicroBatch {
    /// Creates a micro-batch from packed completions, where `first` is the index of the first one
    /// in the step.
    fn new(
        first: usize,
        completions: &[&Completion],
        packed: Packed<'_>,
        vocabulary: usize,
    ) -> Self {
        let each = completions.iter().enumerate();
        let sequences = each.flat_map(|(i, completion)| vec![i; completion.actions()]).collect();
        let each_sampled: Option<Vec<&[f32]>> =
            completions.iter().map(|completion| completion.sampling_logprobs()).collect();
        let sampling_logprobs =
            each_sampled.map(|of| of.concat().into_iter().map(f64::from).collect());
        Self {
            places: first..first + completions.len(),
            sampling_logprobs,
            sequences,
            inputs: packed.inputs,
            rows: packed.rows,
            targets: targets(completions, vocabulary),
            known: None,
        }
    }

    /// Looks up the activations that the policy of this version has computed in sampling.
    pub(crate) fn look_up(&mut self, activations: &RolloutActivations, version: u64) {
        self.known = activations.look_up(&self.inputs, version);
    }

    /// Returns the number of input tokens, and of those whose activations are known.
    pub(crate) fn known_tokens(&self) -> [usize; 2] {
        let all = self.inputs.tokens();
        [all, if self.known.is_some() { all } else { 0 }]
    }

    /// Forgets activations, because the policy has changed.
    pub(crate) fn forget_activations(&mut self) {
        self.known = None;
    }

    /// Runs the policy with autodiff and returns its hidden states. With `checkpointing`,
    /// transformer blocks are recomputed during the backward pass.
    pub(crate) fn forward<M: LanguageModel>(&self, policy: &M, checkpointing: bool) -> Forward<M> {
        match &self.known {
            Some(known) => Forward::kept(policy.hidden_from(known, &self.inputs)),
            None => policy.forward(&self.inputs, &mut Dropout::off(), checkpointing),
        }
    }

    /// Computes differentiable scores, `[n]`, from hidden states of the policy.
    pub(crate) fn score_policy<M: LanguageModel>(&self, policy: &M, hidden: &Tensor<2>) -> Scores {
        score(self.of_actions(hidden.clone()), &policy.head(), &self.targets)
    }

    /// Computes scores with a frozen model, `[n]`.
    pub(crate) fn score_frozen<M: LanguageModel>(&self, model: &Frozen<M>) -> Scores {
        let hidden = self.of_actions(model.hidden(&self.inputs));
        score(hidden, &model.head(), &self.targets)
    }

    /// Computes the exact KL of the policy to the reference, `[n]`, which is differentiable. Requires
    /// the full logits of both.
    pub(crate) fn exact_kl<M: LanguageModel>(
        &self,
        policy: &M,
        hidden: &Tensor<2>,
        reference: &Frozen<M>,
    ) -> Tensor<1> {
        let logits = policy.head().logits(self.of_actions(hidden.clone()));
        let ref_logits = reference.logits(self.of_actions(reference.hidden(&self.inputs)));
        // The reference logits are constants, but must be on the autodiff device if the policy is.
        let ref_logits =
            if policy.device().is_autodiff() { Tensor::from_inner(ref_logits) } else { ref_logits };
        exact_kl(logits, ref_logits, &self.targets)
    }

    /// Selects the rows that predict actions: `[tokens, width]` → `[n, width]`.
    fn of_actions(&self, hidden: Tensor<2>) -> Tensor<2> {
        let rows = indices(self.rows.iter().copied(), &hidden.device());
        gather_rows(hidden, rows)
    }
}

/// Returns the actions of all completions in order, along with their sampling distributions.
fn targets(completions: &[&Completion], vocabulary: usize) -> Targets {
    let under = completions[0].sampled_under();
    let alike = completions.iter().map(|completion| completion.sampled_under()).all(|other| {
        other.temperature == under.temperature
            && other.repetition_penalty == under.repetition_penalty
            && other.forbidden == under.forbidden
            && other.mask_id == under.mask_id
            && other.kept.is_some() == under.kept.is_some()
    });
    assert!(alike, "all completions of a step share the sampling settings");
    let ids = completions.iter().flat_map(|completion| completion.action_ids()).collect();
    let mut targets =
        Targets::new(ids, vocabulary).at_temperature(under.temperature).without(&under.forbidden);
    if under.kept.is_some() {
        let kept = completions.iter().flat_map(|c| c.sampled_under().kept.iter().flatten());
        targets = targets.within(kept.cloned().collect());
    }
    if under.repetition_penalty != 1.0 {
        let seen = completions.iter().flat_map(|completion| seen(completion, vocabulary));
        targets = targets.with_repetition_penalty(under.repetition_penalty, seen.collect());
    }
    targets
}

/// Returns the set of preceding ids for each action.
fn seen(completion: &Completion, vocabulary: usize) -> Vec<TokenSet> {
    let mut before = BTreeSet::new();
    let mut sets = Vec::with_capacity(completion.actions());
    for (&id, &action) in completion.ids().iter().zip(completion.action_mask()) {
        if action {
            let ids: Vec<u32> = before.iter().copied().collect();
            let set = TokenSet::from_sorted(&ids, vocabulary);
            sets.push(set.expect("the ids of a completion are in the vocabulary"));
        }
        before.insert(id);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use grpo_data::{CompletionParts, Finish, SampleKey, SampledUnder};
    use proptest::prelude::*;

    fn completion(ids: Vec<u32>, prompt: usize) -> Completion {
        Completion::new(CompletionParts {
            prefix: Default::default(),
            action_mask: (0..ids.len()).map(|t| t >= prompt).collect(),
            sampling_logprobs: Some(vec![-1.0; ids.len() - prompt]),
            ids,
            finish: Finish::Length,
            key: SampleKey { seed: 1, step: 0, prompt: 0, sample: 0 },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    }

    /// Generates groups of completions. A prompt is often the same as the previous one or has a
    /// common prefix with it.
    fn completions() -> impl Strategy<Value = Vec<Completion>> {
        let group = (0..3_u32, 1..13_usize, proptest::collection::vec(1..20_usize, 1..6));
        proptest::collection::vec(group, 1..8).prop_map(|groups| {
            let of_group = |(first, prompt, lengths): (u32, usize, Vec<usize>)| {
                let of_length = move |(i, length): (usize, usize)| {
                    let id = |t: usize| match t {
                        0 => first,
                        _ if t < prompt => t as u32,
                        _ => (t * 5 + i) as u32 % 30,
                    };
                    completion((0..prompt + length).map(id).collect(), prompt)
                };
                lengths.into_iter().enumerate().map(of_length).collect::<Vec<_>>()
            };
            groups.into_iter().flat_map(of_group).collect()
        })
    }

    /// Counts input tokens, where adjacent completions with the same prompt share it.
    fn tokens_of(completions: &[&Completion]) -> usize {
        let inputs = |completion: &Completion| completion.ids().len() - 1;
        let mut shared: Option<&[u32]> = None;
        let mut tokens = 0;
        for completion in completions {
            let prompt = completion.ids().len() - completion.actions();
            tokens += inputs(completion);
            if prompt >= 4 {
                let prompt = &completion.ids()[..prompt];
                if shared == Some(prompt) {
                    tokens -= prompt.len();
                }
                shared = Some(prompt);
            }
        }
        tokens
    }

    proptest! {
        #[test]
        fn cuts_are_whole_in_order_and_as_large_as_may_be(
            completions in completions(),
            budget in prop_oneof![1..12_usize, 10..200_usize, Just(4096)],
        ) {
            let all: Vec<&Completion> = completions.iter().collect();
            let cut = micro_batches(&all, budget, 30);
            let places: Vec<usize> = cut.iter().flat_map(|micro| micro.places.clone()).collect();
            prop_assert_eq!(places, (0..all.len()).collect::<Vec<_>>());
            for micro in &cut {
                let (first, next) = (micro.places.start, micro.places.end);
                let completions = &all[first..next];
                let tokens = micro.inputs.tokens();
                prop_assert_eq!(tokens, tokens_of(&all[first..next]));
                prop_assert!(tokens <= budget || completions.len() == 1);
                // The next completion would exceed the budget.
                prop_assert!(next == all.len() || tokens_of(&all[first..=next]) > budget);
                // Each action is predicted from the token just before it.
                let ids = micro.inputs.flat_ids(&Device::flex()).into_data();
                let ids: Vec<u32> = ids.iter::<i64>().map(|id| id as u32).collect();
                let read: Vec<u32> = micro.rows.iter().map(|&row| ids[row]).collect();
                let before = completions.iter().flat_map(|completion| {
                    let ids = completion.ids();
                    ids[ids.len() - completion.actions() - 1..ids.len() - 1].iter().copied()
                });
                prop_assert_eq!(read, before.collect::<Vec<u32>>());
                for (i, completion) in completions.iter().enumerate() {
                    let actions = micro.sequences.iter().filter(|&&sequence| sequence == i);
                    prop_assert_eq!(actions.count(), completion.actions());
                }
                prop_assert!(micro.sequences.is_sorted());
            }
        }
    }
}
