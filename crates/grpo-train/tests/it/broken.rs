//! Engines, episodes and extensions that return something other than what was requested.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, CompletionParts, Group, Prompt};
use grpo_model::{Frozen, Transformer};
use grpo_rollout::{
    Engine, EngineFactory, EngineRequest, Episode, EpisodeFactory, Next, RolloutError, StepKey,
    TurnRequest,
};
use grpo_train::{
    Grpo, NextTokens, Parts, Sampled, StepExtension, StepSampler, TrainError, unconditional_prompts,
};

use crate::support::{SEED, chains, config, model, molecules, parts, vocabulary};

/// What an engine does wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    FewerGroups,
    FewerCompletions,
    OtherOrder,
    OtherPrompt,
    FewerTurns,
    OtherTurns,
    TurnsWithoutLogprobs,
}

/// Samples with the local engine, and changes the result.
#[derive(Debug)]
struct Broken {
    engine: Arc<dyn Engine<Transformer>>,
    fault: Fault,
}

impl Engine<Transformer> for Broken {
    fn sample(
        &self,
        policy: &Frozen<Transformer>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        let mut groups = self.engine.sample(policy, prompts, key)?;
        match self.fault {
            Fault::FewerGroups => drop(groups.pop()),
            Fault::FewerCompletions => drop(groups[1].samples.pop()),
            Fault::OtherOrder => groups[2].samples.swap(0, 1),
            Fault::OtherPrompt => groups.swap(0, 1),
            Fault::FewerTurns | Fault::OtherTurns | Fault::TurnsWithoutLogprobs => {}
        }
        Ok(groups)
    }

    fn again(
        &self,
        policy: &Frozen<Transformer>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        self.engine.again(policy, prompt, sample, key)
    }

    fn take_turns(
        &self,
        policy: &Frozen<Transformer>,
        requests: &[TurnRequest<'_>],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let mut turns = self.engine.take_turns(policy, requests, key)?;
        match self.fault {
            Fault::FewerTurns => drop(turns.pop()),
            // A turn of another completion.
            Fault::OtherTurns => {
                let mut parts = CompletionParts::from(turns[0].clone());
                parts.ids[0] += 1;
                turns[0] = Completion::new(parts);
            }
            Fault::TurnsWithoutLogprobs => {
                let parts = CompletionParts::from(turns[0].clone());
                turns[0] = Completion::new(CompletionParts { sampling_logprobs: None, ..parts });
            }
            _ => {}
        }
        Ok(turns)
    }

    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Engine<Transformer>> {
        let engine = self.engine.interrupted_by(flag);
        Arc::new(Self { engine, fault: self.fault })
    }
}

impl EngineFactory<Transformer> for Fault {
    fn create(
        &self,
        policy: &Transformer,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<Transformer>>, RolloutError> {
        let engine = next_tokens().create(policy, request)?;
        Ok(Arc::new(Broken { engine, fault: *self }))
    }
}

fn next_tokens() -> NextTokens {
    NextTokens { end_ids: vec![vocabulary().boundary()] }
}

/// Shows one id after the first turn.
#[derive(Debug)]
struct Shows {
    turns: usize,
}

impl Episode for Shows {
    fn max_turns(&self) -> usize {
        self.turns
    }

    fn max_observation(&self) -> usize {
        1
    }

    fn next(&self, _: &Prompt, _: &Completion, _: usize) -> Result<Next, RolloutError> {
        Ok(Next::Observe(vec![1]))
    }
}

fn run(
    engine: Arc<dyn EngineFactory<Transformer>>,
    extensions: Vec<Box<dyn StepExtension<Transformer>>>,
) -> Result<(), TrainError> {
    let mut config = config();
    // Two turns fit into the context.
    config.sampling.max_new_tokens = 5;
    let vocabulary = vocabulary();
    let parts = parts(engine, molecules(0.7), model(vocabulary.len(), 2.0), chains());
    let mut grpo = Grpo::new(Parts { extensions, ..parts }, config, SEED)?;
    grpo.step(&unconditional_prompts(3, vocabulary.boundary()), 0).map(drop)
}

#[test]
fn an_engine_returns_what_was_requested() {
    let bug = "this is a bug of the engine";
    for (fault, expected) in [
        (Fault::FewerGroups, "2 groups for 3 prompts; expected one group per prompt"),
        (Fault::FewerCompletions, "7 completions for prompt 1; expected a group of 8"),
        (Fault::OtherOrder, "sample 1 of prompt 2 in place of sample 0 of prompt 2"),
        (Fault::OtherPrompt, "a group of another prompt in place of that of prompt 0"),
    ] {
        let error = run(Arc::new(fault), Vec::new()).unwrap_err().to_string();
        assert_eq!(error, format!("sampling: the engine Broken returned {expected}; {bug}"));
    }
    run(Arc::new(next_tokens()), Vec::new()).unwrap();
}

#[test]
fn turns_of_an_episode_are_those_that_were_requested() {
    let episode = |turns, engine| -> Arc<dyn EngineFactory<Transformer>> {
        Arc::new(EpisodeFactory::new(engine, Arc::new(Shows { turns })))
    };
    for (fault, expected) in [
        (Fault::FewerTurns, "the engine Broken returned 23 turns for 24 requests"),
        (Fault::OtherTurns, "the engine Broken returned a completion whose ids do not contain"),
        (Fault::TurnsWithoutLogprobs, "log-probabilities for some turns of a completion"),
    ] {
        let error = run(episode(2, Arc::new(fault)), Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("sampling: ") && error.contains(expected), "{error}");
    }
    run(episode(2, Arc::new(next_tokens())), Vec::new()).unwrap();
    let error = run(episode(0, Arc::new(next_tokens())), Vec::new()).unwrap_err().to_string();
    assert!(error.contains("has no turns; Episode::max_turns must be at least 1"), "{error}");
}

/// Samples fewer groups than there are prompts.
struct Forgets;

impl StepExtension<Transformer> for Forgets {
    fn name(&self) -> &'static str {
        "forgets"
    }

    fn rollout(
        &mut self,
        sampler: &StepSampler<'_, Transformer>,
    ) -> Result<Option<Sampled>, TrainError> {
        let snapshot = sampler.snapshot();
        let groups =
            sampler.engine().sample(&snapshot.policy, &sampler.prompts[1..], snapshot.key)?;
        let completions = groups.iter().map(|group| group.completions().cloned().collect());
        let (policy_version, weights) = (sampler.policy_version(), snapshot.weights.into());
        Ok(Some(Sampled { policy_version, weights, completions: completions.collect() }))
    }
}

#[test]
fn an_extension_samples_all_prompts() {
    let error = run(Arc::new(next_tokens()), vec![Box::new(Forgets)]).unwrap_err().to_string();
    assert_eq!(error, "forgets: it sampled 2 groups for 3 prompts");
}
