//! Errors of endpoints.

use std::path::PathBuf;

use grpo_data::short_text;

/// Number of characters of a body that an error shows.
const SHOWN: usize = 200;

/// Error that makes an endpoint or a cache unusable, or the reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// A setting is out of range.
    #[error("{} is {found}; expected {expected}", named(key))]
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
        "the environment variable {} {what}; export it with the API key, or remove {}",
        short_text(variable),
        named(key)
    )]
    ApiKey {
        /// Name of the variable.
        variable: String,
        /// What is wrong.
        what: &'static str,
        /// Name of the setting that names the variable.
        key: &'static str,
    },
    /// The environment variable with a proxy does not name one.
    #[error(
        "the proxy \"{found}\" cannot be used: {what}; correct the environment variable ALL_PROXY, HTTPS_PROXY or HTTP_PROXY"
    )]
    Proxy {
        /// The proxy, without user and password.
        found: String,
        /// What is wrong.
        what: String,
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
        fix: String,
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
        fix: String,
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
            | Self::Proxy { .. }
            | Self::Reply { .. }
            | Self::Cache { .. } => false,
        }
    }

    /// Returns the error with other names of the settings, e.g. those of the options of a command.
    /// Settings for which `name` returns `None` keep their names.
    #[must_use]
    pub fn with_names(mut self, name: impl Fn(&str) -> Option<&'static str>) -> Self {
        match &mut self {
            Self::Setting { key, .. } | Self::ApiKey { key, .. } => *key = name(key).unwrap_or(key),
            Self::Connection { fix, .. } | Self::Status { fix, .. } | Self::Reply { fix, .. } => {
                // Every second part is between backticks.
                let part = |(index, part): (usize, &str)| match index % 2 {
                    0 => part.to_owned(),
                    _ => named(name(part).unwrap_or(part)),
                };
                *fix = fix.split('`').enumerate().map(part).collect();
            }
            Self::Proxy { .. } | Self::Cache { .. } => {}
        }
        self
    }

    /// Returns the HTTP status, if it was not 200.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Returns the name of a setting for a sentence. Options such as `--retries` have no backticks.
fn named(key: &str) -> String {
    if key.starts_with('-') { key.to_owned() } else { format!("`{key}`") }
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
    fn settings_have_the_names_of_their_users() {
        let name = |key: &str| match key {
            "retries" => Some("--retries"),
            "extra" => Some("--extra"),
            _ => None,
        };
        let (found, expected) = ("`retries`".to_owned(), "`extra`".to_owned());
        let setting = EndpointError::Setting { key: "retries", found, expected };
        let status = EndpointError::Status {
            url: "URL".to_owned(),
            status: 500,
            attempts: Attempts(1),
            body: "`retries`".to_owned(),
            fix: "raise `retries`, `extra` or `x`".to_owned(),
        };
        for (error, expected) in [
            (setting, "--retries is `retries`; expected `extra`"),
            (status, "URL: status 500 (1 attempt): `retries`; raise --retries, --extra or `x`"),
        ] {
            assert_eq!(error.with_names(name).to_string(), expected);
        }
    }

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
