//! A reward for a whole group at once: the rank of a completion's length.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use burn::tensor::Device;
use grpo_data::{
    Completion, CompletionParts, ConfigFault, Finish, Group, Prompt, SampleKey, SampledUnder,
};
use grpo_rewards::{
    IdentifiedReward, Identity, Outcome, PartName, Reward, RewardInput, RewardKind, RewardRegistry,
    RewardRunner, RewardSpec, Scored,
};
use grpo_runtime::Ranks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RankConfig {}

impl RewardSpec for RankConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        Ok(())
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        Ok(Arc::new(Rank { surplus: 0 }))
    }
}

/// Scores the share of the other completions that are shorter.
struct Rank {
    /// Number of outcomes too many for groups of several completions.
    surplus: usize,
}

impl Reward for Rank {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        samples.chunks(1).flat_map(|alone| self.score_group(alone)).collect()
    }

    fn score_group(&self, group: &[RewardInput]) -> Vec<Outcome> {
        let others = (group.len() - 1).max(1) as f64;
        let score = |input: &RewardInput| {
            let shorter = group.iter().filter(|other| other.text.len() < input.text.len());
            let share = shorter.count() as f64 / others;
            Outcome::Scored(Scored::new(vec![(1.0, share)], vec![("rank".into(), share)]))
        };
        let more = group.iter().take(if group.len() > 1 { self.surplus } else { 0 });
        group.iter().chain(more).map(score).collect()
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["rank".into()]
    }
}

/// Groups of completions with these lengths.
fn groups(lengths: &[&[usize]]) -> Vec<Group> {
    let completion = |prompt: u32, sample: u32, length: usize| {
        Completion::new(CompletionParts {
            prefix: Default::default(),
            ids: vec![1; 1 + length],
            action_mask: (0..=length).map(|place| place > 0).collect(),
            sampling_logprobs: Some(vec![-1.0; length]),
            finish: Finish::Length,
            key: SampleKey { seed: 0, step: 0, prompt, sample },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    };
    let group = |(lengths, prompt): (&&[usize], u32)| {
        let own = lengths.iter().zip(0..);
        let own = own.map(|(&length, sample)| completion(prompt, sample, length));
        Group::new(Prompt::of_ids(prompt, vec![1]), own)
    };
    lengths.iter().zip(0..).map(group).collect()
}

/// Scores groups whose texts have these lengths, and returns the rewards.
fn rewards(runner: &RewardRunner, lengths: &[&[usize]]) -> Vec<Vec<Option<f64>>> {
    let mut groups = groups(lengths);
    runner.score_groups(&mut groups, None, &|ids| "x".repeat(ids.len())).unwrap();
    let of_group = |group: &Group| group.samples.iter().map(|sample| sample.reward()).collect();
    groups.iter().map(of_group).collect()
}

fn runner(reward: Arc<dyn Reward>) -> RewardRunner {
    RewardRunner::new(reward, Duration::from_secs(600))
}

/// Builds a registered reward from its section.
fn built(section: &str) -> Arc<dyn Reward> {
    let registry =
        RewardRegistry::default().with([RewardKind::from_settings::<RankConfig>("rank")]);
    let parsed = registry.parse(toml::from_str(section).unwrap()).unwrap();
    parsed.build(&Device::flex()).unwrap()
}

const LENGTHS: [&[usize]; 4] = [&[3, 1, 2], &[4], &[2, 2], &[1, 5, 3]];

fn expected() -> Vec<Vec<Option<f64>>> {
    let ranks: [&[f64]; 4] = [&[1.0, 0.0, 0.5], &[0.0], &[0.0, 0.0], &[0.0, 1.0, 0.5]];
    ranks.map(|ranks| ranks.iter().copied().map(Some).collect()).to_vec()
}

#[test]
fn completions_are_compared_within_their_group() {
    let runner = runner(built("type = 'rank'"));
    assert_eq!(rewards(&runner, &LENGTHS), expected());
    // Without groups, each completion is its own.
    let alone = built("type = 'rank'").score(&["a".into(), "bc".into()]);
    assert!(alone.iter().all(|outcome| outcome.total() == Some(0.0)), "{alone:?}");
}

/// Whole groups are distributed, also if there are fewer than ranks.
#[test]
fn groups_are_not_divided_between_ranks() {
    for count in [2, 3, 7] {
        let ranks = Ranks::in_process(count);
        let scored = thread::scope(|scope| {
            let score = |ranks: Ranks| {
                let runner = runner(built("type = 'rank'")).distributed_over(ranks);
                scope.spawn(move || rewards(&runner, &LENGTHS))
            };
            let threads: Vec<_> = ranks.into_iter().map(score).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(scored, vec![expected(); count], "{count} ranks");
    }
}

#[test]
fn composite_and_identified_rewards_compare_too() {
    let composite = built(
        "type = 'composite'\n[[parts]]\nname = 'long'\nweight = 1.0\nreward = { type = 'rank' }",
    );
    assert!(composite.is_relative());
    let identified =
        IdentifiedReward::wrap(composite, |texts| vec![Identity::Invalid; texts.len()]);
    assert!(identified.is_relative());
    assert_eq!(rewards(&runner(identified), &LENGTHS), expected());
    assert!(!built("type = 'pattern'\npattern = 'x'").is_relative());
}

#[test]
fn a_wrong_number_of_outcomes_fails_its_group_only() {
    let mut groups = groups(&LENGTHS);
    let runner = runner(Arc::new(Rank { surplus: 1 }));
    runner.score_groups(&mut groups, None, &|ids| "x".repeat(ids.len())).unwrap();
    let failure = |group: usize| {
        groups[group].samples[0].outcome.as_ref().unwrap().failure().map(str::to_owned)
    };
    let wrong = "the reward returned 4 outcomes for a group of 3 completions";
    assert_eq!((failure(0).as_deref(), failure(1)), (Some(wrong), None));
}

/// A reward that panics for every batch.
struct Panics;

impl Reward for Panics {
    fn score(&self, _: &[RewardInput]) -> Vec<Outcome> {
        panic!("boom")
    }

    fn parts(&self) -> Vec<PartName> {
        Vec::new()
    }
}

/// Texts of one character are invalid.
fn identities(texts: &[&str]) -> Vec<Identity> {
    let identity = |text: &&str| match text.len() {
        1 => Identity::Invalid,
        _ => Identity::Canonical((*text).to_owned()),
    };
    texts.iter().map(identity).collect()
}

#[test]
fn the_validity_of_a_batch_that_fails_as_a_whole_is_known() {
    let mut groups = groups(&LENGTHS);
    let runner = runner(IdentifiedReward::wrap(Arc::new(Panics), identities));
    runner.score_groups(&mut groups, None, &|ids| "x".repeat(ids.len())).unwrap();
    for sample in groups.iter().flat_map(|group| &group.samples) {
        let outcome = sample.outcome.as_ref().unwrap();
        assert!(outcome.failure().is_some_and(|reason| reason.contains("boom")), "{outcome:?}");
        let valid = f64::from(u8::from(sample.text.len() > 1));
        assert_eq!(outcome.part("valid"), Some(valid), "{outcome:?}");
    }
}
