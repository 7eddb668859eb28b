//! Posting JSON to a server, with retries.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use crate::config::EndpointConfig;
use crate::connection::{Fault, Scope};
use crate::error::{Attempts, EndpointError, excerpt};
use crate::http_url::{HttpUrl, host_and_port};
use crate::request::ReplyFault;
use crate::tls;

/// How often a pause checks whether the batch has ended.
const SLICE: Duration = Duration::from_millis(50);

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
    /// The body of a reply with status 200, or a failure.
    pub(crate) outcome: Result<Vec<u8>, Failure>,
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: EndpointError,
    pub(crate) scope: Scope,
    may_retry: bool,
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
            .user_agent(concat!("grpo-servers/", env!("CARGO_PKG_VERSION")));
        if config.is_local() {
            builder = builder.proxy(None);
        }
        let agent = builder.build().new_agent();
        check_proxy(&agent)?;
        Ok(Self { agent, config, base, key })
    }

    pub(crate) fn is_local(&self) -> bool {
        self.config.is_local()
    }

    /// Returns the base URL.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    pub(crate) fn parallel(&self) -> usize {
        self.config.parallel
    }

    /// Sends a POST request with a JSON body, or a GET request without one. Retries until a reply
    /// arrives, an error cannot be fixed by a retry, or no retries are left. Stops early if `stop` is set.
    pub(crate) fn exchange(&self, path: &str, body: Option<&[u8]>, stop: &AtomicBool) -> Exchange {
        let url = self.url(path);
        for attempt in 1.. {
            let failure = match self.attempt(&url, path, body, Attempts(attempt)) {
                Ok(reply) => return Exchange { attempts: attempt, outcome: Ok(reply) },
                Err(failure) => failure,
            };
            let wait = failure.wait.unwrap_or_else(|| self.config.pause_before(attempt - 1));
            let is_too_long = wait.as_secs_f64() > self.config.longest_pause;
            if !failure.may_retry || attempt > self.config.retries || is_too_long {
                let failure = if is_too_long { failure.with_long_pause(wait) } else { failure };
                return Exchange { attempts: attempt, outcome: Err(failure) };
            }
            pause(wait, stop);
            if stop.load(Ordering::Relaxed) {
                return Exchange { attempts: attempt, outcome: Err(failure) };
            }
        }
        unreachable!("the number of attempts is limited")
    }

    fn attempt(
        &self,
        url: &str,
        path: &str,
        body: Option<&[u8]>,
        attempts: Attempts,
    ) -> Result<Vec<u8>, Failure> {
        let key = self.key.as_ref().map(|ApiKey(key)| ("Authorization", format!("Bearer {key}")));
        let sent = match (body, key) {
            (None, None) => self.agent.get(url).call(),
            (None, Some((name, key))) => self.agent.get(url).header(name, key).call(),
            (Some(body), key) => {
                let request = self.agent.post(url).content_type("application/json");
                match key {
                    None => request.send(body),
                    Some((name, key)) => request.header(name, key).send(body),
                }
            }
        };
        let failed = |error: ureq::Error| self.connection_failure(url, &error, attempts);
        let response = sent.map_err(failed)?;
        let (head, mut body) = split(response);
        let body =
            body.with_config().limit(self.config.largest_reply).read_to_vec().map_err(failed)?;
        if head.status == 200 {
            return Ok(body);
        }
        let status = head.status;
        let error = EndpointError::Status {
            url: url.to_owned(),
            status,
            attempts,
            body: self.excerpt(&body),
            fix: match head.headers.get("location").filter(|_| (300..400).contains(&status)) {
                Some(location) => self.fix_of_redirect(url, path, location.as_bytes()),
                None => self.fix_of_status(status),
            },
        };
        let scope = match status {
            400 | 413 | 422 => Scope::Request,
            // Servers without the API answer 501.
            501 => Scope::Endpoint,
            408 | 500.. => Scope::Unclear,
            _ => Scope::Endpoint,
        };
        let may_retry = status == 429 || scope == Scope::Unclear;
        Err(Failure { error, scope, may_retry, wait: retry_after(&head.headers) })
    }

    /// Returns the error of a reply that is not what the API specifies.
    pub(crate) fn fault(&self, url: &str, fault: ReplyFault, body: &[u8]) -> EndpointError {
        let ReplyFault { what, fix, .. } = fault;
        let fix = fix.to_owned();
        EndpointError::Reply { url: url.to_owned(), what, body: self.excerpt(body), fix }
    }

    /// Returns the start of a body, without the API key.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        excerpt(self.without_key(&String::from_utf8_lossy(body)).as_bytes())
    }

    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(ApiKey(key)) => text.replace(key, "[API key]"),
            None => text.to_owned(),
        }
    }

    fn connection_failure(&self, url: &str, error: &ureq::Error, attempts: Attempts) -> Failure {
        let has_proxy = self.agent.config().proxy().is_some();
        let Fault { what, fix, scope, may_retry } = Fault::new(error, &self.config, has_proxy);
        let fix = fix.to_owned();
        let error = EndpointError::Connection { url: url.to_owned(), what, attempts, fix };
        Failure { error, scope, may_retry, wait: None }
    }

    /// Returns how to fix a redirect. It is not followed, because the prompts and the API key are for
    /// the server that the user names.
    fn fix_of_redirect(&self, url: &str, path: &str, location: &[u8]) -> String {
        let location = self.without_key(&String::from_utf8_lossy(location));
        let target = HttpUrl::redirect(url, &location);
        let base = target.strip_suffix(path).unwrap_or(&target).trim_end_matches('/');
        format!("use the URL to which it redirects: {base}")
    }

    fn fix_of_status(&self, status: u16) -> String {
        let is_retried = self.config.retries > 0;
        let fix = match (status, &self.config.api_key_env) {
            (401 | 403, Some(variable)) => return format!("check the API key in {variable}"),
            (401 | 403, None) => "set `api_key_env` to the environment variable with the API key",
            (404 | 501, _) => "check the URL and the name of the model",
            (400 | 413 | 422, _) => {
                "check the model, `max_tokens` and `extra`, and the length of the prompt"
            }
            (429, _) if !is_retried => "lower `parallel`, or check the quota",
            (500.., _) if !is_retried => "check the server's log",
            (429, _) => "lower `parallel`, raise `retries`, or check the quota",
            (300..400, _) => "check the URL: it redirects without saying where to",
            (500.., _) => "check the server's log, or raise `retries`",
            _ => "check the URL",
        };
        fix.to_owned()
    }
}

