//! Errors of the engine.

use std::path::PathBuf;
use std::sync::Arc;

use grpo_rollout::RolloutError;

use crate::EndpointError;

/// Why completions cannot be sampled on servers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VllmError {
    /// A request failed.
    #[error(transparent)]
    Endpoint(EndpointError),
    /// A server cannot be used.
    #[error("{url}: {what}; {fix}")]
    Server {
        /// Base URL.
        url: String,
        /// What is wrong.
        what: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// All servers have failed.
    #[error(
        "no vLLM server could be used for {seconds} s ({}); restart a server and resume the run", failures.join(", ")
    )]
    NoServer {
        /// How long the engine waited.
        seconds: f64,
        /// Why each server is not used.
        failures: Vec<String>,
    },
    /// No thread can be started.
    #[error(
        "cannot start a thread for the requests to vLLM servers: {0}; free memory, or lower rollout.parallel"
    )]
    Thread(String),
    /// There is no folder for adapters.
    #[error("rollout.adapters: no folder in {} can be created", parent.display())]
    Folder {
        /// Where the folder should be.
        parent: PathBuf,
        /// What the system says.
        source: Arc<std::io::Error>,
    },
    /// An adapter cannot be written.
    #[error("cannot write an adapter for the vLLM servers: {0}")]
    Write(String),
    /// The run was interrupted.
    #[error("sampling was interrupted")]
    Interrupted,
}

impl VllmError {
    /// Returns whether a server does not answer, so that others can be used instead.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Self::Endpoint(error) if error.is_unavailable())
    }
}

impl From<EndpointError> for VllmError {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error.with_names(key_of))
    }
}

/// Returns the key of the configuration that sets a setting of an endpoint.
pub(crate) fn key_of(setting: &str) -> Option<&'static str> {
    Some(match setting {
        "url" => "rollout.url",
        "api_key_env" => "rollout.api_key_env",
        "ca_file" => "rollout.ca_file",
        "time_limit" => "rollout.time_limit",
        "parallel" => "rollout.parallel",
        "max_tokens" => "sampling.max_new_tokens",
        _ => return None,
    })
}

impl From<VllmError> for RolloutError {
    fn from(error: VllmError) -> Self {
        match error {
            VllmError::Interrupted => Self::Interrupted,
            error => Self::Engine(Box::new(error)),
        }
    }
}
