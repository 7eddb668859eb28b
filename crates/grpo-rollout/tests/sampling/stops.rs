//! Tests stop rules, which end completions in addition to end ids and the length limit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use grpo_data::{Completion, Finish, Group, SampleKey};
use grpo_model::Frozen;
use grpo_rollout::{Autoregressive, Decode, Engine, RolloutError, RolloutSettings, StopRule};

use crate::support::{
    END, KEY, completions, distribution, forbidding, in_pool, model, prompts, sample, settings,
};

/// Ends completions after the number of tokens returned by the function.
struct Length<F>(F);

impl<F: Fn(&SampleKey) -> usize + Send + Sync> StopRule for Length<F> {
    fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
        completion.len() == (self.0)(key)
    }
}

/// Ends completions at this id.
struct Id(u32);

impl StopRule for Id {
    fn ends(&self, completion: &[u32], _key: &SampleKey) -> bool {
        completion.last() == Some(&self.0)
    }
}

fn stopped(settings: RolloutSettings, rule: impl StopRule + 'static) -> Vec<Group> {
    let model = model();
    let rollout = Autoregressive::new(settings, &model, 4).unwrap().stopping(rule);
    rollout.sample(&Frozen::snapshot(&model), &prompts(), KEY).unwrap()
}

/// Creates settings without end ids in which END is never sampled.
fn endless() -> RolloutSettings {
    let distribution = distribution(&forbidding(&[END]));
    RolloutSettings { end_ids: vec![], distribution, ..settings() }
}

#[test]
fn a_rule_by_sample_gives_ragged_lengths() {
    let length = |key: &SampleKey| 1 + (key.sample * 5 + key.prompt * 3) as usize % 11;
    for (batch_size, threads) in [(64, 1), (64, 3), (7, 2), (2, 1), (1, 1)] {
        let settings = RolloutSettings { batch_size, ..endless() };
        let groups = in_pool(threads, || stopped(settings, Length(length)));
        let full = in_pool(threads, || stopped(endless(), Length(|_: &SampleKey| 12)));
        for (completion, full) in completions(&groups).zip(completions(&full)) {
            let n = length(&completion.key());
            assert_eq!((completion.actions(), completion.finish()), (n, Finish::Stop));
            // The completion must be a prefix of the one sampled without the rule.
            assert_eq!(completion.key(), full.key());
            assert!(full.ids().starts_with(completion.ids()));
            assert!(
                full.sampling_logprobs()
                    .unwrap()
                    .starts_with(completion.sampling_logprobs().unwrap())
            );
        }
        assert_eq!(completions(&groups).count(), 54);
    }
}

#[test]
fn an_end_id_comes_before_a_rule_and_a_rule_before_the_limit() {
    let finishes = |settings, rule: Box<dyn StopRule>| {
        struct Boxed(Box<dyn StopRule>);
        impl StopRule for Boxed {
            fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
                self.0.ends(completion, key)
            }
        }
        let groups = stopped(settings, Boxed(rule));
        completions(&groups).map(|c| (c.finish(), c.actions(), c.ids().last().copied())).collect()
    };
    // The rule and the end id apply to the same token.
    let both: Vec<_> = finishes(settings(), Box::new(Id(END)));
    assert!(both.iter().any(|(finish, ..)| *finish == Finish::EndToken));
    assert!(both.iter().all(|(finish, ..)| *finish != Finish::Stop));
    // The rule and the limit apply to the same token.
    let last: Vec<_> = finishes(endless(), Box::new(Length(|_: &SampleKey| 12)));
    assert!(last.iter().all(|(finish, length, _)| (*finish, *length) == (Finish::Stop, 12)));
    // If the rule never applies, the limit does.
    let never: Vec<_> = finishes(endless(), Box::new(Length(|_: &SampleKey| 13)));
    assert!(never.iter().all(|(finish, length, _)| (*finish, *length) == (Finish::Length, 12)));
    // All three reasons occur, each with the expected last token or length.
    let all: Vec<_> = finishes(settings(), Box::new(Id(8)));
    for (finish, length, last) in &all {
        let expected = match *last {
            Some(END) => Finish::EndToken,
            Some(8) => Finish::Stop,
            _ => Finish::Length,
        };
        assert_eq!(*finish, expected);
        assert!(expected != Finish::Length || *length == 12);
    }
    let of = |wanted| all.iter().filter(|(finish, ..)| *finish == wanted).count();
    assert!([Finish::EndToken, Finish::Stop, Finish::Length].into_iter().all(|f| of(f) > 0));
}

/// Arguments that a rule was called with.
type Asked = (SampleKey, Vec<u32>);

/// A rule receives the completion without the prompt but including the latest token.
#[test]
fn a_rule_sees_the_completion_with_its_newest_token() {
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<Asked>>>);
    impl StopRule for Seen {
        fn ends(&self, completion: &[u32], key: &SampleKey) -> bool {
            self.0.lock().unwrap().push((*key, completion.to_vec()));
            completion.len() == 5
        }
    }
    let seen = Seen::default();
    let groups = stopped(endless(), seen.clone());
    let mut expected = Vec::new();
    for completion in completions(&groups) {
        let ids: Vec<u32> = completion.action_ids().collect();
        expected.extend((1..=5).map(|n| (completion.key(), ids[..n].to_vec())));
    }
    let mut seen = seen.0.lock().unwrap().clone();
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

/// A stopped completion is a prefix of the original completion, bit for bit.
#[test]
fn stop_strings_end_completions_and_change_nothing_else() {
    let model = model();
    let letter = |id: &u32| char::from(b'a' + *id as u8);
    let decode: Decode = Arc::new(move |ids| ids.iter().map(letter).collect());
    let plain = sample(settings(), &prompts(), KEY);
    let text = |completion: &Completion| decode(&completion.action_ids().collect::<Vec<u32>>());
    // A substring of one of the completions.
    let long = completions(&plain).map(text).find(|text| text.len() > 8).unwrap();
    let strings = [long[4..6].to_owned(), "zz".to_owned(), "d".to_owned()];
    let rollout = Autoregressive::new(settings(), &model, 4).unwrap();
    let rollout = rollout.stopping_at(&strings, &decode).unwrap();
    let stopped = rollout.sample(&Frozen::snapshot(&model), &prompts(), KEY).unwrap();
    let mut finishes = BTreeSet::new();
    for (stopped, plain) in completions(&stopped).zip(completions(&plain)) {
        let whole = text(plain);
        let ends = strings.iter().filter_map(|string| Some(whole.find(string)? + string.len()));
        let length = ends.min().unwrap_or(whole.len());
        assert_eq!(text(stopped), whole[..length], "of {whole}");
        assert_eq!(
            stopped.sampling_logprobs().unwrap(),
            &plain.sampling_logprobs().unwrap()[..length]
        );
        let is_end = stopped.ids().last() == Some(&END);
        let finish = if length < whole.len() { Finish::Stop } else { stopped.finish() };
        assert_eq!((stopped.finish(), is_end), (finish, finish == Finish::EndToken));
        finishes.insert(format!("{finish:?}"));
    }
    assert_eq!(finishes.len(), 3, "all three ends are needed: {finishes:?}");
    let error = Autoregressive::new(settings(), &model, 4).unwrap();
    let error = error.stopping_at(&[String::new()], &decode).unwrap_err();
    assert!(matches!(error, RolloutError::EmptyStop));
}
