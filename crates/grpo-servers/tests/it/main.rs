//! Tests against servers with recorded replies, vLLM servers that run in this process, and servers of
//! rewards.

mod client;
mod http_reward;
mod judge;
mod server;
mod vllm;
