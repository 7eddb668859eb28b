//! A server with vLLM's API that samples with the local engine. Replies have the form of those of vLLM
//! 0.32.0.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use burn::tensor::Device;
use grpo_data::{Group, Prompt, Purpose};
use grpo_logprob::SamplingSettings;
use grpo_model::{Adapted, AdapterFolder, Frozen, LanguageModel, Policy, Transformer};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey};
use serde_json::{Value, json};

use crate::server::{Received, Reply, Server};

/// Changes the behavior of the server. Called before each request with the number of requests so far.
pub(crate) type Hook = Box<dyn Fn(usize, &Received) -> Option<Reply> + Send + Sync>;

/// A running server. It is stopped together with the process.
pub(crate) struct Fake {
    pub(crate) server: Server,
    loaded: Arc<Mutex<BTreeMap<String, Policy>>>,
    is_raw: Arc<AtomicBool>,
}

/// What the server is.
pub(crate) struct Kind {
    pub(crate) base: Transformer,
    /// Value of `--max-model-len`.
    pub(crate) longest: usize,
    /// Whether log-probabilities are those at temperature 1 (`--logprobs-mode raw_logprobs`).
    pub(crate) is_raw: bool,
    pub(crate) hook: Hook,
}

impl Kind {
    pub(crate) fn of(base: &Transformer) -> Self {
        Self { base: base.clone(), longest: 64, is_raw: false, hook: Box::new(|_, _| None) }
    }
}

impl Fake {
    pub(crate) fn start(kind: Kind) -> Self {
        let loaded = Arc::new(Mutex::new(BTreeMap::new()));
        let of_server = Arc::clone(&loaded);
        let is_raw = Arc::new(AtomicBool::new(kind.is_raw));
        let is_raw_now = Arc::clone(&is_raw);
        let server = Server::start(move |index, received| {
            (kind.hook)(index, received).unwrap_or_else(|| {
                let is_raw = is_raw_now.load(Ordering::Relaxed);
                reply(&kind, is_raw, &of_server, received)
            })
        });
        Self { server, loaded, is_raw }
    }

    /// Names of the loaded adapters.
    pub(crate) fn adapters(&self) -> Vec<String> {
        self.loaded.lock().unwrap().keys().cloned().collect()
    }

    /// Returns log-probabilities at temperature 1 from now on.
    pub(crate) fn become_raw(&self) {
        self.is_raw.store(true, Ordering::Relaxed);
    }

    /// Forgets all adapters, as after a restart.
    pub(crate) fn restart(&self) {
        self.loaded.lock().unwrap().clear();
    }

    /// Bodies of the requests to a path.
    pub(crate) fn bodies(&self, path: &str) -> Vec<Value> {
        let received = self.server.received().into_iter();
        received.filter(|request| request.path == path).map(|request| request.body).collect()
    }
}

fn text(status: u16, text: impl Into<String>) -> Reply {
    Reply::Http(status, "", text.into())
}

fn failure(status: u16, message: &str) -> Reply {
    let error = json!({"message": message, "type": "Error", "param": null, "code": status});
    text(status, json!({ "error": error }).to_string())
}

