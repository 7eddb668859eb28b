//! Tests that a completion does not depend on the other completions in its batch or the batch size.

use grpo_data::{Finish, Group, Purpose, SampleKey};
use grpo_logprob::SamplingSettings;
use grpo_model::Frozen;
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey, StopRule};

use crate::support::{
    KEY, all_ids, bent, completions, distribution, model, prompts, sample, settings,
};

#[test]
fn batches_decide_nothing() {
    check_batches(&SamplingSettings::default());
}

#[test]
fn batches_decide_nothing_of_a_bent_distribution() {
    let plain = all_ids(&sample(settings(), &prompts(), KEY)).concat();
    for sampling in bent() {
        let first = check_batches(&sampling);
        assert_ne!(all_ids(&first).concat(), plain, "{sampling:?} changes nothing");
    }
}

/// Checks that completions and kept sets are the same for any batch size.
#[track_caller]
fn check_batches(sampling: &SamplingSettings) -> Vec<Group> {
    let of = |batch_size| {
        let distribution = distribution(sampling);
        sample(RolloutSettings { batch_size, distribution, ..settings() }, &prompts(), KEY)
    };
    let one = of(1);
    for batch_size in [7, 64] {
        let other = of(batch_size);
        assert_eq!(all_ids(&one), all_ids(&other), "batches of {batch_size}");
        for (a, b) in completions(&one).zip(completions(&other)) {
            assert_eq!((a.key(), a.finish()), (b.key(), b.finish()));
            assert_eq!(a.sampled_under(), b.sampled_under(), "batches of {batch_size}");
            assert_eq!(
                a.sampling_logprobs().unwrap(),
                b.sampling_logprobs().unwrap(),
                "batches of {batch_size}"
            );
        }
    }
    one
}

#[test]
fn other_prompts_of_the_step_decide_nothing() {
    let all = sample(settings(), &prompts(), KEY);
    let mut chosen = prompts();
    chosen.swap(0, 3);
    chosen.remove(1);
    for group in sample(settings(), &chosen, KEY) {
        let alone = &all[group.prompt.index as usize];
        assert_eq!(all_ids(&[group]), all_ids(std::slice::from_ref(alone)));
    }
}

#[test]
fn the_same_key_gives_the_same_and_another_key_gives_others() {
    let of = |key| sample(settings(), &prompts(), key);
    let first = of(KEY);
    assert_eq!(first, of(KEY));
    for other in [
        StepKey { seed: 8, ..KEY },
        StepKey { step: 4, ..KEY },
        StepKey { purpose: Purpose::EVALUATION, ..KEY },
    ] {
        let equal =
            all_ids(&first).iter().zip(all_ids(&of(other))).filter(|(a, b)| *a == b).count();
        // A few of the 54 completions are short enough to occur more than once.
        assert!(equal < 27, "{equal} completions of {other:?} are those of {KEY:?}");
    }
    // The policy version is only a label and does not affect the random numbers.
    let later = of(StepKey { policy_version: 6, ..KEY });
    assert_eq!(all_ids(&first), all_ids(&later));
    assert!(completions(&later).all(|completion| completion.policy_version() == 6));
}

/// A completion can be reproduced on its own from its key, bit for bit.
#[test]
fn a_completion_can_be_drawn_again() {
    let model = model();
    for sampling in [SamplingSettings::default(), bent()[3].clone()] {
        let settings = RolloutSettings { distribution: distribution(&sampling), ..settings() };
        let rollout = Autoregressive::new(settings, &model, 4).unwrap().stopping(OddSamples);
        let policy = Frozen::snapshot(&model);
        let groups = rollout.sample(&policy, &prompts(), KEY).unwrap();
        let mut stopped = 0;
        for completion in completions(&groups) {
            let key = completion.key();
            let prompt = &prompts()[key.prompt as usize];
            let again = rollout.again(&policy, prompt, key.sample, KEY).unwrap();
            assert_eq!(&again, completion);
            stopped += usize::from(again.finish() == Finish::Stop);
        }
        assert!(stopped > 10, "the rule ended {stopped} only");
    }
}

/// Ends completions with an odd sample index after three tokens.
struct OddSamples;

impl StopRule for OddSamples {
    fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
        key.sample % 2 == 1 && completion.len() == 3
    }
}
