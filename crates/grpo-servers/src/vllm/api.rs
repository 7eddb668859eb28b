//! vLLM's API for models and adapters.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::{EndpointError, Server};
use serde_json::{Map, Value, json};

use super::VllmError;

/// What a server can sample from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Maximum number of tokens of a prompt and its completion.
    pub(crate) longest: usize,
    /// Names of the loaded adapters.
    pub(crate) adapters: Vec<String>,
}

/// How long a server may not find a folder, because files appear later on other machines. The default
/// of NFS clients is up to 60 s.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);
/// The same for servers on this machine, e.g. in a container.
const LOCAL_PATIENCE: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Lists the models of a server.
pub(crate) fn list(server: &Server, model: Option<&str>) -> Result<Listed, VllmError> {
    let refused = |what: String, fix| VllmError::Server { url: server.url().to_owned(), what, fix };
    let fix = "set rollout.url to that of a vLLM server";
    let reply = match server.get("models") {
        Err(error) if matches!(error.status(), Some(404 | 405 | 501)) => {
            return Err(refused("it does not list models".to_owned(), fix));
        }
        reply => reply?,
    };
    let models = reply["data"].as_array();
    let models = models.ok_or_else(|| refused("it does not list models".to_owned(), fix))?;
    let text = |model: &Value, key: &str| model[key].as_str().map(str::to_owned);
    if models.iter().any(|model| model["owned_by"] != "vllm") {
        return Err(refused("it is not a vLLM server".to_owned(), fix));
    }
    let (bases, adapters): (Vec<&Value>, Vec<&Value>) =
        models.iter().partition(|model| model["parent"].is_null());
    let names: Vec<String> = bases.iter().filter_map(|base| text(base, "id")).collect();
    let base = match model {
        Some(model) => bases.iter().find(|base| base["id"] == model),
        None => bases.first().filter(|_| bases.len() == 1),
    };
    let base = base.ok_or_else(|| {
        let (has, fix) = match model {
            Some(model) => (format!(", but not {model}"), "correct rollout.model"),
            None => (String::new(), "set rollout.model to the base model"),
        };
        let names = if names.is_empty() { "no model".to_owned() } else { names.join(", ") };
        refused(format!("it serves {names}{has}"), fix)
    })?;
    let longest = base["max_model_len"].as_u64().and_then(|longest| usize::try_from(longest).ok());
    let longest =
        longest.ok_or_else(|| refused("it does not state max_model_len".to_owned(), fix))?;
    let adapters = adapters.iter().filter_map(|adapter| text(adapter, "id")).collect();
    Ok(Listed { longest, adapters })
}

/// Loads the adapter in `folder` under `name`. Has no effect if there is one with this name.
pub(crate) fn load(server: &Server, name: &str, folder: &Path) -> Result<(), VllmError> {
    let patience = if server.is_local() { LOCAL_PATIENCE } else { APPEARS_WITHIN };
    let body = json!({"lora_name": name, "lora_path": folder.to_string_lossy()});
    let refused = |what: String, fix| VllmError::Server { url: server.url().to_owned(), what, fix };
    let start = Instant::now();
    loop {
        let (status, body) = match server.post("load_lora_adapter", object(&body)) {
            Ok(_) => return Ok(()),
            Err(EndpointError::Status { status: 400, body, .. }) if body.contains("already") => {
                return Ok(());
            }
            Err(EndpointError::Status { status, body, .. }) => (status, body),
            Err(error) => return Err(error.into()),
        };
        return Err(match status {
            404 if is_route_missing(&body) => refused(
                "it does not load adapters".to_owned(),
                "start vLLM with `--enable-lora` and the environment variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
            ),
            404 if start.elapsed() < patience => {
                thread::sleep(RETRY_PAUSE);
                continue;
            }
            404 => refused(
                format!("it does not find the adapter in {}: {body}", folder.display()),
                "set rollout.adapters to a folder that the server can read under the same path",
            ),
            _ => refused(
                format!("it cannot load the adapter in {}: {body}", folder.display()),
                "compare lora.rank with vLLM's `--max-lora-rank`, and look into the server's log",
            ),
        });
    }
}

/// Removes an adapter. Has no effect if there is none with this name.
pub(crate) fn unload(server: &Server, name: &str) -> Result<(), VllmError> {
    match server.post("unload_lora_adapter", object(&json!({"lora_name": name}))) {
        Ok(_) | Err(EndpointError::Status { status: 404, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("it is an object")
}

/// Returns whether a body, quoted by the client, is the reply to an unknown path and not that of the
/// adapter API.
fn is_route_missing(body: &str) -> bool {
    body.contains(r#"{\"detail\":\"Not Found\"}"#)
}
