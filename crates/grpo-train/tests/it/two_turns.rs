//! An episode that is registered from outside of the crate.

use std::sync::Arc;

use grpo_core::Reduction;
use grpo_data::{Completion, Prompt};
use grpo_model::Transformer;
use grpo_rollout::{EngineFactory, Episode, EpisodeFactory, Next, RolloutError};
use grpo_train::{Metrics, NextTokens};

use crate::support::{SEED, chains, config, model, molecules, take_step, vocabulary, with_actions};

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/two_turns.rs"]
mod example;

#[test]
fn an_episode_from_outside_trains_two_steps() {
    const SECRET: u32 = 3;
    let (mut steps, mut second_turns) = (0, 0);
    example::train(2, SECRET, |done| {
        for sample in done.groups.iter().flat_map(|group| &group.samples) {
            let (ids, mask) = (sample.completion.ids(), sample.completion.action_mask());
            let right = f64::from(u8::from(ids.last() == Some(&SECRET)));
            match (ids, mask) {
                ([_, first], [false, true]) => {
                    assert_eq!((*first, sample.reward()), (SECRET, Some(1.0)));
                }
                ([_, first, hint, _], [false, true, false, true]) => {
                    second_turns += 1;
                    let expected = if *first < SECRET { example::HIGHER } else { example::LOWER };
                    assert_eq!((*hint, sample.reward()), (expected, Some(0.5 * right)));
                    assert_ne!(*first, SECRET);
                }
                other => panic!("{other:?}"),
            }
            let text: Vec<String> = ids[1..].iter().map(u32::to_string).collect();
            assert_eq!(sample.text, text.join(" "));
        }
        // Observations are not actions: a completion has one or two of these.
        let metrics = Metrics::of(done, 0);
        let length = metrics.get("completions/mean_length").unwrap();
        assert!(length > 1.0 && length <= 2.0, "{length}");
        assert!(metrics.get("grad_norm").unwrap().is_finite());
        steps += 1;
    })
    .unwrap();
    assert_eq!(steps, 2);
    assert!(second_turns > 0);
}

/// Allows a second turn that nobody takes.
#[derive(Debug)]
struct OneTurn;

impl Episode for OneTurn {
    fn max_turns(&self) -> usize {
        2
    }

    fn max_observation(&self) -> usize {
        1
    }

    fn next(&self, _: &Prompt, _: &Completion, _: usize) -> Result<Next, RolloutError> {
        Ok(Next::Done)
    }
}

/// The limit of a completion is that of all its turns.
#[test]
fn a_constant_reduction_divides_by_the_limit_of_the_episode() {
    let mut config = config();
    config.sampling.max_new_tokens = 6;
    config.loss.reduction = Some(Reduction::Constant);
    let vocabulary = vocabulary();
    let grad_norm = |engine: Arc<dyn EngineFactory<Transformer>>| {
        let model = model(vocabulary.len(), 2.0);
        let begun = with_actions(engine, molecules(0.7), model, config.clone(), SEED, chains());
        take_step(&mut begun.unwrap(), 0).learned.updates[0].grad_norm
    };
    let turns = || Arc::new(NextTokens { end_ids: vec![vocabulary.boundary()] });
    let of_one = grad_norm(turns());
    let of_two = grad_norm(Arc::new(EpisodeFactory::new(turns(), Arc::new(OneTurn))));
    assert!(of_one > 0.0);
    assert!((of_two / of_one - 0.5).abs() < 1e-5, "{of_two} {of_one}");
}
