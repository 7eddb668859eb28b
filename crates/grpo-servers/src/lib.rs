#![doc = include_str!("../README.md")]
//!
//! - [`Client`] sends any [`Request`]: several at a time, with retries, counters and a [`Cache`].
//! - [`Server`] sends one request at a time, for callers that use several servers.
//! - [`EndpointConfig`] is where the server is and how it is used.
//! - [`ChatRequest`] is the API `/chat/completions`. Other APIs implement [`Request`].
//! - [`HTTP_REWARD`] is the reward type `http`.
//! - [`vllm`] is an engine for rollouts.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod cache;
mod chat;
mod client;
mod config;
mod connection;
mod error;
mod http;
mod http_reward;
mod http_url;
mod http_words;
mod request;
mod server;
mod tls;
mod usage;
pub mod vllm;

pub use cache::Cache;
pub use chat::{ChatAnswer, ChatRequest, ChatSettings, Message};
pub use client::{Answers, Client, Progress};
pub use config::EndpointConfig;
pub use error::{Attempts, EndpointError};
pub use http_reward::HTTP_REWARD;
pub use request::{ReplyFault, Request};
pub use server::Server;
pub use usage::{Prices, Usage};

use grpo_rewards::RewardKind;
use grpo_rollout::EngineKind;

/// Returns the engines of this crate.
pub fn engine_kinds() -> Vec<EngineKind> {
    vec![vllm::VLLM]
}

/// Returns the reward types of this crate.
pub fn reward_kinds() -> Vec<RewardKind> {
    vec![HTTP_REWARD]
}
