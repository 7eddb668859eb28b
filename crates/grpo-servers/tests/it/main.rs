//! Tests against servers with recorded replies, and against vLLM servers that run in this process.

mod client;
mod judge;
mod server;
mod vllm;
