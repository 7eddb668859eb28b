//! Sampling with several ranks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt};
use grpo_logprob::NotFinite;
use grpo_model::Frozen;
use grpo_runtime::{RankError, Ranks};
use serde::{Deserialize, Serialize};

use crate::{Engine, RolloutError, StepKey, TurnRequest};

/// An engine that distributes prompts over ranks. Each rank samples the groups of consecutive prompts, and
/// all ranks get all groups.
///
/// Completions don't depend on the rest of their batch, so they don't depend on the number of ranks
/// either.
pub struct Distributed<M> {
    engine: Arc<dyn Engine<M>>,
    ranks: Ranks,
}

impl<M> Distributed<M> {
    /// Distributes the prompts of `engine` over `ranks`.
    pub fn new(engine: Arc<dyn Engine<M>>, ranks: Ranks) -> Self {
        Self { engine, ranks }
    }
}

impl<M> fmt::Debug for Distributed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distributed")
            .field("engine", &self.engine)
            .field("ranks", &self.ranks)
            .finish()
    }
}

/// The completions of a rank for each of its prompts, or why there are none.
#[derive(Serialize, Deserialize)]
enum Message {
    /// In CBOR, which has names of fields: completions leave out those that are empty.
    Completions(Vec<u8>),
    Interrupted,
    Diverged,
    Failed(String),
}

impl Message {
    fn of(sampled: Result<Vec<Group>, RolloutError>) -> Self {
        let completions = |group: &Group| group.completions().cloned().collect();
        match sampled {
            Ok(groups) => {
                let completions: Vec<Vec<Completion>> = groups.iter().map(completions).collect();
                let mut bytes = Vec::new();
                ciborium::into_writer(&completions, &mut bytes)
                    .expect("completions have an encoding");
                Self::Completions(bytes)
            }
            Err(RolloutError::Interrupted) => Self::Interrupted,
            Err(RolloutError::Diverged(NotFinite)) => Self::Diverged,
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    fn received(self, rank: usize) -> Result<Vec<Vec<Completion>>, RolloutError> {
        match self {
            Self::Completions(bytes) => ciborium::from_reader(bytes.as_slice()).map_err(|fault| {
                RolloutError::Engine(Box::new(RankError::Unreadable {
                    rank,
                    fault: fault.to_string(),
                }))
            }),
            Self::Interrupted => Err(RolloutError::Interrupted),
            Self::Diverged => Err(RolloutError::Diverged(NotFinite)),
            Self::Failed(reason) => {
                Err(RolloutError::Engine(Box::new(RankError::Failed { rank, reason })))
            }
        }
    }
}

impl<M: 'static> Engine<M> for Distributed<M> {
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        if self.ranks.is_alone() {
            return self.engine.sample(policy, prompts, key);
        }
        let own = &prompts[self.ranks.share(prompts.len())];
        let sampled = match own.is_empty() {
            true => Ok(Vec::new()),
            false => self.engine.sample(policy, own, key),
        };
        let messages = self.ranks.gather(Message::of(sampled));
        let messages = messages.map_err(|error| RolloutError::Engine(Box::new(error)))?;
        let received = messages.into_iter().enumerate();
        let completions: Vec<Vec<Vec<Completion>>> =
            received.map(|(rank, message)| message.received(rank)).collect::<Result<_, _>>()?;
        let completions: Vec<Vec<Completion>> = completions.into_iter().flatten().collect();
        if completions.len() != prompts.len() {
            let (groups, prompts) = (completions.len(), prompts.len());
            let fault = format!("{groups} groups of all ranks for {prompts} prompts");
            return Err(RolloutError::Broken { engine: "Distributed".to_owned(), fault });
        }
        let groups = prompts.iter().zip(completions);
        Ok(groups.map(|(prompt, completions)| Group::new(prompt.clone(), completions)).collect())
    }

    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        self.engine.again(policy, prompt, sample, key)
    }

    fn take_turns(
        &self,
        policy: &Frozen<M>,
        requests: &[TurnRequest<'_>],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        self.engine.take_turns(policy, requests, key)
    }

    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Engine<M>> {
        Arc::new(Self::new(self.engine.interrupted_by(flag), self.ranks.clone()))
    }
}
