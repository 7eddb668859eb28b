#![doc = include_str!("../README.md")]
//!
//! - [`Client`] sends any [`Request`]: several at a time, with retries, counters and a [`Cache`].
//! - [`EndpointConfig`] is where the server is and how it is used.
//! - [`ChatRequest`] is the API `/chat/completions`. Other APIs implement [`Request`].

mod cache;
mod chat;
mod client;
mod config;
mod error;
mod http;
mod request;
mod tls;
mod usage;

pub use cache::Cache;
pub use chat::{ChatAnswer, ChatRequest, ChatSettings, Message};
pub use client::{Answers, Client, Progress};
pub use config::EndpointConfig;
pub use error::{Attempts, EndpointError};
pub use request::{ReplyFault, Request};
pub use usage::{Prices, Usage};
