//! Samples completions on [vLLM](https://docs.vllm.ai) servers. For each version of the policy, the LoRA
//! adapter is written to a folder that the servers can read, and loaded under a name that contains the
//! hash of its weights. Completions carry the server's log-probabilities, so the trainer can measure and
//! correct differences.
//!
//! - [`VLLM`] is the engine for configurations, and [`VllmConfig`] its section.
//! - [`Servers`] loads adapters and distributes requests.
//! - [`OnServers`] checks the servers and creates engines.

mod adapters;
mod api;
mod completions;
mod config;
mod engine;
mod error;
mod factory;
mod kind;
mod probe;
mod queue;
mod servers;

pub use adapters::WriteAdapter;
pub use config::VllmConfig;
pub use error::VllmError;
pub use factory::OnServers;
pub use kind::VLLM;
pub use probe::Tolerance;
pub use servers::Servers;