fn reply(
    kind: &Kind,
    is_raw: bool,
    loaded: &Mutex<BTreeMap<String, Policy>>,
    request: &Received,
) -> Reply {
    let mut loaded = loaded.lock().unwrap();
    let body = &request.body;
    let name = body["lora_name"].as_str().unwrap_or_default().to_owned();
    match &*request.path {
        "/v1/models" => {
            let model = |id: &str, parent: Value| {
                json!({
                    "id": id, "object": "model", "created": 1795343654, "owned_by": "vllm",
                    "root": "/models/tiny", "parent": parent, "max_model_len": kind.longest
                })
            };
            let base = std::iter::once(model("tiny", Value::Null));
            let adapters = loaded.keys().map(|name| model(name, json!("tiny")));
            let data: Vec<Value> = base.chain(adapters).collect();
            text(200, json!({"object": "list", "data": data}).to_string())
        }
        "/v1/load_lora_adapter" if loaded.contains_key(&name) => {
            failure(400, &format!("The lora adapter '{name}' has already been loaded."))
        }
        "/v1/load_lora_adapter" => {
            let folder = Path::new(body["lora_path"].as_str().unwrap());
            if !folder.join("adapter_config.json").exists() {
                return failure(404, &format!("Loading lora {name} failed: No adapter found for"));
            }
            match AdapterFolder::load(folder, &kind.base, &Device::flex()) {
                Ok(AdapterFolder { adapter, .. }) => {
                    let policy = Policy::Adapted(Adapted::new(&kind.base, adapter));
                    loaded.insert(name.clone(), policy);
                    text(200, format!("Success: LoRA adapter '{name}' added successfully."))
                }
                Err(error) => failure(500, &error.to_string()),
            }
        }
        "/v1/unload_lora_adapter" => match loaded.remove(&name) {
            Some(_) => text(200, format!("Success: LoRA adapter '{name}' removed successfully.")),
            None => failure(404, &format!("The lora adapter '{name}' cannot be found.")),
        },
        "/v1/completions" => {
            let model = body["model"].as_str().unwrap();
            match loaded.get(model).cloned() {
                Some(policy) => {
                    drop(loaded);
                    complete(kind, is_raw, &policy, body)
                }
                None => failure(404, &format!("The model `{model}` does not exist.")),
            }
        }
        _ => text(404, r#"{"detail":"Not Found"}"#),
    }
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn complete(kind: &Kind, is_raw: bool, policy: &Policy, body: &Value) -> Reply {
    let prompt = ids(&body["prompt"]);
    let count = body["n"].as_u64().unwrap() as usize;
    let most = (body["max_tokens"].as_u64().unwrap() as usize).min(kind.longest - prompt.len());
    let temperature = body["temperature"].as_f64().unwrap() as f32;
    let forbidden = body["logit_bias"].as_object().into_iter().flatten();
    let forbidden: Vec<u32> = forbidden.map(|(id, _)| id.parse().unwrap()).collect();
    let vocabulary = policy.vocabulary_size();
    let sampling = SamplingSettings { temperature, forbidden, ..SamplingSettings::default() };
    let settings = RolloutSettings {
        group_size: count,
        max_new_tokens: most,
        end_ids: ids(&body["stop_token_ids"]),
        distribution: sampling.checked(vocabulary).unwrap(),
        batch_size: count,
    };
    let end_ids = settings.end_ids.clone();
    let engine = Autoregressive::new(settings, policy, prompt.len()).unwrap();
    let seed = body["seed"].as_u64().unwrap_or(prompt[0].into());
    let key = StepKey { seed, purpose: Purpose::SAMPLING, step: 0, policy_version: 0 };
    let frozen = Frozen::snapshot(policy);
    let prompts = [Prompt::of_ids(0, prompt.clone())];
    let Group { samples, .. } = engine.sample(&frozen, &prompts, key).unwrap().remove(0);
    let choices = samples.iter().enumerate().map(|(index, sample)| {
        let completion = &sample.completion;
        let ids: Vec<u32> = completion.action_ids().collect();
        let mut logprobs: Vec<f64> =
            completion.sampling_logprobs().unwrap().iter().map(|&logprob| f64::from(logprob)).collect();
        if is_raw {
            let scores = grpo_model::score_completions(&frozen, &[(&prompt, &ids)], 1.0);
            logprobs.clone_from(&scores[0].logprobs);
        }
        let is_stopped = ids.last().is_some_and(|id| end_ids.contains(id));
        json!({
            "index": index, "text": "", "stop_reason": is_stopped.then(|| ids.last()),
            "finish_reason": if is_stopped { "stop" } else { "length" },
            "logprobs": {"token_logprobs": logprobs, "tokens": ids.iter().map(|id| format!("token_id:{id}")).collect::<Vec<_>>()},
            "token_ids": ids, "prompt_logprobs": null, "prompt_token_ids": prompt,
        })
    });
    let choices: Vec<Value> = choices.collect();
    let reply = json!({
        "id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": choices,
        "usage": {"prompt_tokens": prompt.len(), "completion_tokens": 1}
    });
    text(200, reply.to_string())
}
