//! Tests for the cache, invalid completions, and what replies say about single completions.

use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{build, file, python, refusal, score, totals};
use crate::{ExternalCalls, Identity, Outcome, Reward, RewardInput};

/// Returns inputs of which those with `!` are invalid, and the others are equivalent if they have
/// the same letters.
fn inputs(texts: &[&str]) -> Vec<RewardInput> {
    let input = |(sample, text): (u32, &&str)| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        let canonical = Identity::Canonical(letters.into_iter().collect());
        let identity = if text.contains('!') { Identity::Invalid } else { canonical };
        RewardInput { identity, sample, group: 4, ..(*text).into() }
    };
    (0..).zip(texts).map(input).collect()
}

/// Remembers how often it was called. Returns the number of the call.
const COUNTS: &str = "n = 0\ndef reward(completion):\n    global n\n    n += 1\n    return n\n";

fn hits(reward: &dyn Reward) -> usize {
    reward.take_calls().unwrap().cache_hits
}

#[test]
fn equal_completions_are_scored_once_with_a_cache() {
    for (cache, expected, found) in
        [(true, [1.0, 2.0, 1.0, 1.0, 2.0, 1.0], 4), (false, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0)]
    {
        let (_folder, reward) = python(COUNTS, json!({"cache": cache}));
        let mut got = totals(&score(&*reward, &["a", "b", "a"]));
        got.extend(totals(&score(&*reward, &["a", "b", "a"])));
        assert_eq!(got, expected.map(Some));
        assert_eq!(hits(&*reward), found);
    }
}

#[test]
fn equivalent_completions_are_scored_once_by_default() {
    for (more, expected, found) in [
        (json!({}), [1.0, 1.0, 2.0], 1),
        (json!({"cache": false}), [1.0, 2.0, 3.0], 0),
        (json!({"deterministic": false}), [1.0, 2.0, 3.0], 0),
    ] {
        let (_folder, reward) = python(COUNTS, more);
        let outcomes = reward.score(&inputs(&["ba", "ab", "cb"]));
        assert_eq!(totals(&outcomes), expected.map(Some));
        assert_eq!(hits(&*reward), found);
    }
    let (_folder, reward) = python(COUNTS, json!({}));
    assert_eq!(totals(&score(&*reward, &["a", "a"])), [1.0, 2.0].map(Some), "no identity");
}

/// A reward that depends on the spelling, if it is only in the last bit, must not depend on which
/// spelling came first.
#[test]
fn the_cache_applies_to_the_canonical_form() {
    let code = "def reward(completion):\n    return float(ord(completion[0]))\n";
    let (_folder, reward) = python(code, json!({}));
    let a = Some(f64::from(b'a'));
    assert_eq!(totals(&reward.score(&inputs(&["ba", "ab"]))), [a, a]);
    let (_folder, spelling) = python(code, json!({"cache": false}));
    assert_eq!(totals(&spelling.score(&inputs(&["ba", "ab"]))), [Some(f64::from(b'b')), a]);
}

#[test]
fn failures_are_not_cached() {
    let code = "n = 0\ndef reward(completion):\n    global n\n    n += 1\n    return 1 / (n - 1)\n";
    let (_folder, reward) = python(code, json!({}));
    let first = reward.score(&inputs(&["a"]));
    assert!(first[0].failure().unwrap().contains("ZeroDivisionError"), "{first:?}");
    assert_eq!(totals(&reward.score(&inputs(&["a"]))), [Some(1.0)]);
}

