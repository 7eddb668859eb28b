//! Posting JSON to a server, with retries.

use std::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use crate::config::EndpointConfig;
use crate::error::{Attempts, EndpointError, excerpt};
use crate::tls;

/// Maximum size of a reply in bytes.
const LARGEST_REPLY: u64 = 16 << 20;
/// How often a pause checks whether the batch has ended.
const SLICE: Duration = Duration::from_millis(50);

const FIX_OF_TLS: &str =
    "check the server's certificate, or set endpoint.ca_file to that of its authority";

/// A server and the API key for it.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    agent: Agent,
    config: EndpointConfig,
    base: String,
    key: Option<ApiKey>,
}

/// Never displayed, not even by `{:?}`.
#[derive(Clone)]
struct ApiKey(String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The end of a request.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Number of HTTP requests.
    pub(crate) attempts: u32,
    /// The body of a reply with status 200, or an error.
    pub(crate) outcome: Result<Vec<u8>, EndpointError>,
}

impl EndpointError {
    /// Returns whether other requests to the same server may succeed.
    pub(crate) fn is_of_request(&self) -> bool {
        matches!(self, Self::Status { status: 400 | 413 | 422, .. })
    }
}

/// A failed attempt.
struct Failure {
    error: EndpointError,
    may_repeat: bool,
    /// Pause that the server asks for.
    wait: Option<Duration>,
}

impl Http {
    /// Checks the settings and reads the API key.
    pub(crate) fn new(config: EndpointConfig) -> Result<Self, EndpointError> {
        config.check()?;
        let base = config.base()?;
        let key = config.api_key_env.as_deref().map(api_key).transpose()?;
        let mut builder = Agent::config_builder()
            .tls_config(tls::config(config.ca_file.as_deref())?)
            .timeout_global(Some(Duration::from_secs_f64(config.time_limit)))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(config.parallel)
            .max_idle_connections_per_host(config.parallel)
            .user_agent(concat!("grpo-endpoint/", env!("CARGO_PKG_VERSION")));
        if config.is_local() {
            builder = builder.proxy(None);
        }
        Ok(Self { agent: builder.build().new_agent(), config, base, key })
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    pub(crate) fn parallel(&self) -> usize {
        self.config.parallel
    }

    /// Posts a JSON body until there is a reply, an error that a repetition cannot fix, or no
    /// repetition left. Stops early if `stop` is set.
    pub(crate) fn post(&self, path: &str, body: &[u8], stop: &AtomicBool) -> Exchange {
        let url = self.url(path);
        for attempt in 1.. {
            let failure = match self.attempt(&url, body, Attempts(attempt)) {
                Ok(reply) => return Exchange { attempts: attempt, outcome: Ok(reply) },
                Err(failure) => failure,
            };
            let wait = failure.wait.unwrap_or_else(|| self.config.pause_before(attempt - 1));
            let is_too_long = wait.as_secs_f64() > self.config.longest_pause;
            if !failure.may_repeat || attempt > self.config.retries || is_too_long {
                let error = match failure.error {
                    EndpointError::Status { url, status, attempts, body, .. } if is_too_long => {
                        let fix = format!(
                            "the server asks for a pause of {} s: run again after it, or raise endpoint.longest_pause",
                            wait.as_secs()
                        );
                        EndpointError::Status { url, status, attempts, body, fix }
                    }
                    error => error,
                };
                return Exchange { attempts: attempt, outcome: Err(error) };
            }
            pause(wait, stop);
            if stop.load(Ordering::Relaxed) {
                return Exchange { attempts: attempt, outcome: Err(failure.error) };
            }
        }
        unreachable!("the number of attempts is limited")
    }

    fn attempt(&self, url: &str, body: &[u8], attempts: Attempts) -> Result<Vec<u8>, Failure> {
        let mut request = self.agent.post(url).content_type("application/json");
        if let Some(ApiKey(key)) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let failed = |error| self.connection_failure(url, error, attempts);
        let response = request.send(body).map_err(failed)?;
        let (head, mut body) = split(response);
        let body = body.with_config().limit(LARGEST_REPLY).read_to_vec().map_err(failed)?;
        if head.status == 200 {
            return Ok(body);
        }
        let status = head.status;
        let error = EndpointError::Status {
            url: url.to_owned(),
            status,
            attempts,
            body: self.excerpt(&body),
            fix: self.fix_of_status(status),
        };
        // Servers without the API answer 501.
        let may_repeat = matches!(status, 408 | 429 | 500..) && status != 501;
        Err(Failure { error, may_repeat, wait: retry_after(&head.headers) })
    }

    /// Returns the start of a body, without the API key.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        match &self.key {
            Some(ApiKey(key)) => {
                let text = String::from_utf8_lossy(body).replace(key, "[API key]");
                excerpt(text.as_bytes())
            }
            None => excerpt(body),
        }
    }

    fn connection_failure(&self, url: &str, error: ureq::Error, attempts: Attempts) -> Failure {
        let (what, fix, may_repeat) = match &error {
            ureq::Error::Timeout(_) => (
                format!("no complete reply within {} s", self.config.time_limit),
                "raise endpoint.time_limit or lower endpoint.parallel",
                true,
            ),
            ureq::Error::BodyExceedsLimit(_) => {
                ("the reply is larger than 16 MiB".to_owned(), "lower max_tokens", false)
            }
            ureq::Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => (
                "the connection was closed before the end of the reply".to_owned(),
                "check the server's log and any proxy in front of it",
                true,
            ),
            // Rustls's errors have the kind InvalidData.
            ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
                (error.to_string(), FIX_OF_TLS, false)
            }
            ureq::Error::Rustls(_) | ureq::Error::Tls(_) => (error.to_string(), FIX_OF_TLS, false),
            ureq::Error::Io(error) => {
                (error.to_string(), "start the server, or correct endpoint.url", true)
            }
            error => (error.to_string(), "start the server, or correct endpoint.url", true),
        };
        let error = EndpointError::Connection { url: url.to_owned(), what, attempts, fix };
        Failure { error, may_repeat, wait: None }
    }

    fn fix_of_status(&self, status: u16) -> String {
        match (status, &self.config.api_key_env) {
            (401 | 403, Some(variable)) => format!("check the API key in {variable}"),
            (401 | 403, None) => {
                "set endpoint.api_key_env to the environment variable with the API key".to_owned()
            }
            (404 | 501, _) => "check endpoint.url and the name of the model".to_owned(),
            (400 | 413 | 422, _) => {
                "check the model, max_tokens and extra keys, and the length of the prompt"
                    .to_owned()
            }
            (429, _) => {
                "lower endpoint.parallel, raise endpoint.retries, or check the quota".to_owned()
            }
            (300..400, _) => "set endpoint.url to the URL to which it redirects".to_owned(),
            (500.., _) => "check the server's log, or raise endpoint.retries".to_owned(),
            _ => "check endpoint.url".to_owned(),
        }
    }
}

