//! Downloads from a server of the test, and caches as other tools leave them.

mod cache;
mod download;
mod hub;
mod refusals;
