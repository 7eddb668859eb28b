//! Completions, their log-probabilities and the adapters that sampled them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use grpo_data::{Completion, Finish, Group, Prompt};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, score_completions};
use grpo_rollout::{
    Autoregressive, Decode, Engine, Episode, EpisodeFactory, Next, RolloutError, RolloutSettings,
    StepKey,
};
use serde_json::json;

use super::fake::{Fake, Kind};
use super::support::{END, KEY, Setup, base, engine, fake, letter, policy, prompts};
use crate::server::Reply;

/// The largest difference between log-probabilities in nats.
fn difference(policy: &Frozen<grpo_model::Policy>, groups: &[Group], temperature: f32) -> f64 {
    let completions: Vec<_> = groups.iter().flat_map(Group::completions).collect();
    let mut largest = 0.0_f64;
    for completion in completions {
        let actions: Vec<u32> = completion.action_ids().collect();
        let prompt = &completion.ids()[..completion.ids().len() - actions.len()];
        let own = &score_completions(policy, &[(prompt, &actions)], temperature)[0].logprobs;
        for (own, theirs) in own.iter().zip(completion.sampling_logprobs().unwrap()) {
            largest = largest.max((own - f64::from(*theirs)).abs());
        }
    }
    largest
}

#[test]
fn completions_of_the_adapter_with_its_log_probabilities() {
    let base = base(1);
    let policy = policy(&base, 1);
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let engine = setup.engine_with(&policy, |request| request.sampling.forbidden.clear()).unwrap();
    let frozen = Frozen::snapshot(&policy);
    let groups = engine.sample(&frozen, &prompts(20), KEY).unwrap();
    assert_eq!(groups.len(), 20);
    assert!(difference(&frozen, &groups, 0.7) < 1e-4);
    let other = Frozen::snapshot(&super::support::policy(&base, 2));
    assert!(difference(&other, &groups, 0.7) > 0.1, "the adapter has an effect");
    for (index, group) in groups.iter().enumerate() {
        assert_eq!(group.prompt, prompts(20)[index]);
        let completions: Vec<_> = group.completions().collect();
        assert_eq!(completions.len(), 4);
        for (sample, completion) in completions.iter().enumerate() {
            let key = completion.key();
            let place = (key.seed, key.step, key.prompt as usize, key.sample as usize);
            assert_eq!(place, (7, 3, index, sample));
            assert_eq!(completion.policy_version(), 5);
            let ids: Vec<u32> = completion.action_ids().collect();
            let at_end = ids.iter().position(|id| *id == END);
            match completion.finish() {
                Finish::EndToken => assert_eq!(at_end, Some(ids.len() - 1)),
                Finish::Length => assert_eq!((at_end, ids.len()), (None, 6)),
                finish => panic!("{finish:?}"),
            }
        }
    }
    let finishes: BTreeSet<String> = groups
        .iter()
        .flat_map(Group::completions)
        .map(|completion| format!("{:?}", completion.finish()))
        .collect();
    assert_eq!(finishes.len(), 2, "both ends occur");
    // Requests of a step have different seeds, and the same ones when it is repeated.
    let seeds = |fake: &Fake| -> Vec<u64> {
        let bodies = fake.bodies("/v1/completions").into_iter();
        let mut seeds: Vec<u64> = bodies.filter_map(|body| body["seed"].as_u64()).collect();
        seeds.sort_unstable();
        seeds
    };
    let first = seeds(&fake);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(engine.sample(&frozen, &prompts(20), KEY).unwrap(), groups);
    assert_eq!(seeds(&fake).len(), 40);
    assert_eq!(seeds(&fake).iter().collect::<BTreeSet<_>>().len(), 20);
    let next = StepKey { step: 4, ..KEY };
    assert_ne!(engine.sample(&frozen, &prompts(20), next).unwrap(), groups);
    assert_eq!(seeds(&fake).iter().collect::<BTreeSet<_>>().len(), 40);
}

#[test]
fn forbidden_ids_have_a_bias() {
    let base = base(1);
    let policy = policy(&base, 1);
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let groups =
        setup.engine(&policy).sample(&Frozen::snapshot(&policy), &prompts(2), KEY).unwrap();
    assert_eq!(groups[0].samples[0].completion.sampled_under().forbidden, [5]);
    let bodies = fake.bodies("/v1/completions");
    // The first requests compare log-probabilities.
    assert_eq!(bodies.last().unwrap()["logit_bias"], json!({"5": -100.0}));
    assert_eq!(bodies[0]["logit_bias"], json!(null));
}