impl Failure {
    /// Replaces [`Scope::Unclear`].
    pub(crate) fn decide(&mut self, have_others_replies: bool) {
        if self.scope == Scope::Unclear {
            self.scope = if have_others_replies { Scope::Request } else { Scope::Endpoint };
        }
    }

    /// Returns the failure of a server that asks for a pause that is too long.
    fn with_long_pause(self, wait: Duration) -> Self {
        let error = match self.error {
            EndpointError::Status { url, status, attempts, body, .. } => {
                let fix = format!(
                    "the server asks for a pause of {} s: run again after it, or raise `longest_pause`",
                    wait.as_secs()
                );
                EndpointError::Status { url, status, attempts, body, fix }
            }
            error => error,
        };
        Self { error, scope: Scope::Endpoint, ..self }
    }
}

/// Checks the port of the proxy that environment variables name.
pub(crate) fn check_proxy(agent: &Agent) -> Result<(), EndpointError> {
    let Some(proxy) = agent.config().proxy() else { return Ok(()) };
    let authority = proxy.uri().authority().map_or("", |authority| authority.as_str());
    let address = authority.rsplit('@').next().unwrap_or_default();
    host_and_port(address).map(drop).map_err(|fault| EndpointError::Proxy {
        found: HttpUrl::shown(&proxy.uri().to_string()),
        what: fault.to_string(),
    })
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
    let key = "api_key_env";
    let refused = |what| EndpointError::ApiKey { variable: variable.to_owned(), what, key };
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
    (date.with_timezone(&Utc) - DateTime::<Utc>::from(SystemTime::now()))
        .to_std()
        .ok()
        .or(Some(Duration::ZERO))
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
        assert_eq!(http.key.as_ref().unwrap().0, "grpo-servers");
        assert!(!format!("{:?}", http.key).contains("servers"));
        let shown = http.excerpt(b"Incorrect API key provided: grpo-servers.");
        assert_eq!(shown, "\"Incorrect API key provided: [API key].\"");
    }

    #[test]
    fn proxies_at_ports_that_do_not_exist() {
        let check = |proxy: &str| {
            let proxy = ureq::Proxy::new(proxy).ok();
            check_proxy(&Agent::config_builder().proxy(proxy).build().new_agent())
        };
        for proxy in ["http://u:p@localhost:3128", "[::1]:3128", "proxy.example"] {
            assert_eq!(check(proxy), Ok(()), "{proxy}");
        }
        let error = check("http://u:p@localhost:99999").unwrap_err().to_string();
        let expected = "the proxy \"http://***@localhost:99999/\" cannot be used: the port `99999` is not a number from 1 to 65535; correct the environment";
        assert!(error.starts_with(expected), "{error}");
        assert!(check("u:p@localhost:65536").is_err());
    }

    #[test]
    fn environment_variables_without_a_key() {
        let check = |variable: &str| api_key(variable).unwrap_err().to_string();
        assert_eq!(
            check("GRPO_NO_SUCH_VARIABLE"),
            "the environment variable GRPO_NO_SUCH_VARIABLE is not set; export it with the API key, or remove `api_key_env`"
        );
        assert!(check("").contains("is not set"));
        assert!(check("A=B").contains("is not set"));
        // "Clients of servers: …" has spaces.
        assert!(check("CARGO_PKG_DESCRIPTION").contains("does not contain an API key"));
    }
}
