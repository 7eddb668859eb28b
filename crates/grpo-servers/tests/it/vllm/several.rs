//! Several servers, some of which fail or restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use grpo_data::Group;
use grpo_model::Frozen;
use serde_json::json;

use super::fake::{Fake, Kind};
use super::support::{KEY, Setup, base, fake, policy, prompts};
use crate::server::{Received, Reply};

/// Number of requests for groups.
fn groups_sent(fake: &Fake) -> usize {
    fake.bodies("/v1/completions").iter().filter(|body| body["n"] == json!(4)).count()
}

/// A server that closes all connections while `is_down` is set.
fn unreliable(base: &grpo_model::Transformer, is_down: &Arc<AtomicBool>) -> Fake {
    let is_down = Arc::clone(is_down);
    let hook =
        move |_: usize, _: &Received| is_down.load(Ordering::Relaxed).then_some(Reply::Closed);
    Fake::start(Kind { hook: Box::new(hook), ..Kind::of(base) })
}

#[test]
fn groups_are_distributed_and_the_result_does_not_depend_on_it() {
    let base = base(1);
    let policy = policy(&base, 1);
    let frozen = Frozen::snapshot(&policy);
    let [a, b] = [fake(&base), fake(&base)];
    let setup = Setup::with(&[&a, &b], |config| config.parallel = 2);
    let groups = setup.engine(&policy).sample(&frozen, &prompts(12), KEY).unwrap();
    assert_eq!(groups_sent(&a) + groups_sent(&b), 12);
    assert!(groups_sent(&a) > 0 && groups_sent(&b) > 0);
    let alone = Setup::new(&[&a]);
    assert_eq!(alone.engine(&policy).sample(&frozen, &prompts(12), KEY).unwrap(), groups);
}

#[test]
fn a_server_that_fails_is_left_out_and_used_again_later() {
    let base = base(1);
    let policy = policy(&base, 1);
    let frozen = Frozen::snapshot(&policy);
    let is_down = Arc::new(AtomicBool::new(false));
    let [a, b] = [fake(&base), unreliable(&base, &is_down)];
    let setup = Setup::new(&[&a, &b]);
    let engine = setup.engine(&policy);
    let expected = engine.sample(&frozen, &prompts(8), KEY).unwrap();
    is_down.store(true, Ordering::Relaxed);
    assert_eq!(engine.sample(&frozen, &prompts(8), KEY).unwrap(), expected);
    let url = &b.server.url;
    let left_out = format!(
        "the vLLM server {url}/v1 is left out: {url}/v1/completions: the connection was closed before the end of the reply (1 attempt); check the server's log and any proxy in front of it"
    );
    assert_eq!(*setup.messages.lock().unwrap(), [left_out]);
    // It is not asked for completions as long as it does not answer.
    let before = groups_sent(&b);
    assert_eq!(engine.sample(&frozen, &prompts(8), KEY).unwrap(), expected);
    assert_eq!(groups_sent(&b), before);
    is_down.store(false, Ordering::Relaxed);
    b.restart();
    assert_eq!(engine.sample(&frozen, &prompts(8), KEY).unwrap(), expected);
    assert_eq!(
        setup.messages.lock().unwrap()[1],
        format!("the vLLM server {url}/v1 is used again")
    );
    assert!(groups_sent(&b) > before);
}

/// Without its adapters, a server answers 404.
#[test]
fn a_server_that_was_restarted_gets_its_adapter_again() {
    let base = base(1);
    let policy = policy(&base, 1);
    let frozen = Frozen::snapshot(&policy);
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let engine = setup.engine(&policy);
    let expected = engine.sample(&frozen, &prompts(8), KEY).unwrap();
    fake.restart();
    assert_eq!(engine.sample(&frozen, &prompts(8), KEY).unwrap(), expected);
    assert_eq!(fake.bodies("/v1/load_lora_adapter").len(), 2);
    assert!(setup.messages.lock().unwrap().is_empty());
}

