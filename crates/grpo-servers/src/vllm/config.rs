//! Settings of the engine.

use std::path::PathBuf;

use crate::{EndpointConfig, EndpointError, Server};
use grpo_data::{ConfigFault, OneOrSeveral};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::key_of;

/// Maximum size of a reply in bytes. A token takes about 100 bytes.
const LARGEST_REPLY: u64 = 1 << 28;

/// Keys of the section `[rollout]` with `engine = "vllm"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VllmConfig {
    /// A server, or several servers with the same model: groups are distributed over them.
    pub url: OneOrSeveral,
    /// Name of the base model on the servers. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Folder for the adapters, which this machine and the servers must see under the same path.
    /// Required if a server is not on this machine. Each run makes its own subfolder, and removes
    /// it at the end. Default: the system's temporary folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapters: Option<PathBuf>,
    /// Environment variable with the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// PEM file with the certificates to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Time limit of a group in seconds. If all servers fail, the run ends when none has answered
    /// for this long.
    #[serde(default = "default_time_limit")]
    #[schemars(range(min = 0.001, max = 86400))]
    pub time_limit: f64,
    /// Groups that each server samples at the same time.
    #[serde(default = "default_parallel")]
    #[schemars(range(min = 1, max = 256))]
    pub parallel: usize,
    /// Send a seed with each request. vLLM's CPU engine ends with an error if a request with a seed
    /// exceeds `--max-num-batched-tokens`.
    #[serde(default = "default_seeds")]
    pub seeds: bool,
}

impl VllmConfig {
    /// Returns the defaults for a server.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: OneOrSeveral::One(url.into()),
            model: None,
            adapters: None,
            api_key_env: None,
            ca_file: None,
            time_limit: default_time_limit(),
            parallel: default_parallel(),
            seeds: default_seeds(),
        }
    }

    /// Checks all values.
    ///
    /// # Errors
    /// Returns an error if a value is out of range, or if there is no folder that a server on another
    /// machine could read.
    pub fn check_settings(&self) -> Result<(), ConfigFault> {
        if self.url.as_slice().is_empty() {
            let message = "rollout.url is an empty list";
            return Err(ConfigFault::new("url", message, "add the URL of a vLLM server"));
        }
        let mut bases = Vec::new();
        for config in self.endpoints(self.time_limit, 0) {
            let base = config.check().and_then(|()| config.base());
            let base = base.map_err(|error| {
                let key = match &error {
                    EndpointError::Setting { key, .. } => *key,
                    _ => "",
                };
                ConfigFault::new(key, error.with_names(key_of).to_string(), "")
            })?;
            if bases.contains(&base) {
                let message = format!("rollout.url has {} twice", config.url);
                return Err(ConfigFault::new("url", message, "remove one of them"));
            }
            bases.push(base);
            if self.adapters.is_none() && !config.is_local() {
                return Err(ConfigFault::new(
                    "adapters",
                    format!(
                        "rollout.adapters is missing, which the server {} requires",
                        config.url
                    ),
                    "set it to a folder that this machine and the server can read under the same path",
                ));
            }
        }
        Ok(())
    }

    /// Returns a client for each URL.
    pub(crate) fn servers(
        &self,
        time_limit: f64,
        retries: u32,
    ) -> Result<Vec<Server>, EndpointError> {
        self.endpoints(time_limit, retries).map(Server::new).collect()
    }

    fn endpoints(
        &self,
        time_limit: f64,
        retries: u32,
    ) -> impl Iterator<Item = EndpointConfig> + '_ {
        self.url.as_slice().iter().map(move |url| EndpointConfig {
            api_key_env: self.api_key_env.clone(),
            ca_file: self.ca_file.clone(),
            time_limit,
            retries,
            pause: 0.5,
            parallel: self.parallel,
            largest_reply: LARGEST_REPLY,
            ..EndpointConfig::new(url.clone())
        })
    }
}

fn default_time_limit() -> f64 {
    600.0
}

fn default_parallel() -> usize {
    16
}

fn default_seeds() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use grpo_data::deserialize_settings;

    use super::*;

    fn check(text: &str) -> Result<(), String> {
        let config = deserialize_settings::<VllmConfig>(toml::from_str(text).unwrap());
        let checked = config.and_then(|config| config.check_settings());
        checked.map_err(|fault| format!("{}: {fault}", fault.key))
    }

    #[test]
    fn defaults() {
        let config: VllmConfig = toml::from_str("url = 'http://localhost:8000'").unwrap();
        assert_eq!(config, VllmConfig::new("http://localhost:8000"));
        config.check_settings().unwrap();
    }

    #[test]
    fn refused_settings() {
        let error = |text: &str| check(text).unwrap_err();
        assert_eq!(error(""), ": missing key `url`");
        assert_eq!(
            error("url = []"),
            "url: rollout.url is an empty list; add the URL of a vLLM server"
        );
        let twice = "url = ['http://localhost:1', 'http://[::1]:1', 'http://localhost:1/v1']";
        assert_eq!(
            error(twice),
            "url: rollout.url has http://localhost:1/v1 twice; remove one of them"
        );
        assert!(
            error("url = 'localhost:1'")
                .starts_with("url: `rollout.url` is \"localhost:1\" (it does not start with http")
        );
        for port in ["99999", "65536", "0", "-1", ""] {
            let error = error(&format!("url = ['http://localhost:1', 'http://127.0.0.1:{port}']"));
            let expect = format!("(the port `{port}` is not a number from 1 to 65535); expected");
            assert!(error.contains(&expect), "{error}");
        }
        let local = "url = 'http://localhost:1'\n";
        let out = error(&format!("{local}time_limit = 0"));
        assert_eq!(
            out,
            "time_limit: `rollout.time_limit` is 0; expected seconds between 0.001 and 86400"
        );
        assert!(
            error(&format!("{local}parallel = 0")).starts_with("parallel: `rollout.parallel` is 0")
        );
        let remote = "url = ['http://localhost:1', 'http://gpu1:8000']";
        assert!(error(remote).starts_with(
            "adapters: rollout.adapters is missing, which the server http://gpu1:8000 requires"
        ));
        check(&format!("{remote}\nadapters = '/shared'")).unwrap();
    }
}
