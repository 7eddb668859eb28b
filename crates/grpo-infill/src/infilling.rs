//! Single-pass infilling, which samples all masked positions from one forward pass.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::Tensor;
use grpo_data::{Completion, CompletionParts, Finish, Group, Prompt, SampleKey, SampledUnder};
use grpo_kernels::{gather_rows, indices, on_host};
use grpo_logprob::SamplingDistribution;
use grpo_logprob::{Draw, draw};
use grpo_model::{Frozen, LanguageModel, TokenBatch};
use grpo_rollout::{Engine, EngineFactory, EngineRequest, RolloutError, StepKey, refuse_interrupt};
use rayon::prelude::*;

/// Infilling settings.
#[derive(Clone, Debug, PartialEq)]
pub struct InfillingSettings {
    /// Number of completions per text, k.
    pub group_size: usize,
    /// ID of the mask token. It is never sampled.
    pub mask_id: u32,
    /// Sampling distribution.
    pub distribution: SamplingDistribution,
}

/// A single-pass infilling engine.
///
/// The model reads a text with its blanks once, and all k completions are sampled from the
/// resulting distributions. Given the text, blanks are independent: `π(o | x) = Π_j π(o_j | x)`.
///
/// Every text is processed separately. A character is therefore fully determined by the policy and
/// by (seed, purpose, step, prompt, sample, position), bit for bit.
#[derive(Clone, Debug)]
pub struct Infilling {
    settings: InfillingSettings,
    interrupt: Arc<AtomicBool>,
}

impl Infilling {
    /// Creates an engine after validating the settings against the model and the longest text.
    ///
    /// # Errors
    /// Returns an error if the group size is 0, or if the longest text is empty or does not fit into
    /// the context. The distribution is rejected if it allows the mask ID, has a repetition penalty,
    /// or has a different vocabulary size.
    pub fn new<M: LanguageModel>(
        settings: InfillingSettings,
        model: &M,
        longest_text: usize,
    ) -> Result<Self, RolloutError> {
        if settings.group_size == 0 {
            return Err(RolloutError::Zero { name: "group_size" });
        }
        check_distribution(&settings.distribution, settings.mask_id, model)?;
        fits(longest_text, model.context_length())?;
        Ok(Self { settings, interrupt: Arc::default() })
    }

    /// Samples completions of a text, using one forward pass and one draw per blank and sample.
    fn fill<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        samples: &[u32],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let InfillingSettings { mask_id, distribution, .. } = &self.settings;
        let blanks = blanks(policy, prompt, *mask_id)?;
        let action_mask: Vec<bool> = prompt.ids.iter().map(|id| id == mask_id).collect();
        let logits = blank_logits(policy, &prompt.ids, &blanks);
        on_host(logits, |logits| {
            let rows: Vec<&[f32]> = logits.chunks(distribution.vocabulary()).collect();
            let completion = |&sample: &u32| {
                let of = SampleKey { seed: key.seed, step: key.step, prompt: prompt.index, sample };
                let draws = rows.iter().zip(&blanks).map(|(row, &place)| {
                    draw(row, &[], distribution, of.uniform(key.purpose, place as u32))
                });
                let draws: Vec<Draw> = draws.collect::<Result<_, _>>()?;
                let mut ids = prompt.ids.clone();
                blanks.iter().zip(&draws).for_each(|(&place, draw)| ids[place] = draw.id);
                Ok(Completion::new(CompletionParts {
                    prefix: Default::default(),
                    ids,
                    action_mask: action_mask.clone(),
                    sampling_logprobs: Some(draws.iter().map(|draw| draw.logprob).collect()),
                    finish: Finish::Filled,
                    key: of,
                    policy_version: key.policy_version,
                    sampled_under: SampledUnder {
                        temperature: distribution.temperature(),
                        repetition_penalty: 1.0,
                        forbidden: distribution.forbidden().to_vec(),
                        kept: draws.into_iter().map(|draw| draw.kept).collect(),
                        mask_id: Some(*mask_id),
                    },
                }))
            };
            samples.iter().map(completion).collect()
        })
    }
}