/// A server that can be reached but never samples.
#[test]
fn a_server_that_never_answers_ends_sampling_after_the_time_limit() {
    let base = base(1);
    let policy = policy(&base, 1);
    for (status, expect) in [(404, "status 404"), (500, "status 500"), (503, "status 503")] {
        let hook = move |_: usize, received: &Received| {
            (received.body["n"] == json!(4)).then(|| Reply::status(status))
        };
        let fake = Fake::start(Kind { hook: Box::new(hook), ..Kind::of(&base) });
        let setup = Setup::with(&[&fake], |config| config.time_limit = 4.0);
        let engine = setup.engine(&policy);
        let error = engine.sample(&Frozen::snapshot(&policy), &prompts(3), KEY).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("no vLLM server could be used for 4 s ("), "{error}");
        assert!(error.contains(expect), "{error}");
    }
}

/// One of two servers is not there when the run starts.
#[test]
fn a_run_starts_without_a_server_that_does_not_answer() {
    let base = base(1);
    let policy = policy(&base, 1);
    let is_down = Arc::new(AtomicBool::new(true));
    let [a, b] = [fake(&base), unreliable(&base, &is_down)];
    let setup = Setup::new(&[&a, &b]);
    let engine = setup.engine(&policy);
    engine.sample(&Frozen::snapshot(&policy), &prompts(4), KEY).unwrap();
    assert!(setup.messages.lock().unwrap()[0].contains("is left out: "));
    is_down.store(false, Ordering::Relaxed);
    engine.sample(&Frozen::snapshot(&policy), &prompts(4), KEY).unwrap();
    assert!(groups_sent(&b) > 0);
}

/// A server that comes back with another model is not used.
#[test]
fn a_server_is_checked_again_when_it_comes_back() {
    let base = base(1);
    let policy = policy(&base, 1);
    let frozen = Frozen::snapshot(&policy);
    let is_down = Arc::new(AtomicBool::new(false));
    let [a, b] = [fake(&base), unreliable(&base, &is_down)];
    let setup = Setup::new(&[&a, &b]);
    let engine = setup.engine(&policy);
    is_down.store(true, Ordering::Relaxed);
    engine.sample(&frozen, &prompts(8), KEY).unwrap();
    b.become_raw();
    is_down.store(false, Ordering::Relaxed);
    let before = groups_sent(&b);
    engine.sample(&frozen, &prompts(8), KEY).unwrap();
    assert_eq!(groups_sent(&b), before);
}

#[test]
fn a_run_waits_for_a_server_up_to_the_time_limit() {
    let base = base(1);
    let policy = policy(&base, 1);
    let frozen = Frozen::snapshot(&policy);
    let is_down = Arc::new(AtomicBool::new(false));
    let fake = unreliable(&base, &is_down);
    let setup = Setup::with(&[&fake], |config| config.time_limit = 6.0);
    let engine = setup.engine(&policy);
    let expected = engine.sample(&frozen, &prompts(4), KEY).unwrap();
    is_down.store(true, Ordering::Relaxed);
    let groups: Vec<Group> = thread::scope(|scope| {
        scope.spawn(|| {
            while setup.messages.lock().unwrap().len() < 2 {
                thread::sleep(Duration::from_millis(10));
            }
            is_down.store(false, Ordering::Relaxed);
        });
        engine.sample(&frozen, &prompts(4), KEY).unwrap()
    });
    assert_eq!(groups, expected);
    let messages = setup.messages.lock().unwrap().clone();
    assert_eq!(messages[1], "all vLLM servers are unavailable; waiting for one");
    assert!(messages[2].ends_with("is used again"), "{messages:?}");
    is_down.store(true, Ordering::Relaxed);
    let error = engine.sample(&frozen, &prompts(4), KEY).unwrap_err().to_string();
    let start = "no vLLM server could be used for 6 s (http://127.0.0.1:";
    assert!(error.starts_with(start), "{error}");
    assert!(error.ends_with("; restart a server and resume the run"), "{error}");
}

/// A returning server is scored in the pool, whose only thread is the one that samples.
#[test]
fn a_pool_with_one_thread_checks_a_server_that_comes_back() {
    let base = base(1);
    let policy = policy(&base, 1);
    let is_down = Arc::new(AtomicBool::new(false));
    let [a, b] = [fake(&base), unreliable(&base, &is_down)];
    let setup = Setup::new(&[&a, &b]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let engine = setup.engine(&policy);
        let sample =
            || engine.sample(&Frozen::snapshot(&policy), &prompts(8), KEY).map(drop).unwrap();
        is_down.store(true, Ordering::Relaxed);
        sample();
        is_down.store(false, Ordering::Relaxed);
        let before = groups_sent(&b);
        sample();
        assert!(groups_sent(&b) > before);
    });
}
