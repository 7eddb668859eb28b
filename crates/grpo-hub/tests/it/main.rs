//! Downloads from a server of the test, and caches as other tools leave them.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod cache;
mod client;
mod download;
mod fake;
mod odd_servers;
mod refusals;
