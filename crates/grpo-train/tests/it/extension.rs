//! An extension that is registered from outside of the crate.

use std::sync::Arc;

use grpo_data::{Group, Outcome, PartName};
use grpo_model::Transformer;
use grpo_rewards::{ExternalCalls, Reward, RewardInput};
use grpo_runtime::RankError;
use grpo_train::{
    Grpo, Metrics, NextTokens, Parts, ScoreKeeper, StepExtension, StepExtensions, StepScorer,
};

use crate::support::{SEED, chains, config, fresh_model, parts, vocabulary};

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/extension.rs"]
mod example;

#[test]
fn an_extension_from_outside_has_a_term_and_metrics() {
    let mut steps: Vec<Metrics> = Vec::new();
    let extension = example::ShortCompletions { weight: 0.5, steps: 2 };
    example::train(2, extension, |metrics| steps.push(metrics.clone())).unwrap();
    for (metrics, weight) in steps.iter().zip([0.25, 0.5]) {
        let of = |name: &str| metrics.get(name).unwrap();
        assert_eq!(of("short_completions/weight"), weight);
        // All completions have a reward, so the bonus follows from their lengths.
        let expected = -weight * of("completions/mean_length");
        assert!((of("short_completions/mean") - expected).abs() < 1e-12);
        assert!(of("reward_share/short_completions").is_finite());
        // The reward itself is left unchanged.
        assert!(of("reward") >= 0.0);
    }
    assert_eq!(steps.len(), 2);
}

/// Has a memory of scores.
struct Memory;

impl StepExtension<Transformer> for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn score_keeper(&mut self) -> Option<&mut dyn ScoreKeeper> {
        Some(self)
    }
}

impl ScoreKeeper for Memory {
    fn score(
        &mut self,
        groups: &mut [Group],
        scorer: &StepScorer<'_>,
    ) -> Result<Option<ExternalCalls>, RankError> {
        scorer.score(groups)
    }
}

/// Compares the completions of a group.
struct Relative;

impl Reward for Relative {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        vec![Outcome::abstained(); samples.len()]
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<PartName> {
        Vec::new()
    }
}

#[test]
fn scores_relative_to_a_group_are_not_kept() {
    let actions = Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] });
    let parts = parts(actions, Arc::new(Relative), fresh_model(vocabulary().len()), chains());
    let extensions: StepExtensions<Transformer> = vec![Box::new(Memory)];
    let begun = Grpo::new(Parts { extensions, ..parts }, config(), SEED);
    let error = begun.map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "memory keeps the scores of completions, but this reward compares the completions of a group; remove [replay] and train.max_reward_calls, or use another reward"
    );
}
