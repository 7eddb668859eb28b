//! Checks what engines return.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt};
use grpo_model::{Frozen, RolloutActivations};

use crate::{Engine, EngineFactory, EngineRequest, Report, RolloutError, StepKey, TurnRequest};

/// Creates an engine with a factory, and checks everything that it returns: an engine that returns another number of
/// groups, completions or turns than requested, or those of other prompts, fails with [`RolloutError::Broken`].
///
/// # Errors
/// Returns an error under the same conditions as [`EngineFactory::create`].
pub fn create_checked<M: 'static>(
    factory: &dyn EngineFactory<M>,
    policy: &M,
    request: &EngineRequest<'_>,
) -> Result<Arc<dyn Engine<M>>, RolloutError> {
    Ok(Arc::new(Checked::new(factory.create(policy, request)?, request.group_size)))
}

/// An engine whose results have been checked: one group per prompt with as many completions as were requested,
/// one completion per turn, and each of them belongs to its prompt. So what reads them can rely on it.
struct Checked<M> {
    engine: Arc<dyn Engine<M>>,
    group_size: usize,
}

impl<M> Checked<M> {
    /// Checks the results of an engine for groups of this size.
    fn new(engine: Arc<dyn Engine<M>>, group_size: usize) -> Self {
        Self { engine, group_size }
    }

    fn wrong(&self, fault: String) -> RolloutError {
        // The first word of what it shows is its type.
        let shown = format!("{:?}", self.engine);
        let name = shown.split(|c: char| !c.is_alphanumeric() && c != '_').next();
        RolloutError::Broken { engine: name.unwrap_or_default().to_owned(), fault }
    }
}

impl<M> fmt::Debug for Checked<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

impl<M: 'static> Engine<M> for Checked<M> {
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        let groups = self.engine.sample(policy, prompts, key)?;
        check_groups(prompts, &groups, self.group_size).map_err(|fault| self.wrong(fault))?;
        Ok(groups)
    }

    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        let completion = self.engine.again(policy, prompt, sample, key)?;
        check_completion(prompt, &completion, sample).map_err(|fault| self.wrong(fault))?;
        Ok(completion)
    }

    fn take_turns(
        &self,
        policy: &Frozen<M>,
        requests: &[TurnRequest<'_>],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let turns = self.engine.take_turns(policy, requests, key)?;
        check_turns(requests, &turns).map_err(|fault| self.wrong(fault))?;
        Ok(turns)
    }

    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Engine<M>> {
        Arc::new(Self::new(self.engine.interrupted_by(flag), self.group_size))
    }

    fn reporting(&self, report: Report) -> Option<Arc<dyn Engine<M>>> {
        let engine = self.engine.reporting(report)?;
        Some(Arc::new(Self::new(engine, self.group_size)))
    }

    fn keeping(&self, activations: RolloutActivations) -> Option<Arc<dyn Engine<M>>> {
        let engine = self.engine.keeping(activations)?;
        Some(Arc::new(Self::new(engine, self.group_size)))
    }
}

/// Checks that there is one group per prompt, in their order, with completions of the samples 0 to
/// `group_size` − 1.
///
/// # Errors
/// Returns a description of the first difference.
pub fn check_groups(prompts: &[Prompt], groups: &[Group], group_size: usize) -> Result<(), String> {
    if groups.len() != prompts.len() {
        return Err(format!(
            "{} groups for {} prompts; expected one group per prompt",
            groups.len(),
            prompts.len()
        ));
    }
    for (index, (prompt, group)) in prompts.iter().zip(groups).enumerate() {
        if group.prompt != *prompt {
            return Err(format!("a group of another prompt in place of that of prompt {index}"));
        }
        if group.samples.len() != group_size {
            return Err(format!(
                "{} completions for prompt {index}; expected a group of {group_size}",
                group.samples.len()
            ));
        }
        for (sample, completion) in (0..).zip(group.completions()) {
            check_completion(prompt, completion, sample)?;
        }
    }
    Ok(())
}

/// Checks that a completion continues the prompt or fills positions of it.
fn check_completion(prompt: &Prompt, completion: &Completion, sample: u32) -> Result<(), String> {
    let (index, key) = (prompt.index, completion.key());
    if (key.prompt, key.sample) != (index, sample) {
        return Err(format!(
            "sample {} of prompt {} in place of sample {sample} of prompt {index}",
            key.sample, key.prompt
        ));
    }
    let tokens = completion.ids().iter().zip(completion.action_mask());
    let is_own = tokens.zip(&prompt.ids).all(|((id, action), own)| *action || id == own);
    match is_own && completion.ids().len() >= prompt.ids.len() {
        true => Ok(()),
        false => Err(format!(
            "a completion whose ids do not contain its prompt: sample {sample} of prompt {index}"
        )),
    }
}

/// Checks that there is one turn per request, which continues it.
fn check_turns(requests: &[TurnRequest<'_>], turns: &[Completion]) -> Result<(), String> {
    if turns.len() != requests.len() {
        return Err(format!(
            "{} turns for {} requests; expected one turn per request",
            turns.len(),
            requests.len()
        ));
    }
    for (TurnRequest { context, sample, .. }, turn) in requests.iter().zip(turns) {
        check_completion(context, turn, *sample)?;
        if turn.action_mask()[..context.ids.len()].contains(&true) {
            return Err(format!(
                "a turn with actions before it: sample {sample} of prompt {}",
                context.index
            ));
        }
    }
    Ok(())
}
