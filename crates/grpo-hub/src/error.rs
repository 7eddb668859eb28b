//! Errors of names, the cache and downloads.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grpo_data::{Names, short_text, with_remedy};

use crate::name::{RepoKind, RepoName};

/// Why files of the hub cannot be used. The message says what is wrong, where, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A text is not the name of a repository or of its files.
    #[error("`{}` {what}", short_text(text))]
    Name {
        /// The text.
        text: String,
        /// What is wrong, and what is expected.
        what: &'static str,
    },
    /// An environment variable, or the file with the token, has a value that cannot be used.
    #[error("{place} {what}; {fix}")]
    Setting {
        /// The variable or file.
        place: String,
        /// What is wrong.
        what: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// Requests are not allowed, and the cache does not contain all files.
    #[error(
        "{} `{repo}` is not complete in the cache `{}` ({missing}), and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids downloads; unset it, or download on a machine with a network and copy the cache",
        repo.kind(), cache.display()
    )]
    Offline {
        /// The repository.
        repo: RepoName,
        /// What the cache lacks.
        missing: String,
        /// Folder of the cache.
        cache: PathBuf,
    },
    /// The repository does not exist, or is private.
    #[error("{}", no_repo(repo, endpoint, *has_token))]
    NoRepo {
        /// The repository.
        repo: RepoName,
        /// URL of the hub.
        endpoint: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository is gated, and access was not granted.
    #[error("{}", gated(repo, page, *has_token))]
    Gated {
        /// The repository.
        repo: RepoName,
        /// Its page on the hub.
        page: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository does not have the revision.
    #[error(
        "the {} `{}` has no revision `{}` on {endpoint}; check the branch, tag or commit, or name it without `@`",
        repo.kind(), repo.id(), repo.revision()
    )]
    NoRevision {
        /// The repository, with the revision.
        repo: RepoName,
        /// URL of the hub.
        endpoint: String,
    },
    /// No file of the repository has the path or matches the pattern.
    #[error(
        "the {} `{repo}` has no file `{}`; it has {}",
        repo.kind(), patterns.join("`, `"), Names(found.iter().map(|file| short_text(file)).collect())
    )]
    NoFile {
        /// The repository.
        repo: RepoName,
        /// The path or patterns.
        patterns: Vec<String>,
        /// The files that it has.
        found: Vec<String>,
    },
    /// The hub does not accept the token.
    #[error(
        "{endpoint} does not accept the token of {origin} (status 401); replace it by a valid one, or remove it for public models and data sets"
    )]
    Token {
        /// URL of the hub.
        endpoint: String,
        /// Where the token comes from.
        origin: String,
    },
    /// The hub limits the number of requests.
    #[error("{url}: too many requests (status 429); {}", wait_words(*wait))]
    TooManyRequests {
        /// URL of the request.
        url: String,
        /// Pause that the server asks for.
        wait: Option<Duration>,
    },
    /// The server answers with another status.
    #[error("{url}: status {status}{}; {fix}", quoted(message))]
    Status {
        /// URL of the request.
        url: String,
        /// HTTP status.
        status: u16,
        /// What the server says.
        message: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// The server's reply is not that of a hub.
    #[error("{url}: {what}; check HF_ENDPOINT, and any proxy in front of it")]
    Reply {
        /// URL of the request.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// There is no connection, or it was lost.
    #[error("{url}: {what}; {fix}")]
    Connection {
        /// URL of the request.
        url: String,
        /// What went wrong.
        what: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// The connection was lost during a download.
    #[error(
        "the download of `{file}` from {host} ended after {done} of {size} bytes: {what}; run again to resume it there"
    )]
    Interrupted {
        /// The file.
        file: String,
        /// The server.
        host: String,
        /// Number of bytes in the cache.
        done: u64,
        /// Size of the file.
        size: u64,
        /// What went wrong.
        what: String,
    },
    /// A downloaded file does not have the hash that the hub lists.
    #[error(
        "`{file}` from {host} has the hash {found} instead of {expected}, so it was deleted; run again, or check the proxy or mirror in HF_ENDPOINT"
    )]
    Hash {
        /// The file.
        file: String,
        /// The server.
        host: String,
        /// Its hash.
        found: String,
        /// The hash that the hub lists.
        expected: String,
    },
    /// The disk is full, or too small.
    #[error(
        "{}; free some space, or set HF_HUB_CACHE to a folder on another disk",
        no_space(cache, *needed, *free)
    )]
    DiskFull {
        /// Folder of the cache.
        cache: PathBuf,
        /// Number of bytes that are missing in the cache, if it was compared with the free space.
        needed: Option<u64>,
        /// Number of bytes that are free.
        free: Option<u64>,
    },
    /// The cache contains something that no tool of the hub leaves there.
    #[error("`{}` {what}; remove it, and download the files again", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The cache cannot be read or written.
    #[error("cannot {action} `{}`: {}", path.display(), with_remedy(source, "check its permissions, or set HF_HUB_CACHE to another folder"))]
    Cache {
        /// What was tried.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The caller has stopped the download.
    #[error("the download of `{file}` was stopped; run again to resume it")]
    Stopped {
        /// The file.
        file: String,
    },
}

impl HubError {
    pub(crate) fn variable(name: &str, what: String, fix: &'static str) -> Self {
        Self::Setting { place: format!("the environment variable {name}"), what, fix }
    }
}

fn no_repo(repo: &RepoName, endpoint: &str, has_token: bool) -> String {
    let what = match repo.kind() {
        RepoKind::Model => format!("`{repo}` is neither a folder here nor a model on {endpoint}"),
        RepoKind::DataSet => format!("`{}` is not a data set on {endpoint}", repo.id()),
    };
    match has_token {
        true => format!("{what} that the token in use can read; check the name"),
        false => format!("{what}; check the name, or set HF_TOKEN if it is private"),
    }
}

fn gated(repo: &RepoName, page: &str, has_token: bool) -> String {
    let what = format!("the {} `{}` is gated", repo.kind(), repo.id());
    match has_token {
        true => format!(
            "{what}, and the account of the token in use has no access; ask for it on {page}"
        ),
        false => format!("{what}; accept its conditions on {page}, then set HF_TOKEN"),
    }
}

fn no_space(cache: &Path, needed: Option<u64>, free: Option<u64>) -> String {
    match (needed, free) {
        (Some(needed), Some(free)) => format!(
            "the disk of the cache `{}` has {} free, and the download needs {}",
            cache.display(),
            bytes(free),
            bytes(needed)
        ),
        _ => format!("the disk of the cache `{}` is full", cache.display()),
    }
}

fn wait_words(wait: Option<Duration>) -> String {
    match wait {
        Some(wait) => format!(
            "run again in {} s, or set HF_TOKEN, with which the limit is higher",
            wait.as_secs()
        ),
        None => "run again later, or set HF_TOKEN, with which the limit is higher".to_owned(),
    }
}

fn quoted(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" (\"{}\")", short_text(message)) }
}

/// Returns a size as people read it.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} bytes"),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