/// A server may decode differently, so completions end where the local engine ends them.
#[test]
fn stop_strings_end_completions() {
    let base = base(1);
    let policy = policy(&base, 1);
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let engine = setup.engine_with(&policy, |request| request.stop = vec!["j".to_owned()]).unwrap();
    let groups = engine.sample(&Frozen::snapshot(&policy), &prompts(20), KEY).unwrap();
    let mut ended = 0;
    for completion in groups.iter().flat_map(Group::completions) {
        let text: String = completion.action_ids().map(letter).collect();
        let is_stop = completion.finish() == Finish::Stop;
        assert_eq!(text.find('j'), is_stop.then(|| text.len() - 1), "{text}");
        assert_eq!(completion.sampling_logprobs().unwrap().len(), text.len());
        ended += usize::from(is_stop);
    }
    assert!(ended > 0);
    assert_eq!(fake.bodies("/v1/completions").last().unwrap()["stop"], json!(["j"]));
}

/// Adapters have the names of their weights, so a server never uses one for another.
#[test]
fn each_policy_has_its_own_adapter_and_old_ones_are_removed() {
    let base = base(1);
    let policies: Vec<_> = (1..=4).map(|seed| policy(&base, seed)).collect();
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let engine = setup.engine(&policies[0]);
    let name = |index: usize| {
        let digest = Frozen::snapshot(&policies[index]).digest().to_string();
        let folder = setup.folder.path().file_name().unwrap().to_str().unwrap();
        format!("{folder}-{}", &digest[..16])
    };
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let sample = |index: usize| {
        let step = StepKey { policy_version: index as u64, ..KEY };
        engine.sample(&Frozen::snapshot(&policies[index]), &prompts(1), step).unwrap();
        assert_eq!(fake.bodies("/v1/completions").last().unwrap()["model"], json!(name(index)));
    };
    sample(0);
    assert_eq!((fake.adapters(), setup.folders()), (vec![name(0)], vec![name(0)]));
    sample(1);
    assert_eq!(fake.adapters(), sorted(vec![name(0), name(1)]));
    sample(2);
    assert_eq!(fake.adapters(), sorted(vec![name(1), name(2)]));
    assert_eq!(setup.folders(), sorted(vec![name(1), name(2)]));
    // Evaluations use the latest policy again.
    let loads = fake.bodies("/v1/load_lora_adapter").len();
    sample(2);
    assert_eq!(fake.bodies("/v1/load_lora_adapter").len(), loads);
    sample(3);
    let Setup { folder, servers, .. } = setup;
    drop((engine, servers));
    assert_eq!(fake.adapters(), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupt_ends_sampling_without_waiting_for_the_server() {
    let base = base(1);
    let policy = policy(&base, 1);
    let slow = |_: usize, received: &crate::server::Received| {
        // Not the requests that compare log-probabilities.
        let is_slow = received.body["n"] == json!(4);
        is_slow.then(|| Reply::Slow(Duration::from_secs(60), String::new()))
    };
    let fake = Fake::start(Kind { hook: Box::new(slow), ..Kind::of(&base) });
    let setup = Setup::with(&[&fake], |config| config.time_limit = 120.0);
    let flag = Arc::new(AtomicBool::new(false));
    let engine = setup.engine(&policy).interrupted_by(Arc::clone(&flag));
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while fake.bodies("/v1/completions").iter().all(|body| body["n"] != json!(4)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            flag.store(true, Ordering::Relaxed);
        });
        let sampled = engine.sample(&Frozen::snapshot(&policy), &prompts(3), KEY);
        assert!(matches!(sampled, Err(RolloutError::Interrupted)), "{sampled:?}");
    });
    assert!(started.elapsed() < Duration::from_secs(50));
    // Requests that are still waiting for a reply do not keep the adapters.
    let again = engine.again(&Frozen::snapshot(&policy), &prompts(1)[0], 0, KEY);
    let expected = "completions of vLLM servers cannot be sampled again bit for bit";
    assert_eq!(again.unwrap_err().to_string(), expected);
    let Setup { folder, servers, .. } = setup;
    drop((engine, servers));
    assert_eq!(fake.adapters(), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// An evaluation may need other adapters while a rollout is being sampled on another thread.
#[test]
fn an_adapter_is_kept_as_long_as_it_samples() {
    let base = base(1);
    let policies: Vec<_> = (1..=4).map(|seed| policy(&base, seed)).collect();
    let (is_held, held) = (Arc::new(AtomicBool::new(true)), AtomicBool::new(false));
    let of_server = Arc::clone(&is_held);
    let hook = move |_: usize, received: &crate::server::Received| {
        // The first group.
        if received.body["n"] == json!(4) && !held.swap(true, Ordering::Relaxed) {
            while of_server.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        None
    };
    let fake = Fake::start(Kind { hook: Box::new(hook), ..Kind::of(&base) });
    let setup = Setup::new(&[&fake]);
    let engine = setup.engine(&policies[0]);
    let sample = |index: usize| {
        engine.sample(&Frozen::snapshot(&policies[index]), &prompts(1), KEY).unwrap()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| sample(0));
        while fake.bodies("/v1/completions").iter().all(|body| body["n"] != json!(4)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        (1..=3).for_each(|index| drop(sample(index)));
        assert_eq!(fake.adapters().len(), 3);
        is_held.store(false, Ordering::Relaxed);
        assert_eq!(first.join().unwrap().len(), 1);
    });
    drop(sample(3));
    assert_eq!(fake.adapters().len(), 2);
}

/// With the same distribution, the mean length and the share of each first token are those of the local
/// engine within six standard errors.
#[test]
fn the_distribution_is_that_of_the_local_engine() {
    let base = base(1);
    let policy = policy(&base, 1);
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let count = 400;
    let engine = engine(&setup.factory(), &policy, |request| request.group_size = count).unwrap();
    let frozen = Frozen::snapshot(&policy);
    let sampling = SamplingSettings { temperature: 0.7, forbidden: vec![5], ..Default::default() };
    let settings = RolloutSettings {
        group_size: count,
        max_new_tokens: 6,
        end_ids: vec![END],
        distribution: sampling.checked(24).unwrap(),
        batch_size: count,
    };
    let local = Autoregressive::new(settings, &policy, 4).unwrap();
    let decode: Decode = Arc::new(|_| String::new());
    let local = local.stopping_at(&[], &decode).unwrap();
    let measures = |groups: Vec<Group>| {
        let mut first = vec![0.0; 24];
        let mut length = 0.0;
        for completion in groups[0].completions() {
            first[completion.action_ids().next().unwrap() as usize] += 1.0 / count as f64;
            length += completion.actions() as f64 / count as f64;
        }
        (first, length)
    };
    let (first, length) = measures(engine.sample(&frozen, &prompts(1), KEY).unwrap());
    let (first_here, length_here) = measures(local.sample(&frozen, &prompts(1), KEY).unwrap());
    assert_ne!((&first, length), (&first_here, length_here), "the random numbers differ");
    assert!((length - length_here).abs() < 6.0 * 6.0 / (2.0 * count as f64).sqrt());
    for (share, share_here) in first.iter().zip(first_here) {
        let error = (2.0 * share_here.max(1.0 / count as f64) / count as f64).sqrt();
        assert!((share - share_here).abs() < 6.0 * error, "{share} {share_here}");
    }
}

/// Shows two ids after the first turn.
#[derive(Debug)]
struct Shows;

impl Episode for Shows {
    fn max_turns(&self) -> usize {
        2
    }

    fn max_observation(&self) -> usize {
        2
    }

    fn next(&self, _: &Prompt, _: &Completion, _: usize) -> Result<Next, RolloutError> {
        Ok(Next::Observe(vec![7, 8]))
    }
}

/// Further turns continue what was shown, and each has a seed of its own.
#[test]
fn episodes_of_two_turns() {
    let base = base(1);
    let fake = fake(&base);
    let (setup, adapted) = (Setup::new(&[&fake]), policy(&base, 1));
    let factory = EpisodeFactory::new(Arc::new(setup.factory()), Arc::new(Shows));
    let engine = engine(&factory, &adapted, |_| {}).unwrap();
    let groups = engine.sample(&Frozen::snapshot(&adapted), &prompts(2), KEY).unwrap();
    let completions: Vec<&Completion> = groups.iter().flat_map(Group::completions).collect();
    assert_eq!(completions.len(), 8);
    for completion in &completions {
        let tokens = completion.ids().iter().zip(completion.action_mask()).skip(3);
        let tokens: Vec<(u32, bool)> = tokens.map(|(&id, &action)| (id, action)).collect();
        let runs: Vec<&[(u32, bool)]> = tokens.chunk_by(|a, b| a.1 == b.1).collect();
        assert_eq!((runs.len(), runs[1]), (3, &[(7, false), (8, false)][..]));
        assert_eq!(completion.sampling_logprobs().unwrap().len(), completion.actions());
    }
    let bodies = fake.bodies("/v1/completions");
    let of_turns = bodies.iter().filter(|body| body["n"] == json!(1) && body["seed"].is_u64());
    let seeds: BTreeSet<u64> =
        of_turns.clone().map(|body| body["seed"].as_u64().unwrap()).collect();
    assert_eq!((of_turns.count(), seeds.len()), (8, 8));
}
