//! Errors of endpoints.

use std::path::PathBuf;

/// Number of characters of a body that an error shows.
const SHOWN: usize = 200;

/// Error that makes an endpoint or a cache unusable, or the reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// A setting is out of range.
    #[error("`{key}` is {found}; expected {expected}")]
    Setting {
        /// Name of the setting.
        key: &'static str,
        /// Its value.
        found: String,
        /// Expected values.
        expected: String,
    },
    /// The environment variable with the API key cannot be used.
    #[error(
        "the environment variable {variable} {what}; export it with the API key, or remove `api_key_env`"
    )]
    ApiKey {
        /// Name of the variable.
        variable: String,
        /// What is wrong.
        what: &'static str,
    },
    /// No complete reply arrived.
    #[error("{url}: {what} ({attempts}); {fix}")]
    Connection {
        /// URL of the request.
        url: String,
        /// What went wrong.
        what: String,
        /// Number of attempts.
        attempts: Attempts,
        /// How to fix it.
        fix: &'static str,
    },
    /// The server answered with a status other than 200.
    #[error("{url}: status {status} ({attempts}): {body}; {fix}")]
    Status {
        /// URL of the request.
        url: String,
        /// HTTP status.
        status: u16,
        /// Number of attempts.
        attempts: Attempts,
        /// Start of the body, quoted.
        body: String,
        /// How to fix it.
        fix: String,
    },
    /// The reply is not what the API specifies.
    #[error("{url}: the reply {what}: {body}; {fix}")]
    Reply {
        /// URL of the request.
        url: String,
        /// What is wrong.
        what: String,
        /// Start of the body, quoted.
        body: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// The cache cannot be read or written.
    #[error("{}: {what}; {fix}", path.display())]
    Cache {
        /// Path of the cache, with the line number if one line is wrong.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// How to fix it.
        fix: &'static str,
    },
}

impl EndpointError {
    /// Returns whether the server could not be reached, did not answer in time, or was overloaded or
    /// broken, so that another server may answer the same request.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..),
            Self::Setting { .. }
            | Self::ApiKey { .. }
            | Self::Reply { .. }
            | Self::Cache { .. } => false,
        }
    }

    /// Returns the HTTP status, if it was not 200.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Number of attempts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts(pub u32);

impl std::fmt::Display for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            1 => write!(f, "1 attempt"),
            count => write!(f, "{count} attempts"),
        }
    }
}

/// Returns the first 200 characters of a body, quoted, with control characters escaped.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN)]);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() || body.len() > 4 * SHOWN {
        shown.push('…');
    }
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_escaped() {
        assert_eq!(excerpt(b"a\n\x1b[2J"), r#""a\n\u{1b}[2J""#);
        let text = "é".repeat(200);
        assert_eq!(excerpt(text.as_bytes()), format!("\"{text}\""));
        assert_eq!(excerpt((text.clone() + "b").as_bytes()), format!("\"{text}…\""));
        assert_eq!(excerpt(&[0xff, b'x']), "\"\u{fffd}x\"");
        let long = excerpt(&[b'a'; 5000]);
        assert_eq!(long, format!("\"{}…\"", "a".repeat(200)));
    }
}
