//! `grpo train` with completions of vLLM servers, which run in this process.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Device;
use grpo_model::{Families, ModelFolder};
use serde_json::json;
use snapbox::str;

use crate::fake_vllm::{Fake, Kind};
use crate::server::{Received, Reply};
use crate::support::{Ended, Place};
use crate::texts::{CONTEXT, objects};
use crate::training_texts::{TRAIN, place};

/// Number of completions per prompt.
const GROUP: usize = 16;

/// Starts a server with the model `m` that closes all connections after `most` groups.
fn server(place: &Place, most: usize) -> Fake {
    let base =
        ModelFolder::load_model(&place.path("m"), &Families::default(), &Device::flex()).unwrap();
    let groups = AtomicUsize::new(0);
    let hook = move |_: usize, received: &Received| {
        let is_group = received.body["n"] == json!(GROUP);
        let groups = groups.fetch_add(usize::from(is_group), Ordering::Relaxed);
        (groups >= most).then_some(Reply::Closed)
    };
    Fake::start(Kind { longest: CONTEXT, hook: Box::new(hook), ..Kind::of(&base) })
}

fn train(place: &Place, run: &str, sets: &[String]) -> Ended {
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let all: Vec<&str> = ["train", "train.toml", "--run", run].into_iter().chain(sets).collect();
    place.succeed(&all)
}

fn on(servers: &[&Fake]) -> Vec<String> {
    let urls: Vec<String> = servers.iter().map(|fake| format!("\"{}\"", fake.server.url)).collect();
    vec!["rollout.engine=vllm".to_owned(), format!("rollout.url=[{}]", urls.join(", "))]
}

/// Twenty steps on two servers, one of which ends in the middle. The reward rises as with the local
/// engine, and each step has its own adapter.
#[test]
fn a_run_on_servers_learns_like_a_local_run() {
    let place = place("qwen3");
    let text = TRAIN.replace("steps = 3", "steps = 20").replace("[aeiou]", "e");
    let text = text.replace("samples = 3", "samples = 0");
    place.write("train.toml", text.replace("group_size = 4", &format!("group_size = {GROUP}")));
    let [a, b] = [server(&place, usize::MAX), server(&place, 6)];
    train(&place, "local", &[]);
    let ended = train(&place, "remote", &on(&[&a, &b]));
    let left_out = format!("warning      the vLLM server {}/v1 is left out: ", b.server.url);
    assert!(ended.stdout.contains(&left_out), "{}", ended.stdout);
    let rewards = |run: &str| -> Vec<f64> {
        let metrics = objects(&place.read(&format!("{run}/metrics.jsonl")));
        metrics.iter().map(|line| line["reward"].as_f64().unwrap()).collect()
    };
    let mean = |rewards: &[f64]| rewards.iter().sum::<f64>() / rewards.len() as f64;
    let (local, remote) = (rewards("local"), rewards("remote"));
    assert_eq!((local.len(), remote.len()), (20, 20));
    let rise = |rewards: &[f64]| mean(&rewards[15..]) - mean(&rewards[..5]);
    assert!(rise(&local) > 0.1, "{local:?}");
    assert!(rise(&remote) > 0.1, "{remote:?}");
    assert!((mean(&local[15..]) - mean(&remote[15..])).abs() < 0.25, "{local:?} {remote:?}");
    // Each step was sampled by the adapter of its weights, which the ledger names too.
    let bodies = [a.bodies("/v1/completions"), b.bodies("/v1/completions")].concat();
    let models: BTreeSet<&str> =
        bodies.iter().map(|body| body["model"].as_str().unwrap()).collect();
    let ledger = objects(&place.read("remote/ledger.jsonl"));
    let of_ledger: BTreeSet<&str> =
        ledger.iter().map(|line| &line["rollout"]["weights"].as_str().unwrap()[..16]).collect();
    assert_eq!(of_ledger.len(), 20);
    let weights = |model: &&str| model.rsplit_once('-').unwrap().1.to_owned();
    assert_eq!(
        models.iter().map(weights).collect::<BTreeSet<_>>(),
        of_ledger.iter().map(|weights| (*weights).to_owned()).collect()
    );
    assert_eq!(a.adapters(), Vec::<String>::new());
    place.succeed(&["audit", "remote"]);
    assert!(place.read("remote/config.toml").contains("engine = \"vllm\""));
    place.refuse(
        &["replay", "remote", "--step", "1", "--prompt", "0", "--sample", "0"],
        str!["grpo replay has to sample the same completions again, but vLLM servers do not repeat them bit for bit; use it with runs of rollout.engine = \"local\""],
    );
    place.refuse(
        &["train", "--resume", "remote", "--verify"],
        str!["--verify has to sample the same completions again, but vLLM servers do not repeat them bit for bit; use it with runs of rollout.engine = \"local\""],
    );
}

#[test]
fn settings_and_servers_that_are_refused() {
    let place = place("qwen3");
    let check = |sets: &[&str], expected: &str| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let arguments: Vec<&str> = ["train", "train.toml"].into_iter().chain(sets).collect();
        let ended = place.run(&arguments);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let error = ended.stderr.trim_end();
        assert_eq!(error, format!("error: {expected}"));
        assert!(!place.path("run").exists());
    };
    let (engine, url) = ("rollout.engine=vllm", "rollout.url=http://127.0.0.1:9");
    check(
        &["rollout.engine=tgi"],
        "--set rollout.engine=tgi: rollout.engine: unknown engine \"tgi\"; use \"local\" or \"vllm\"",
    );
    check(
        &[url],
        "--set rollout.url=http://127.0.0.1:9: rollout.url: has no effect with the local engine; remove it, or set rollout.engine = \"vllm\"",
    );
    check(&[engine], "--set rollout.engine=vllm: rollout: missing key `url`");
    check(
        &[engine, "rollout.url=gpu1:8000"],
        "--set rollout.url=gpu1:8000: `rollout.url` is \"gpu1:8000\" (it does not start with http:// or https://); expected a base URL such as http://localhost:8000 or https://api.openai.com/v1, without user, query and `/chat/completions`",
    );
    check(
        &[engine, "rollout.url=http://127.0.0.1:99999"],
        "--set rollout.url=http://127.0.0.1:99999: `rollout.url` is \"http://127.0.0.1:99999\" (the port `99999` is not a number from 1 to 65535); expected a base URL such as http://localhost:8000 or https://api.openai.com/v1, without user, query and `/chat/completions`",
    );
    check(
        &[engine, "rollout.url=http://gpu1:8000"],
        "train.toml: rollout.adapters is missing, which the server http://gpu1:8000 requires; set it to a folder that this machine and the server can read under the same path",
    );
    check(
        &[engine, url, "sampling.weights=bf16", "sampler_check.above=correct"],
        "--set rollout.engine=vllm: rollout.engine = \"vllm\" samples with the weights of the servers; remove sampling.weights, or use rollout.engine = \"local\"",
    );
    check(
        &[engine, url],
        "sampling: http://127.0.0.1:9/v1/models: the connection was refused (1 attempt); start the server, or correct its URL",
    );
}
