//! Sampling with a key-value cache, all rows in step, finished rows taken out as they end.

use grpo_data::{
    Completion, CompletionParts, Finish, Group, Prompt, Purpose, SampleKey, SampledUnder,
};
use grpo_logprob::{Draw, NotFinite, draw};
use grpo_model::{CausalLm, Frozen, KvCache, TokenBatch};
use grpo_sampling::{SamplingDistribution, TokenSet};
use rayon::prelude::*;

/// How completions are sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutSettings {
    /// Completions of each prompt (k).
    pub group_size: usize,
    /// Longest completion, in tokens, its end mark among them.
    pub max_new_tokens: usize,
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
    /// What tokens are drawn from.
    pub distribution: SamplingDistribution,
    /// Rows sampled at the same time.
    pub batch_size: usize,
}

/// Which step of which run is sampled: the coordinates of its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKey {
    /// The run's seed.
    pub seed: u64,
    /// Training or evaluation, which share no random numbers.
    pub purpose: Purpose,
    /// The step, from 0.
    pub step: u32,
    /// Optimizer steps that the policy has behind it.
    pub policy_version: u64,
}

/// Checked settings for one kind of model.
#[derive(Clone, Debug)]
pub struct Rollout {
    settings: RolloutSettings,
}

impl Rollout {
    /// Checks the settings against the model and the longest prompt.
    ///
    /// # Errors
    /// Nothing to sample; an end id that the model lacks; a distribution over another vocabulary; a prompt and
    /// completion that do not fit into the model's context.
    pub fn new<M: CausalLm>(
        settings: RolloutSettings,
        model: &M,
        longest_prompt: usize,
    ) -> Result<Self, RolloutError> {
        let at_least_one = [
            ("group_size", settings.group_size),
            ("max_new_tokens", settings.max_new_tokens),
            ("batch_size", settings.batch_size),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(RolloutError::Zero { name });
        }
        let vocabulary = model.vocabulary_size();
        if let Some(&id) = settings.end_ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(RolloutError::EndId { id, vocabulary });
        }
        let found = settings.distribution.vocabulary();
        if found != vocabulary {
            return Err(RolloutError::Vocabulary { found, vocabulary });
        }
        // The last token is drawn, but never fed.
        let needed = longest_prompt.saturating_add(settings.max_new_tokens - 1);
        let context = model.context_length();
        if longest_prompt == 0 {
            return Err(RolloutError::EmptyPrompt);
        }
        if needed > context {
            return Err(RolloutError::TooLong {
                prompt: longest_prompt,
                max_new_tokens: settings.max_new_tokens,
                context,
            });
        }
        Ok(Self { settings })
    }

    /// Samples a group for each prompt.
    ///
    /// # Errors
    /// [`RolloutError::Diverged`], [`RolloutError::PromptId`].
    ///
    /// # Panics
    /// Where a prompt has conditions: no model here can see them yet, and ignoring them would train on
    /// something else than was asked for.
    pub fn sample<M: CausalLm>(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        assert!(
            prompts.iter().all(|prompt| prompt.conditions.is_none()),
            "a prompt with conditions needs a conditional model"
        );
        let vocabulary = policy.vocabulary_size();
        let mut ids = prompts.iter().flat_map(|prompt| &prompt.ids);
        if let Some(&id) = ids.find(|&&id| id as usize >= vocabulary) {
            return Err(RolloutError::PromptId { id, vocabulary });
        }
        let k = self.settings.group_size;
        // Rows of one batch are of one prompt length.
        let mut sorted: Vec<(usize, &Prompt)> = prompts.iter().enumerate().collect();
        sorted.sort_by_key(|(_, prompt)| prompt.ids.len()); // stable
        let rows: Vec<(&Prompt, u32)> = sorted
            .iter()
            .flat_map(|&(_, prompt)| (0..k as u32).map(move |sample| (prompt, sample)))
            .collect();
        let mut completions: Vec<Completion> = Vec::with_capacity(rows.len());
        for same_length in rows.chunk_by(|a, b| a.0.ids.len() == b.0.ids.len()) {
            for batch in same_length.chunks(self.settings.batch_size) {
                completions.extend(self.sample_batch(policy, batch, key)?);
            }
        }
        let mut completions = completions.into_iter();
        let mut groups: Vec<(usize, Group)> = sorted
            .into_iter()
            .map(|(place, prompt)| {
                let completions = completions.by_ref().take(k).collect();
                (place, Group { prompt: prompt.clone(), completions })
            })
            .collect();
        groups.sort_by_key(|(place, _)| *place);
        Ok(groups.into_iter().map(|(_, group)| group).collect())
    }

    /// Samples one completion once more, alone: the one that [`Self::sample`] gives in place `sample` of this prompt.
    ///
    /// # Errors
    /// As [`Self::sample`].
    pub fn again<M: CausalLm>(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        Ok(self.sample_batch(policy, &[(prompt, sample)], key)?.remove(0))
    }

    fn sample_batch<M: CausalLm>(
        &self,
        policy: &Frozen<M>,
        batch: &[(&Prompt, u32)],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let mut rows: Vec<Row> =
            batch.iter().map(|&(p, sample)| Row::new(p, sample, key)).collect();
        let mut active: Vec<usize> = (0..rows.len()).collect();
        // Rows of the cache; the finished among them are computed until it is worth taking them out.
        let mut in_cache = active.clone();
        let mut cache = KvCache::new();
        let mut next: TokenBatch = batch.iter().map(|(prompt, _)| prompt.ids.as_slice()).collect();

        while !active.is_empty() {
            let logits = last_logits(policy, &next, &mut cache);
            let width = policy.vocabulary_size();
            let draws: Vec<Draw> = in_cache
                .par_iter()
                .zip(logits.par_chunks(width))
                .map(|(&row, logits)| {
                    let row = &rows[row];
                    let uniform = row.uniform(key.purpose);
                    draw(logits, &row.ids, &self.settings.distribution, uniform)
                })
                .collect::<Result<_, NotFinite>>()?;
            for (&row, draw) in in_cache.iter().zip(draws) {
                rows[row].push(draw, &self.settings);
            }
            active.retain(|&row| rows[row].finish.is_none());
            if active.len() * 4 <= in_cache.len() * 3 && !active.is_empty() {
                let kept = (0..in_cache.len()).filter(|&i| rows[in_cache[i]].finish.is_none());
                cache.select(&kept.collect::<Vec<usize>>());
                in_cache.clone_from(&active);
            }
            next = in_cache.iter().map(|&row| rows[row].last_id()).collect();
        }
        Ok(rows.into_iter().map(|row| row.completion(key, &self.settings)).collect())
    }
}

