//! What the hub's statuses mean.

use grpo_data::without_passwords;

use crate::error::HubError;
use crate::http::{Failure, Http, Reply, Retry};
use crate::name::RepoName;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A repository, without a revision.
    Repo,
    /// The commit and files of a revision.
    Revision,
    /// A file that is listed.
    File,
}

/// Explains a reply without the content that was asked for.
pub(crate) fn refusal(http: &Http, repo: &RepoName, asked: Asked, reply: &Reply) -> Failure {
    let settings = http.settings();
    let endpoint = without_passwords(&settings.endpoint).into_owned();
    let (repo, url) = (repo.clone(), reply.url.shown());
    let has_token = settings.token.is_some();
    let page = format!("{endpoint}/{}{}", repo.kind().prefix(), repo.id());
    let message = reply.header("x-error-message").to_owned();
    let wait = reply.retry_after();
    // Another server does not speak for the hub: a URL of its own may have expired.
    let is_hub = http.is_hub(&reply.url);
    let code = if is_hub { reply.header("x-error-code") } else { "" };
    let error = match (code, reply.status) {
        ("GatedRepo", _) => HubError::Gated { repo, page, has_token },
        ("RevisionNotFound", _) => HubError::NoRevision { repo, endpoint },
        ("RepoNotFound", _) => HubError::NoRepo { repo, endpoint, has_token },
        (_, 401) if is_hub => match &settings.token {
            Some(token) => HubError::Token { endpoint, origin: token.origin().to_owned() },
            // The hub does not tell whether a private repository exists.
            None => HubError::NoRepo { repo, endpoint, has_token },
        },
        (_, 404) if asked == Asked::Repo => HubError::NoRepo { repo, endpoint, has_token },
        (_, 404) if asked == Asked::Revision => HubError::NoRevision { repo, endpoint },
        (_, 429) => HubError::TooManyRequests { url, wait },
        (_, status) => {
            let fix = match status {
                403 if is_hub => "check that the token in HF_TOKEN may read this repository",
                408 | 500.. => "run again later",
                _ => "check HF_ENDPOINT, and any proxy in front of it",
            };
            HubError::Status { url, status, message, fix }
        }
    };
    let retry = match (reply.status, wait) {
        (429 | 408 | 500.., Some(wait)) => Retry::After(wait),
        (429 | 408 | 500.., None) => Retry::Yes,
        _ => Retry::No,
    };
    Failure::new(error, retry)
}
