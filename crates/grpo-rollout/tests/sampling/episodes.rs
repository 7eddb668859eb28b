//! Episodes of several turns.

use std::sync::Arc;

use grpo_data::{Completion, Prompt};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, Transformer, score_completions};
use grpo_rollout::{
    Decode, Engine, EngineFactory, EngineRequest, Episode, EpisodeFactory, Next, NextTokens,
    RolloutError,
};

use crate::support::{END, KEY, all_ids, bent, completions, in_pool, model, prompts};

/// Shows two ids after each turn, except in every third sample.
#[derive(Debug)]
struct Shows {
    most: usize,
}

impl Episode for Shows {
    fn max_turns(&self) -> usize {
        3
    }

    fn max_observation(&self) -> usize {
        self.most
    }

    fn next(&self, _: &Prompt, so_far: &Completion, turn: usize) -> Result<Next, RolloutError> {
        Ok(match so_far.key().sample % 3 {
            0 => Next::Done,
            _ => Next::Observe(vec![turn as u32 + 8, 11]),
        })
    }
}

const SHOWS: Shows = Shows { most: 2 };

/// Creates an engine for groups of 5 and turns of up to `max_new_tokens`.
fn engine(
    factory: &dyn EngineFactory<Transformer>,
    sampling: &SamplingSettings,
    max_new_tokens: usize,
    batch_size: usize,
) -> Result<Arc<dyn Engine<Transformer>>, RolloutError> {
    let decode: Decode = Arc::new(|_| String::new());
    let request = EngineRequest {
        group_size: 5,
        longest_prompt: 4,
        sampling,
        max_new_tokens,
        batch_size,
        stop: &[],
        decode: &decode,
    };
    factory.create(&model(), &request)
}

fn turns() -> Arc<NextTokens> {
    Arc::new(NextTokens { end_ids: vec![END] })
}

fn in_turns(episode: Shows) -> EpisodeFactory<Transformer> {
    EpisodeFactory::new(turns(), Arc::new(episode))
}

#[test]
fn turns_and_observations_are_one_sequence() {
    let (plain, policy) = (SamplingSettings::default(), Frozen::snapshot(&model()));
    let sample = |factory: &dyn EngineFactory<Transformer>| {
        engine(factory, &plain, 4, 64).unwrap().sample(&policy, &prompts(), KEY).unwrap()
    };
    let (episodes, first_turns) = (sample(&in_turns(SHOWS)), sample(&*turns()));
    let mut several = 0;
    for (completion, first) in completions(&episodes).zip(completions(&first_turns)) {
        let (ids, mask) = (completion.ids(), completion.action_mask());
        assert!(ids.starts_with(first.ids()));
        let prompt = mask.iter().position(|action| *action).unwrap();
        // Runs of actions and of observations, in turn.
        let tokens: Vec<(u32, bool)> = ids.iter().copied().zip(mask.iter().copied()).collect();
        let runs: Vec<&[(u32, bool)]> = tokens[prompt..].chunk_by(|a, b| a.1 == b.1).collect();
        if completion.key().sample % 3 == 0 {
            assert_eq!((runs.len(), ids), (1, first.ids()));
            continue;
        }
        several += 1;
        assert_eq!(runs.len(), 5);
        for (turn, observed) in [(0, runs[1]), (1, runs[3])] {
            assert_eq!(observed, [(turn + 8, false), (11, false)]);
        }
        assert!([0, 2, 4].iter().all(|&run| (1..=4).contains(&runs[run].len())));
        assert_eq!(completion.text_ids(), ids[prompt..]);
        // The log-probability of each action depends on everything before it.
        let scores = &score_completions(&policy, &[(&ids[..prompt], &ids[prompt..])], 1.0)[0];
        let of_actions = scores.logprobs.iter().zip(&mask[prompt..]);
        let of_actions = of_actions.filter_map(|(logprob, &action)| action.then_some(*logprob));
        let sampled = completion.sampling_logprobs().unwrap();
        assert_eq!(sampled.len(), completion.actions());
        for (own, scored) in sampled.iter().zip(of_actions) {
            assert!((f64::from(*own) - scored).abs() < 1e-5, "{own} {scored}");
        }
    }
    assert_eq!(several, 3 * prompts().len());
}

#[test]
fn episodes_do_not_depend_on_their_batch() {
    let policy = Frozen::snapshot(&model());
    for sampling in bent() {
        let engine = |batch_size| engine(&in_turns(SHOWS), &sampling, 4, batch_size).unwrap();
        let sample = |batch_size| engine(batch_size).sample(&policy, &prompts(), KEY).unwrap();
        let expected = in_pool(1, || sample(64));
        for (batch_size, threads) in [(64, 3), (7, 2), (1, 1)] {
            let found = in_pool(threads, || sample(batch_size));
            assert_eq!(all_ids(&found), all_ids(&expected), "{batch_size} {threads}");
            assert_eq!(found, expected);
        }
        for (group, prompt) in expected.iter().zip(prompts()) {
            for completion in group.completions() {
                let sample = completion.key().sample;
                let again = engine(64).again(&policy, &prompt, sample, KEY).unwrap();
                assert_eq!(&again, completion);
            }
        }
    }
}

#[test]
fn episodes_that_do_not_fit_are_refused() {
    let plain = SamplingSettings::default();
    let episodes = in_turns(SHOWS);
    // 4 tokens of the prompt and 3 turns of 5 tokens, with two observations of 2 tokens.
    let error = engine(&episodes, &plain, 5, 64).map(drop).unwrap_err().to_string();
    assert!(error.contains("a prompt of 18 tokens with max_new_tokens = 5 exceeds"), "{error}");
    let longer = engine(&in_turns(Shows { most: 1 }), &plain, 4, 64).unwrap();
    let error = longer.sample(&Frozen::snapshot(&model()), &prompts(), KEY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the episode Shows { most: 1 } returned an observation of 2 tokens; expected at most 1 (Episode::max_observation)"
    );
}
