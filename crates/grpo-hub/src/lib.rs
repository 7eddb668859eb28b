#![doc = include_str!("../README.md")]
//!
//! - [`RepoName`] and [`DataName`] read what a user writes.
//! - [`HubSettings`] are the environment variables that the tools of the hub share.
//! - [`Hub::files`] returns the files of a [`FileRequest`] as a [`Snapshot`] in the cache.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod cache;
mod download;
mod error;
mod hash;
mod http;
mod http_date;
mod hub;
mod listing;
mod name;
mod patterns;
mod progress;
mod refusal;
mod route;
mod settings;
mod url;

pub use error::HubError;
pub use hub::{FileRequest, Hub, Snapshot};
pub use name::{DataName, RepoKind, RepoName, is_name};
pub use patterns::{is_pattern, matches};
pub use progress::{Observer, Progress};
pub use settings::{HubSettings, Token};
