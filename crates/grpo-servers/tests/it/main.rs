//! Tests against servers with recorded replies, vLLM servers that run in this process, and servers of
//! rewards.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod client;
mod http_reward;
mod judge;
mod server;
mod vllm;