/// Settings that cannot be sampled with.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// A count of 0.
    #[error("{name} = 0 would sample nothing; use 1 or more")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// There is nothing to continue.
    #[error("a prompt has no tokens; it needs at least the beginning mark")]
    EmptyPrompt,
    /// The policy cannot be sampled any more.
    #[error(transparent)]
    Diverged(#[from] NotFinite),
    /// An end mark that no model can give.
    #[error("the end id {id} is outside the vocabulary of {vocabulary} tokens")]
    EndId {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A prompt of another vocabulary.
    #[error("a prompt has the id {id}, and the vocabulary has {vocabulary} tokens")]
    PromptId {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A distribution that was checked against another vocabulary than the model's.
    #[error(
        "the sampling distribution is over {found} tokens and the model's vocabulary has {vocabulary}"
    )]
    Vocabulary {
        /// Tokens of the distribution.
        found: usize,
        /// Tokens in the model's vocabulary.
        vocabulary: usize,
    },
    /// More tokens than the model can see.
    #[error("a prompt of {prompt} tokens and max_new_tokens = {max_new_tokens} do not fit into the model's context of {context} tokens; {}", at_most(*prompt, *context))]
    TooLong {
        /// Tokens of the longest prompt.
        prompt: usize,
        /// The setting.
        max_new_tokens: usize,
        /// Tokens that the model can see.
        context: usize,
    },
}

/// What would fit.
fn at_most(prompt: usize, context: usize) -> String {
    if prompt > context {
        return format!("a prompt may have at most {context}");
    }
    format!("max_new_tokens may be at most {}", context + 1 - prompt)
}

/// Logits after the newest token of each row, `[rows · vocabulary]` on the host.
fn last_logits<M: CausalLm>(
    policy: &Frozen<M>,
    tokens: &TokenBatch,
    cache: &mut KvCache,
) -> Vec<f32> {
    let (rows, columns) = (tokens.rows(), tokens.columns());
    let hidden = policy.extend(tokens, None, cache); // [b·t, d]
    let width = hidden.dims()[1];
    let last = if columns == 1 {
        hidden
    } else {
        let by_row = hidden.reshape([rows, columns, width]);
        by_row.narrow(1, columns - 1, 1).reshape([rows, width])
    };
    policy.logits(last).into_data().iter::<f32>().collect()
}

/// A completion while it grows.
struct Row {
    ids: Vec<u32>,
    prompt_length: usize,
    key: SampleKey,
    logprobs: Vec<f32>,
    /// Of each token drawn, where the distribution is truncated.
    kept: Vec<TokenSet>,
    finish: Option<Finish>,
}

impl Row {
    fn new(prompt: &Prompt, sample: u32, key: StepKey) -> Self {
        Self {
            ids: prompt.ids.clone(),
            prompt_length: prompt.ids.len(),
            key: SampleKey { seed: key.seed, step: key.step, prompt: prompt.index, sample },
            logprobs: Vec::new(),
            kept: Vec::new(),
            finish: None,
        }
    }

    /// The random number of the next token.
    fn uniform(&self, purpose: Purpose) -> f64 {
        self.key.uniform(purpose, self.ids.len() as u32)
    }

    fn push(&mut self, draw: Draw, settings: &RolloutSettings) {
        if self.finish.is_some() {
            return;
        }
        self.ids.push(draw.id);
        self.logprobs.push(draw.logprob);
        self.kept.extend(draw.kept);
        if settings.end_ids.contains(&draw.id) {
            self.finish = Some(Finish::EndToken);
        } else if self.logprobs.len() == settings.max_new_tokens {
            self.finish = Some(Finish::Length);
        }
    }

    /// The newest token, as a row of a batch.
    fn last_id(&self) -> &[u32] {
        &self.ids[self.ids.len() - 1..]
    }

    fn completion(self, key: StepKey, settings: &RolloutSettings) -> Completion {
        let distribution = &settings.distribution;
        Completion::new(CompletionParts {
            action_mask: (0..self.ids.len()).map(|t| t >= self.prompt_length).collect(),
            ids: self.ids,
            sampling_logprobs: self.logprobs,
            finish: self.finish.expect("a row is sampled until it ends"),
            key: self.key,
            policy_version: key.policy_version,
            sampled_under: SampledUnder {
                temperature: distribution.temperature(),
                repetition_penalty: distribution.repetition_penalty().unwrap_or(1.0),
                forbidden: distribution.forbidden().to_vec(),
                kept: distribution.is_truncated().then_some(self.kept),
            },
        })
    }
}
