//! Tests against servers with recorded replies.

mod client;
mod judge;
mod server;
