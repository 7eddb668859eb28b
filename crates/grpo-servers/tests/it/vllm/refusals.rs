//! Servers and settings that are refused before training.

use burn::tensor::Device;
use grpo_data::{Prefix, Prompt};
use grpo_model::{Adapted, Adapter, Frozen, LoraConfig, Policy};
use grpo_servers::vllm::Tolerance;
use serde_json::json;

use super::fake::{Fake, Kind};
use super::support::{KEY, Settings, Setup, base, fake, policy};
use crate::server::{Received, Reply};

/// Returns why an engine is refused.
#[track_caller]
fn refused(setup: &Setup, policy: &Policy, change: impl FnOnce(&mut Settings)) -> String {
    setup.engine_with(policy, change).unwrap_err().to_string()
}

/// Returns the error for a server that answers requests to `path` with `reply`.
#[track_caller]
fn refused_reply(path: &'static str, reply: Reply) -> String {
    let base = base(1);
    let hook = move |_: usize, received: &Received| (received.path == path).then(|| reply.clone());
    let fake = Fake::start(Kind { hook: Box::new(hook), ..Kind::of(&base) });
    let error = refused(&Setup::new(&[&fake]), &policy(&base, 1), |_| {});
    error.replace(&fake.server.url, "URL")
}

#[test]
fn settings_that_servers_cannot_have() {
    let base = base(1);
    let fake = fake(&base);
    let setup = Setup::new(&[&fake]);
    let adapted = policy(&base, 1);
    assert_eq!(
        refused(&setup, &Policy::Whole(base), |_| {}),
        "vLLM servers get the policy as a LoRA adapter, but this run trains all weights; add [lora] or `adapter`, or use rollout.engine = \"local\""
    );
    for (lora, setting) in [
        (LoraConfig { dora: true, ..LoraConfig::default() }, "use_dora"),
        (
            LoraConfig { modules_to_save: vec!["lm_head".to_owned()], ..LoraConfig::default() },
            "modules_to_save",
        ),
    ] {
        let lora = LoraConfig { rank: 2, alpha: 4.0, ..lora };
        let adapter = Adapter::random(&lora, adapted.parts().0, 1, &Device::flex()).unwrap();
        let other = Policy::Adapted(Adapted::new(adapted.parts().0, adapter));
        assert_eq!(
            refused(&setup, &other, |_| {}),
            format!(
                "vLLM servers read plain LoRA adapters of the blocks, but this adapter has {setting}; train one without it, or use rollout.engine = \"local\""
            )
        );
    }
    assert_eq!(
        refused(&setup, &adapted, |request| request.sampling.top_p = Some(0.9)),
        "vLLM servers do not return which tokens top_k, top_p and min_p keep, but the trainer needs them; remove these settings, or use rollout.engine = \"local\""
    );
    assert_eq!(
        refused(&setup, &adapted, |request| request.max_new_tokens = 61),
        "a prompt of 4 tokens and sampling.max_new_tokens = 61 exceed the model's context of 64 tokens; lower sampling.max_new_tokens, or shorten the prompts"
    );
    setup.engine_with(&adapted, |request| request.max_new_tokens = 60).unwrap();
    let zero = refused(&setup, &adapted, |request| request.group_size = 0);
    assert_eq!(zero, "group_size = 0 is out of range; expected 1 or more");
    let engine = setup.engine(&adapted);
    let sample = |prompt: Prompt| {
        engine.sample(&Frozen::snapshot(&adapted), &[prompt], KEY).unwrap_err().to_string()
    };
    let empty = "a prompt has no tokens; expected at least the begin token";
    assert_eq!(sample(Prompt::of_ids(0, Vec::new())), empty);
    let prefix = Prefix { values: vec![Some(1.0)], ..Prefix::default() };
    let conditions = sample(Prompt { prefix, ..Prompt::of_ids(0, vec![1]) });
    assert!(conditions.starts_with("vLLM servers have no vectors of conditions"), "{conditions}");
}

#[test]
fn a_server_with_another_model_or_other_log_probabilities() {
    let own = base(1);
    let adapted = policy(&own, 1);
    let other = fake(&base(2));
    let error = refused(&Setup::new(&[&other]), &adapted, |_| {});
    assert!(error.contains("its log-probabilities differ from those of this program by up to "));
    assert!(error.contains(
        " on average; start vLLM with the model of this run, `--dtype float32` and `--logprobs-mode processed_logprobs`, remove base_precision, or set sampler_check.above = \"correct\""
    ));
    // Differences that are corrected may be larger for single tokens, but not on average.
    let with = |tolerance: Tolerance| {
        let setup = Setup::tolerating(&[&other], tolerance);
        setup.engine_with(&adapted, |_| {}).map(drop).map_err(|error| error.to_string())
    };
    let error = with(Tolerance::Mean(0.01)).unwrap_err();
    assert!(error.ends_with(" on average; start vLLM with the model of this run"), "{error}");
    with(Tolerance::Mean(10.0)).unwrap();
    let raw = Fake::start(Kind { is_raw: true, ..Kind::of(&own) });
    let error = refused(&Setup::new(&[&raw]), &adapted, |_| {});
    assert_eq!(
        error.replace(&raw.server.url, "URL"),
        "URL/v1: its log-probabilities are those at temperature 1 instead of 0.7; start vLLM with `--logprobs-mode processed_logprobs`"
    );
    // Also at temperature 1, where a repetition penalty would be missing.
    let setup = Setup::new(&[&raw]);
    let error = refused(&setup, &adapted, |request| request.sampling.temperature = 1.0);
    assert!(
        error.contains("are those at temperature 1 instead of 0.5; start vLLM with"),
        "{error}"
    );
    let small = Fake::start(Kind { longest: 9, ..Kind::of(&own) });
    let error = refused(&Setup::new(&[&small]), &adapted, |_| {});
    assert_eq!(
        error.replace(&small.server.url, "URL"),
        "URL/v1: prompts and completions have up to 10 tokens, but it accepts 9; start vLLM with a larger `--max-model-len`, lower sampling.max_new_tokens, or shorten the prompts"
    );
}

