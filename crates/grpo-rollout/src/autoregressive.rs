//! The autoregressive engine: a completion grows token by token behind its prompt.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use grpo_data::{Completion, Group, Prompt};
use grpo_logprob::SamplingDistribution;
use grpo_model::{Frozen, LanguageModel};

use crate::engine::Task;
use crate::{
    Actions, Decode, Rollout, RolloutError, RolloutRequest, StepKey, StopRule, StopStrings,
};

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
    /// Completions sampled at the same time.
    pub batch_size: usize,
}

impl RolloutSettings {
    /// Whether a prompt of `prompt` tokens can be continued in a context of `context`.
    fn fits(&self, prompt: usize, context: usize) -> Result<(), RolloutError> {
        let max_new_tokens = self.max_new_tokens;
        if prompt == 0 {
            return Err(RolloutError::EmptyPrompt);
        }
        // The last token is drawn, but never fed.
        if prompt.saturating_add(max_new_tokens - 1) > context {
            return Err(RolloutError::TooLong { prompt, max_new_tokens, context });
        }
        Ok(())
    }
}

/// What a causal policy chooses: the next token, until one of these ids ends the completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextTokens {
    /// Ids that end a completion.
    pub end_ids: Vec<u32>,
}

impl<M: LanguageModel> Actions<M> for NextTokens {
    fn rollout(
        &self,
        policy: &M,
        request: &RolloutRequest<'_>,
    ) -> Result<Arc<dyn Rollout<M>>, RolloutError> {
        let settings = RolloutSettings {
            group_size: request.group_size,
            max_new_tokens: request.max_new_tokens,
            end_ids: self.end_ids.clone(),
            distribution: request.distribution(policy.vocabulary_size(), &[])?,
            batch_size: request.batch_size,
        };
        let engine = Autoregressive::new(settings, policy, request.longest_prompt)?;
        Ok(Arc::new(engine.stopping_at(request.stop, request.decode)?))
    }
}

/// Checked settings for one kind of model.
#[derive(Clone)]
pub struct Autoregressive {
    settings: RolloutSettings,
    stop: Option<Arc<dyn StopRule>>,
    interrupt: Arc<AtomicBool>,
}

impl Autoregressive {
    /// Checks the settings against the model and the longest prompt.
    ///
    /// # Errors
    /// Nothing to sample; an end id that the model lacks; a distribution over another vocabulary; a prompt and
    /// completion that do not fit into the model's context.
    pub fn new<M: LanguageModel>(
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
        settings.fits(longest_prompt, model.context_length())?;
        Ok(Self { settings, stop: None, interrupt: Arc::default() })
    }

    /// With a rule that ends completions, besides the end ids and the limit of tokens.
    #[must_use]
    pub fn stopping(self, rule: impl StopRule + 'static) -> Self {
        Self { stop: Some(Arc::new(rule)), ..self }
    }

    /// With strings that end completions where their text has one; without any, as it is.
    ///
    /// # Errors
    /// [`RolloutError::EmptyStop`].
    pub fn stopping_at(self, strings: &[String], decode: &Decode) -> Result<Self, RolloutError> {
        let rule = StopStrings::new(strings, Arc::clone(decode))?;
        Ok(match rule {
            Some(rule) => self.stopping(rule),
            None => self,
        })
    }

    fn check<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
    ) -> Result<(), RolloutError> {
        assert!(
            prompts.iter().all(|prompt| prompt.conditions.is_none()),
            "a prompt with conditions needs a conditional model"
        );
        let context = policy.context_length();
        prompts.iter().try_for_each(|prompt| self.settings.fits(prompt.ids.len(), context))?;
        let vocabulary = policy.vocabulary_size();
        let mut ids = prompts.iter().flat_map(|prompt| &prompt.ids);
        match ids.find(|&&id| id as usize >= vocabulary) {
            Some(&id) => Err(RolloutError::PromptId { id, vocabulary }),
            None => Ok(()),
        }
    }

    /// How many completions each engine samples at the same time. A model whose weights stay in the CPU's caches is read
    /// by each thread for rows of its own, without waiting for others between layers; a larger one is read once for all
    /// rows.
    fn rooms<M: LanguageModel>(&self, policy: &Frozen<M>, groups: usize) -> Vec<usize> {
        const CACHED_WEIGHTS: usize = 8 << 20;
        let RolloutSettings { group_size, batch_size, .. } = self.settings;
        let is_cached =
            policy.parameters() <= CACHED_WEIGHTS && grpo_kernels::is_cpu(&policy.device());
        let most = if is_cached { rayon::current_num_threads() } else { 1 };
        rooms(groups, group_size, batch_size, most)
    }

    pub(crate) fn settings(&self) -> &RolloutSettings {
        &self.settings
    }

    pub(crate) fn refuse_interrupt(&self) -> Result<(), RolloutError> {
        refuse_interrupt(&self.interrupt)
    }

    pub(crate) fn stop(&self) -> Option<&dyn StopRule> {
        self.stop.as_deref()
    }
}

