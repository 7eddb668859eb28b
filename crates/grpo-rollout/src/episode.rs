//! Episodes: what follows a completion. A completion of several turns is one sequence, in which the
//! action mask tells the tokens of the policy from the observations between them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, CompletionParts, Group, Prompt};
use grpo_model::Frozen;

use crate::checked::create_checked;
use crate::{Engine, EngineFactory, EngineRequest, RolloutError, StepKey, TurnRequest};

/// Decides what follows each turn of the policy, e.g. the answer of a tool or of an environment.
///
/// All decisions must follow from the arguments, so that a completion can be sampled again.
pub trait Episode: fmt::Debug + Send + Sync {
    /// Returns the maximum number of turns of the policy, at least 1.
    fn max_turns(&self) -> usize;

    /// Returns the maximum number of tokens between two turns.
    fn max_observation(&self) -> usize;

    /// Returns what follows a turn, counted from 0. `so_far` consists of the prompt, all turns and what
    /// was observed between them. Not called after the last turn.
    ///
    /// # Errors
    /// Returns an error if the run must end.
    fn next(&self, prompt: &Prompt, so_far: &Completion, turn: usize)
    -> Result<Next, RolloutError>;
}

/// What follows a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The policy reads these tokens, which it did not choose, and takes another turn.
    Observe(Vec<u32>),
    /// Nothing.
    Done,
}

/// Creates engines for the episodes of a run: another engine samples their turns.
pub struct EpisodeFactory<M> {
    turns: Arc<dyn EngineFactory<M>>,
    episode: Arc<dyn Episode>,
}

impl<M> EpisodeFactory<M> {
    /// Samples the turns of `episode` with the engines of `turns`.
    pub fn new(turns: Arc<dyn EngineFactory<M>>, episode: Arc<dyn Episode>) -> Self {
        Self { turns, episode }
    }
}

impl<M: 'static> EngineFactory<M> for EpisodeFactory<M> {
    /// The limit of new tokens is that of a turn.
    fn create(
        &self,
        policy: &M,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<M>>, RolloutError> {
        let episode = Arc::clone(&self.episode);
        let earlier = episode.max_turns().checked_sub(1).ok_or_else(|| {
            RolloutError::Unfit(format!(
                "the episode {episode:?} has no turns; Episode::max_turns must be at least 1"
            ))
        })?;
        let tokens = request.max_new_tokens.saturating_add(episode.max_observation());
        let longest_prompt = request.longest_prompt.saturating_add(earlier.saturating_mul(tokens));
        let request = EngineRequest { longest_prompt, ..*request };
        let engine = create_checked(&*self.turns, policy, &request)?;
        Ok(Arc::new(InTurns { engine, episode }))
    }

    fn max_turns(&self) -> usize {
        self.episode.max_turns()
    }
}

/// Samples episodes turn by turn.
struct InTurns<M> {
    engine: Arc<dyn Engine<M>>,
    episode: Arc<dyn Episode>,
}

impl<M> InTurns<M> {
    /// Adds all further turns to the completions of first turns.
    fn finished(
        &self,
        policy: &Frozen<M>,
        mut all: Vec<(&Prompt, Completion)>,
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let mut open: Vec<usize> = (0..all.len()).collect();
        for turn in 1..self.episode.max_turns() {
            let mut contexts = Vec::new();
            for index in open {
                let (prompt, so_far) = &all[index];
                if let Next::Observe(observed) = self.episode.next(prompt, so_far, turn - 1)? {
                    let ids = [so_far.ids(), &self.fitting(observed)?].concat();
                    contexts.push((index, Prompt { ids, ..(*prompt).clone() }));
                }
            }
            if contexts.is_empty() {
                break;
            }
            let request = contexts.iter().map(|(index, context)| {
                let sample = all[*index].1.key().sample;
                TurnRequest { context, sample, turn }
            });
            let requests: Vec<TurnRequest<'_>> = request.collect();
            let turns = self.engine.take_turns(policy, &requests, key)?;
            for ((index, _), next) in contexts.iter().zip(turns) {
                let joined = joined(&all[*index].1, next);
                all[*index].1 = joined.map_err(|fault| RolloutError::Broken {
                    engine: format!("of the episode {:?}", self.episode),
                    fault,
                })?;
            }
            open = contexts.into_iter().map(|(index, _)| index).collect();
        }
        Ok(all.into_iter().map(|(_, completion)| completion).collect())
    }

    fn fitting(&self, observed: Vec<u32>) -> Result<Vec<u32>, RolloutError> {
        let (found, most) = (observed.len(), self.episode.max_observation());
        match found <= most {
            true => Ok(observed),
            false => Err(RolloutError::Unfit(format!(
                "the episode {:?} returned an observation of {found} tokens; expected at most {most} (Episode::max_observation)",
                self.episode
            ))),
        }
    }
}

/// Joins a completion with its next turn, whose prompt contains the completion.
///
/// # Errors
/// Returns a description of what only one of the two has.
fn joined(so_far: &Completion, next: Completion) -> Result<Completion, String> {
    let first = CompletionParts::from(so_far.clone());
    let mut next = CompletionParts::from(next);
    next.action_mask[..first.ids.len()].copy_from_slice(&first.action_mask);
    next.sampling_logprobs =
        both(first.sampling_logprobs, next.sampling_logprobs, "log-probabilities")?;
    let kept = (first.sampled_under.kept, next.sampled_under.kept);
    next.sampled_under.kept = both(kept.0, kept.1, "kept sets")?;
    Completion::try_from(next)
}

/// Concatenates the values of two turns, if both have some.
fn both<T>(
    first: Option<Vec<T>>,
    next: Option<Vec<T>>,
    what: &str,
) -> Result<Option<Vec<T>>, String> {
    match (first, next) {
        (Some(mut first), Some(next)) => {
            first.extend(next);
            Ok(Some(first))
        }
        (None, None) => Ok(None),
        _ => Err(format!("{what} for some turns of a completion, but not for all of them")),
    }
}

impl<M: 'static> Engine<M> for InTurns<M> {
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        let groups = self.engine.sample(policy, prompts, key)?;
        let sizes: Vec<usize> = groups.iter().map(|group| group.samples.len()).collect();
        let first = prompts.iter().zip(groups).flat_map(|(prompt, group)| {
            group.samples.into_iter().map(move |sample| (prompt, sample.completion))
        });
        let mut finished = self.finished(policy, first.collect(), key)?.into_iter();
        let group = |(prompt, size): (&Prompt, usize)| {
            Group::new(prompt.clone(), finished.by_ref().take(size))
        };
        Ok(prompts.iter().zip(sizes).map(group).collect())
    }

    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        let first = self.engine.again(policy, prompt, sample, key)?;
        Ok(self.finished(policy, vec![(prompt, first)], key)?.remove(0))
    }

    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Engine<M>> {
        let (engine, episode) = (self.engine.interrupted_by(flag), Arc::clone(&self.episode));
        Arc::new(Self { engine, episode })
    }
}

impl<M> fmt::Debug for InTurns<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTurns")
            .field("engine", &self.engine)
            .field("episode", &self.episode)
            .finish()
    }
}