#[test]
fn servers_that_are_not_vllm() {
    let json = |value: serde_json::Value| Reply::Http(200, "", value.to_string());
    let other = json!({"data": [{"id": "gpt", "owned_by": "openai"}]});
    assert_eq!(
        refused_reply("/v1/models", json(other)),
        "URL/v1: it is not a vLLM server; set rollout.url to that of a vLLM server"
    );
    assert_eq!(
        refused_reply("/v1/models", json(json!({"models": []}))),
        "URL/v1: it does not list models; set rollout.url to that of a vLLM server"
    );
    let error = refused_reply("/v1/models", Reply::Http(200, "", "<html>".to_owned()));
    assert!(error.starts_with("URL/v1/models: the reply is not JSON: \"<html>\""), "{error}");
    let other = "URL/v1: it does not list models; set rollout.url to that of a vLLM server";
    assert_eq!(refused_reply("/v1/models", Reply::status(404)), other);
    let two = json!({"data": [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "vllm"}]});
    assert_eq!(
        refused_reply("/v1/models", json(two)),
        "URL/v1: it serves a, b; set rollout.model to the base model"
    );
    let fake = fake(&base(1));
    let setup = Setup::with(&[&fake], |config| config.model = Some("large".to_owned()));
    let error = refused(&setup, &policy(&base(1), 1), |_| {});
    assert!(error.ends_with("it serves tiny, but not large; correct rollout.model"));
    let none = "http://127.0.0.1:9/v1/models: ";
    let setup = Setup::with(&[&fake], |config| {
        config.url = grpo_data::OneOrSeveral::One("http://127.0.0.1:9".to_owned());
    });
    let error = refused(&setup, &policy(&base(1), 1), |_| {});
    assert!(error.starts_with(none) && error.ends_with("start the server, or correct its URL"));
}

#[test]
fn servers_that_do_not_load_the_adapter() {
    let path = "/v1/load_lora_adapter";
    assert_eq!(
        refused_reply(path, Reply::Http(404, "", r#"{"detail":"Not Found"}"#.to_owned())),
        "URL/v1: it does not load adapters; start vLLM with `--enable-lora` and the environment variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
    );
    let error = refused_reply(path, Reply::Http(404, "", "No adapter found".to_owned()));
    assert!(error.starts_with("URL/v1: it does not find the adapter in /"), "{error}");
    assert!(error.ends_with(
        ": \"No adapter found\"; set rollout.adapters to a folder that the server can read under the same path"
    ));
    let error = refused_reply(path, Reply::Http(500, "", "LoRA rank 16 is greater".to_owned()));
    assert!(error.starts_with("URL/v1: it cannot load the adapter in /"), "{error}");
    assert!(error.ends_with(
        ": \"LoRA rank 16 is greater\"; compare lora.rank with vLLM's `--max-lora-rank`, and look into the server's log"
    ));
}

/// The folder appears a moment later on another machine.
#[test]
fn a_folder_that_appears_late_is_looked_for_again() {
    let base = base(1);
    let count = std::sync::atomic::AtomicUsize::new(0);
    let hook = move |_: usize, received: &Received| {
        let is_first = received.path == "/v1/load_lora_adapter"
            && count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        is_first.then(|| Reply::Http(404, "", "No adapter found".to_owned()))
    };
    let fake = Fake::start(Kind { hook: Box::new(hook), ..Kind::of(&base) });
    Setup::new(&[&fake]).engine(&policy(&base, 1));
    assert_eq!(fake.bodies("/v1/load_lora_adapter").len(), 2);
}

#[test]
fn replies_that_are_refused_name_the_server() {
    let reply = json!({"model": "tiny", "choices": []});
    let error = refused_reply("/v1/completions", Reply::Http(200, "", reply.to_string()));
    let start = "URL/v1/completions: the reply names the model tiny instead of ";
    assert!(error.starts_with(start), "{error}");
    assert!(error.ends_with("; use a vLLM server of a supported version (docs/cluster.md)"));
}