impl<M: LanguageModel> Rollout<M> for Autoregressive {
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        self.check(policy, prompts)?;
        let k = self.settings.group_size as u32;
        // The longest first: what is left at the end is short.
        let mut order: Vec<usize> = (0..prompts.len()).collect();
        order.sort_by_key(|&prompt| std::cmp::Reverse(prompts[prompt].ids.len())); // stable
        let queue = order.into_iter().flat_map(|prompt| (0..k).map(move |sample| (prompt, sample)));
        let task = Task::new(self, policy, prompts, key, queue);
        // In the thread pool itself: from outside, each of the many short operations would wait for a thread to wake.
        let mut completions =
            rayon::scope(|_| task.run(&self.rooms(policy, prompts.len())))?.into_iter();
        let group =
            |prompt: &Prompt| Group::new(prompt.clone(), completions.by_ref().take(k as usize));
        Ok(prompts.iter().map(group).collect())
    }

    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        let prompts = std::slice::from_ref(prompt);
        self.check(policy, prompts)?;
        let queue = [(0, sample)].into_iter();
        let completion = Task::new(self, policy, prompts, key, queue).run(&[1])?.pop();
        Ok(completion.expect("one was asked for"))
    }

    fn interrupted_by(&self, interrupt: Arc<AtomicBool>) -> Arc<dyn Rollout<M>> {
        Arc::new(Self { interrupt, ..self.clone() })
    }
}

impl fmt::Debug for Autoregressive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autoregressive").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Ends the sampling once the flag is set.
///
/// # Errors
/// [`RolloutError::Interrupted`].
pub fn refuse_interrupt(flag: &AtomicBool) -> Result<(), RolloutError> {
    if flag.load(Ordering::Relaxed) { Err(RolloutError::Interrupted) } else { Ok(()) }
}

/// The room of each of `most` engines, or of fewer where there is too little to sample: what can be sampled at the same
/// time, no more, in equal parts. An engine samples whole groups, so where all of them fit they are what is dealt out.
fn rooms(groups: usize, group_size: usize, batch_size: usize, most: usize) -> Vec<usize> {
    /// Rows of a pass for which another engine is worth while.
    const ROWS: usize = 8;
    let completions = groups.saturating_mul(group_size);
    let together = batch_size.min(completions);
    let engines = most.min(together / ROWS).min(groups).max(1);
    let (parts, size) = if together == completions { (groups, group_size) } else { (together, 1) };
    let larger = parts % engines;
    (0..engines).map(|engine| (parts / engines + usize::from(engine < larger)) * size).collect()
}

#[cfg(test)]
mod tests {
    use super::rooms;

    #[test]
    fn engines_share_what_is_sampled_at_the_same_time() {
        // More than fits: the batch.
        assert_eq!(rooms(40, 8, 64, 1), [64]);
        assert_eq!(rooms(40, 8, 64, 3), [22, 21, 21]);
        assert_eq!(rooms(40, 8, 17, 3), [9, 8]);
        assert_eq!(rooms(40, 8, 15, 3), [15]);
        assert_eq!(rooms(40, 8, 1, 4), [1]);
        // All of it fits: the groups, and no more engines than groups.
        assert_eq!(rooms(4, 8, 256, 4), [8; 4]);
        assert_eq!(rooms(5, 8, 256, 4), [16, 8, 8, 8]);
        assert_eq!(rooms(2, 64, 256, 4), [64; 2]);
        assert_eq!(rooms(4, 4, 256, 4), [8; 2]);
        assert_eq!(rooms(1, 3, 256, 4), [3]);
        // Fewer groups than engines in a batch that is smaller than they are.
        assert_eq!(rooms(2, 64, 100, 4), [50; 2]);
        assert_eq!(rooms(0, 8, 256, 4), [0]);
    }
}
