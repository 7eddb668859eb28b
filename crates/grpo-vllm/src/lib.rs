#![doc = include_str!("../README.md")]
//!
//! - [`VllmConfig`] is the configuration section.
//! - [`Servers`] loads adapters and distributes requests.
//! - [`OnServers`] checks the servers and creates engines.

mod actions;
mod adapters;
mod api;
mod completions;
mod config;
mod engine;
mod error;
mod probe;
mod queue;
mod servers;

pub use actions::OnServers;
pub use adapters::WriteAdapter;
pub use config::VllmConfig;
pub use error::VllmError;
pub use probe::Tolerance;
pub use servers::{Notify, Servers};