#[test]
fn invalid_completions_are_sent_if_configured() {
    let code = "def reward(completion):\n    return len(completion)\n";
    for (more, expected) in [
        (json!({}), 0.0),
        (json!({"invalid": -15}), -15.0),
        (json!({"invalid": -1.5}), -1.5),
        (json!({"invalid": "send"}), 3.0),
    ] {
        let (_folder, reward) = python(code, more);
        let outcomes = reward.score(&inputs(&["ab", "ab!"]));
        assert_eq!(totals(&outcomes), [Some(2.0), Some(expected)]);
    }
    let two = "def a(completion): return 1\ndef b(completion): return 2\n";
    let more = json!({"function": ["a", "b"], "weights": [1.0, 0.5], "invalid": -1});
    let (_folder, reward) = python(two, more);
    let outcomes = reward.score(&inputs(&["x", "!"]));
    assert_eq!(totals(&outcomes), [Some(2.0), Some(-1.5)]);
    assert_eq!([0, 1].map(|index| outcomes[index].part("a")), [Some(1.0), None]);
    let folder = tempfile::tempdir().unwrap();
    for invalid in [json!("drop"), json!(true)] {
        let path = file(&folder, "my_reward.py", code);
        let reason = refusal(json!({"type": "python", "file": path, "invalid": invalid}));
        assert_eq!(reason, "reward.invalid must be a number or \"send\"");
    }
}

/// Creates a reward of type `command` whose program adds `reply` to its replies.
fn replying(reply: &Value) -> (TempDir, Arc<dyn Reward>) {
    let folder = tempfile::tempdir().unwrap();
    let code = format!(
        "import json, sys\nfor line in sys.stdin:\n    r = json.loads(line)\n    reply = json.loads({:?})\n    print(json.dumps(dict(reply, id=r['id'], rewards=[1] * len(r['items']))), flush=True)\n",
        reply.to_string()
    );
    let script = file(&folder, "score.py", &code);
    let reward = build(json!({"type": "command", "command": ["python3", script]}));
    (folder, reward)
}

fn calls(reply: &Value) -> (Vec<Outcome>, ExternalCalls) {
    let (_folder, reward) = replying(reply);
    let outcomes = reward.score(&inputs(&["a", "b"]));
    (outcomes, reward.take_calls().unwrap())
}

#[test]
fn info_belongs_to_a_completion() {
    let (_, said) = calls(&json!({"info": ["pose 3", {"rmsd": 1.5}]}));
    let expected = [((4, 0), "pose 3".to_owned()), ((4, 1), "{\"rmsd\":1.5}".to_owned())];
    assert_eq!(said.info, expected);
    assert_eq!(calls(&json!({"info": [null, "x"]})).1.info, [((4, 1), "x".to_owned())]);
    assert_eq!(calls(&json!({"info": "about all"})).1.info, []);
    let long = calls(&json!({"info": ["é".repeat(5000), null]})).1.info.remove(0).1;
    assert_eq!(long.chars().count(), 4097);
    let (_folder, reward) = replying(&json!({"info": ["kept"]}));
    let of = |text: &str| {
        reward.score(&inputs(&[text]));
        reward.take_calls().unwrap()
    };
    assert_eq!(of("ab").info, of("ba").info, "the cache keeps it");
    assert_eq!(of("ab").cache_hits, 1);
}

#[test]
fn times_are_those_of_the_reply_or_a_share_of_the_request() {
    let (_, told) = calls(&json!({"seconds": [0.5, 7.25]}));
    assert_eq!(told.slowest().map(|item| (item.seconds, item.sample)), Some((7.25, 1)));
    let (_, shared) = calls(&json!({}));
    let seconds: Vec<f64> = shared.times.iter().map(|item| item.seconds).collect();
    assert!(seconds.len() == 2 && seconds[0] == seconds[1] && seconds[0] > 0.0, "{seconds:?}");
    let (outcomes, _) = calls(&json!({"seconds": [1.0]}));
    let reason = outcomes[0].failure().unwrap();
    assert!(reason.contains("'seconds' has 1 entries for 2 completions"), "{reason}");
    let code = "import time\ndef reward(completion):\n    time.sleep(0.2 if completion == 'b' else 0)\n    return 1\n";
    let (_folder, reward) = python(code, json!({}));
    reward.score(&inputs(&["a", "b", "c"]));
    let slowest = reward.take_calls().unwrap().slowest().unwrap();
    assert!(slowest.sample == 1 && slowest.seconds >= 0.2, "{slowest:?}");
    assert_eq!(reward.take_calls(), Some(ExternalCalls::default()), "calls are reported once");
}