impl<M: LanguageModel> Engine<M> for Infilling {
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        let samples: Vec<u32> = (0..self.settings.group_size as u32).collect();
        let group = |prompt: &Prompt| {
            refuse_interrupt(&self.interrupt)?;
            let completions = self.fill(policy, prompt, &samples, key)?;
            Ok(Group::new(prompt.clone(), completions))
        };
        prompts.par_iter().map(group).collect()
    }

    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        let mut completions = self.fill(policy, prompt, &[sample], key)?;
        Ok(completions.pop().expect("one completion was requested"))
    }

    fn interrupted_by(&self, interrupt: Arc<AtomicBool>) -> Arc<dyn Engine<M>> {
        Arc::new(Self { interrupt, ..self.clone() })
    }
}

/// The actions of an infilling policy, which choose the characters of all blanks at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillBlanks {
    /// ID of the mask token.
    pub mask_id: u32,
    /// IDs that are never sampled, including the mask ID.
    pub forbidden: Vec<u32>,
}

impl<M: LanguageModel> EngineFactory<M> for FillBlanks {
    fn create(
        &self,
        policy: &M,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<M>>, RolloutError> {
        let distribution = request.distribution(policy.vocabulary_size(), &self.forbidden)?;
        let (group_size, mask_id) = (request.group_size, self.mask_id);
        let settings = InfillingSettings { group_size, mask_id, distribution };
        Ok(Arc::new(Infilling::new(settings, policy, request.longest_prompt)?))
    }
}

/// Computes the logits at the given positions of a single text.
///
/// # Shapes
/// - result: `[places, vocabulary]`
pub(crate) fn blank_logits<M: LanguageModel>(
    model: &Frozen<M>,
    ids: &[u32],
    places: &[usize],
) -> Tensor<2> {
    let mut text = TokenBatch::new();
    text.push(ids);
    let hidden = model.hidden(&text);
    let places = indices(places.iter().copied(), &hidden.device());
    model.logits(gather_rows(hidden, places))
}

/// Rejects distributions that cannot be used to fill blanks.
pub(crate) fn check_distribution<M: LanguageModel>(
    distribution: &SamplingDistribution,
    mask_id: u32,
    model: &M,
) -> Result<(), RolloutError> {
    let (found, vocabulary) = (distribution.vocabulary(), model.vocabulary_size());
    if found != vocabulary {
        return Err(RolloutError::Vocabulary { found, vocabulary });
    }
    if distribution.repetition_penalty().is_some() {
        let fault = "sampling.repetition_penalty requires previously sampled tokens, but all blanks are filled in one pass; remove it";
        return Err(refused(fault));
    }
    match distribution.forbidden().contains(&mask_id) {
        true => Ok(()),
        false => {
            Err(refused(format!("the mask id {mask_id} could be sampled; it must be forbidden")))
        }
    }
}

/// Validates a text and returns the positions of its blanks. There is at least one.
pub(crate) fn blanks<M: LanguageModel>(
    model: &Frozen<M>,
    text: &Prompt,
    mask_id: u32,
) -> Result<Vec<usize>, RolloutError> {
    let ids = &text.ids;
    fits(ids.len(), model.context_length())?;
    let vocabulary = model.vocabulary_size();
    if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
        return Err(RolloutError::PromptId { id, vocabulary });
    }
    let blanks: Vec<usize> = (0..ids.len()).filter(|&place| ids[place] == mask_id).collect();
    match blanks.is_empty() {
        true => Err(refused(format!(
            "text {} has no blank to fill; each text requires at least one",
            text.index
        ))),
        false => Ok(blanks),
    }
}

fn fits(text: usize, context: usize) -> Result<(), RolloutError> {
    match text {
        0 => Err(RolloutError::EmptyPrompt),
        _ if text > context => Err(refused(format!(
            "a text of {text} characters does not fit into the model's context of {context}; shorten it, or use a model with a longer context"
        ))),
        _ => Ok(()),
    }
}

/// Creates an engine error.
pub(crate) fn refused(fault: impl Into<String>) -> RolloutError {
    RolloutError::Engine(fault.into().into())
}