struct Head {
    status: u16,
    headers: HeaderMap,
}

fn split(response: Response<Body>) -> (Head, Body) {
    let (parts, body) = response.into_parts();
    (Head { status: parts.status.as_u16(), headers: parts.headers }, body)
}

fn api_key(variable: &str) -> Result<ApiKey, EndpointError> {
    let refused = |what| EndpointError::ApiKey { variable: variable.to_owned(), what };
    let is_name = !variable.is_empty() && !variable.contains(['=', '\0']);
    let value = is_name.then(|| std::env::var_os(variable)).flatten();
    let value = value.ok_or_else(|| refused("is not set"))?;
    let value = value.to_str().map(str::trim).unwrap_or_default();
    if value.is_empty() || !value.chars().all(|c| c.is_ascii_graphic()) {
        return Err(refused("does not contain an API key (visible ASCII characters)"));
    }
    Ok(ApiKey(value.to_owned()))
}

/// Returns the pause that a server asks for, in seconds or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    (date.with_timezone(&Utc) - Utc::now()).to_std().ok().or(Some(Duration::ZERO))
}

fn pause(duration: Duration, stop: &AtomicBool) {
    let start = Instant::now();
    while let Some(left) = duration.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(left.min(SLICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_servers_ask_for() {
        let check = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("Retry-After", value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(check("3"), Some(Duration::from_secs(3)));
        assert_eq!(check(" 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(check("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let soon = (Utc::now() + Duration::from_secs(20)).to_rfc2822().replace("+0000", "GMT");
        let found = check(&soon).unwrap().as_secs_f64();
        assert!((18.0..=20.0).contains(&found), "{found}");
        for value in ["-1", "nan", "inf", "later", ""] {
            assert_eq!(check(value), None, "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    /// Cargo sets CARGO_PKG_NAME for tests.
    #[test]
    fn api_keys_are_not_shown() {
        let config = EndpointConfig {
            api_key_env: Some("CARGO_PKG_NAME".to_owned()),
            ..EndpointConfig::new("http://localhost:1")
        };
        let http = Http::new(config).unwrap();
        assert_eq!(http.key.as_ref().unwrap().0, "grpo-endpoint");
        assert!(!format!("{:?}", http.key).contains("endpoint"));
        let shown = http.excerpt(b"Incorrect API key provided: grpo-endpoint.");
        assert_eq!(shown, "\"Incorrect API key provided: [API key].\"");
    }

    #[test]
    fn environment_variables_without_a_key() {
        let check = |variable: &str| api_key(variable).unwrap_err().to_string();
        assert_eq!(
            check("GRPO_NO_SUCH_VARIABLE"),
            "the environment variable GRPO_NO_SUCH_VARIABLE is not set; export it with the API key, or remove endpoint.api_key_env"
        );
        assert!(check("").contains("is not set"));
        assert!(check("A=B").contains("is not set"));
        // "A blocking client …" has spaces.
        assert!(check("CARGO_PKG_DESCRIPTION").contains("does not contain an API key"));
    }
}
