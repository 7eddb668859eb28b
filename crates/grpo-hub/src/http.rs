//! Requests to the hub and to the servers to which it redirects.

use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body, Error, Timeout};

use crate::error::HubError;
use crate::http_date;
use crate::settings::HubSettings;
use crate::url::Url;

const MOST_REDIRECTS: usize = 10;

/// Largest listing of a repository, which has about 300 bytes per file.
const LARGEST_LISTING: u64 = 256 << 20;

const FIX_OF_NETWORK: &str =
    "check the network, HF_ENDPOINT, and a proxy in HTTPS_PROXY or HTTP_PROXY";
const FIX_OF_TLS: &str = "check HF_ENDPOINT, the clock of this machine, and any proxy in between; SSL_CERT_FILE can name other certificates to trust";

/// A client of the hub.
#[derive(Debug)]
pub(crate) struct Http {
    /// Built for the first request, because complete caches need none.
    agent: OnceLock<Agent>,
    settings: HubSettings,
    hub: Url,
    /// Whether any request had an answer.
    was_reached: AtomicBool,
}

/// What a server has answered, after redirects.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) url: Url,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Box<HubError>,
    pub(crate) retry: Retry,
}

impl Failure {
    pub(crate) fn new(error: HubError, retry: Retry) -> Self {
        Self { error: Box::new(error), retry }
    }
}

/// Whether a request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    No,
    /// Only if an earlier one had an answer.
    IfReachedBefore,
    Yes,
    /// After the pause for which the server asks.
    After(Duration),
}

/// Which redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The head of a file. Only redirects to the hub itself are followed, because the hub describes
    /// the file in the reply that redirects to another server.
    Head,
    /// Content from a byte on.
    Get { from: u64 },
}

impl Http {
    pub(crate) fn new(settings: HubSettings) -> Result<Self, HubError> {
        let hub = Url::parse(&settings.endpoint).ok_or_else(|| {
            let what = format!("is \"{}\"", settings.endpoint);
            HubError::variable("HF_ENDPOINT", what, "expected a URL such as https://huggingface.co")
        })?;
        Ok(Self { agent: OnceLock::new(), settings, hub, was_reached: AtomicBool::new(false) })
    }

    fn agent(&self) -> Result<&Agent, HubError> {
        if let Some(agent) = self.agent.get() {
            return Ok(agent);
        }
        let settings = &self.settings;
        let config = Agent::config_builder()
            .tls_config(settings.route.tls()?)
            // Each request has its own.
            .proxy(None)
            .timeout_resolve(Some(settings.reply_limit))
            .timeout_connect(Some(settings.reply_limit))
            // Not a limit of a whole body: a model takes minutes or hours.
            .timeout_per_read(Some(settings.idle_limit))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("grpo-hub/", env!("CARGO_PKG_VERSION")));
        Ok(self.agent.get_or_init(|| config.build().new_agent()))
    }

    pub(crate) fn settings(&self) -> &HubSettings {
        &self.settings
    }

    /// Returns whether a URL is on the hub itself: same scheme, host and port.
    pub(crate) fn is_hub(&self, url: &Url) -> bool {
        url.has_origin_of(&self.hub)
    }

    /// Returns the URL of a path on the hub.
    pub(crate) fn url(&self, path: &str) -> Result<Url, HubError> {
        let text = format!("{}/{path}", self.settings.endpoint);
        Url::parse(&text)
            .ok_or_else(|| HubError::Reply { url: text, what: "this is not a URL".to_owned() })
    }

    /// Sends a request and follows redirects. The token is sent only to the hub.
    pub(crate) fn send(&self, method: Method, url: &Url) -> Result<Reply, Failure> {
        let mut url = url.clone();
        let mut kept = HeaderMap::new();
        for _ in 0..=MOST_REDIRECTS {
            let (parts, body) = self.send_once(method, &url)?.into_parts();
            let status = parts.status.as_u16();
            let target = match (status, parts.headers.get("location")) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let location = String::from_utf8_lossy(location.as_bytes());
                    url.redirect(&location).ok_or_else(|| {
                        let what = "it redirects to something that is not a web page";
                        Failure::new(self.bad_reply(&url, what), Retry::No)
                    })?
                }
                _ => return Ok(Reply { url, status, headers: merged(kept, parts.headers), body }),
            };
            if method == Method::Head && !self.is_hub(&target) {
                return Ok(Reply {
                    url,
                    status: 200,
                    headers: merged(kept, described(parts.headers)),
                    body,
                });
            }
            kept = merged(kept, described(parts.headers));
            url = target;
        }
        Err(Failure::new(self.bad_reply(&url, "it redirects too often"), Retry::No))
    }

    fn send_once(&self, method: Method, url: &Url) -> Result<Response<Body>, Failure> {
        let unusable = |error| Failure::new(error, Retry::No);
        let agent = self.agent().map_err(unusable)?;
        let proxy = self.settings.route.proxy(url).map_err(unusable)?;
        let request = match method {
            Method::Head => agent.head(url.text()),
            Method::Get { .. } => agent.get(url.text()),
        };
        let request = request.config().proxy(proxy).build();
        // Sizes and ranges are those of the content, not of a compressed form.
        let mut request = request.header("Accept-Encoding", "identity");
        if let Method::Get { from: from @ 1.. } = method {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = self.settings.token.as_ref().filter(|_| self.is_hub(url)) {
            request = request.header("Authorization", format!("Bearer {}", token.text()));
        }
        let reply = request.call().map_err(|error| self.failure(url, &error))?;
        self.was_reached.store(true, Ordering::Relaxed);
        let has_content = method != Method::Head && reply.status().is_success();
        match reply.headers().get("content-encoding") {
            Some(encoding) if has_content && encoding != "identity" => {
                let what = "it sends compressed content, which was not asked for";
                Err(Failure::new(self.bad_reply(url, what), Retry::No))
            }
            _ => Ok(reply),
        }
    }

    /// Sends requests until one has an answer, and reads it as a whole. Also returns the URL of the next
    /// page, if there is one.
    pub(crate) fn get_whole(
        &self,
        url: &Url,
        refused: &dyn Fn(&Reply) -> Failure,
        pause: &mut dyn FnMut(&HubError, Duration) -> Result<(), HubError>,
    ) -> Result<(Vec<u8>, Option<Url>), HubError> {
        self.with_retries(pause, &mut || {
            let mut reply = self.send(Method::Get { from: 0 }, url)?;
            if reply.status != 200 {
                return Err(refused(&reply));
            }
            let body = reply.body.with_config().limit(LARGEST_LISTING).read_to_vec();
            let body = body.map_err(|error| self.failure(&reply.url, &error))?;
            Ok((body, reply.next_page()))
        })
    }

    /// Repeats a request until it has an answer.
    pub(crate) fn with_retries<T>(
        &self,
        pause: &mut dyn FnMut(&HubError, Duration) -> Result<(), HubError>,
        request: &mut dyn FnMut() -> Result<T, Failure>,
    ) -> Result<T, HubError> {
        let mut retries = 0;
        loop {
            let failure = match request() {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match self.pause_before(retries, failure.retry) {
                Some(length) => pause(&failure.error, length)?,
                None => return Err(*failure.error),
            }
            retries += 1;
        }
    }

    /// Returns the pause before another attempt, or `None` if there is none.
    pub(crate) fn pause_before(&self, retries: u32, retry: Retry) -> Option<Duration> {
        let HubSettings { first_pause, longest_pause, .. } = self.settings;
        let may = match retry {
            Retry::No => false,
            Retry::IfReachedBefore => self.was_reached.load(Ordering::Relaxed),
            Retry::Yes => true,
            Retry::After(wait) => wait <= longest_pause,
        };
        let growing = first_pause.saturating_mul(1 << retries.min(20)).min(longest_pause);
        let pause = if let Retry::After(wait) = retry { wait.max(growing) } else { growing };
        (may && retries < self.settings.retries).then_some(pause)
    }

    pub(crate) fn bad_reply(&self, url: &Url, what: &str) -> HubError {
        HubError::Reply { url: url.shown(), what: what.to_owned() }
    }

    pub(crate) fn failure(&self, url: &Url, error: &Error) -> Failure {
        let (what, fix, retry) = self.words(error);
        Failure::new(HubError::Connection { url: url.shown(), what, fix }, retry)
    }

    /// Says what went wrong with a connection, how to fix it, and whether to try again.
    fn words(&self, error: &Error) -> (String, &'static str, Retry) {
        let of_network = |what: String, retry| (what, FIX_OF_NETWORK, retry);
        match error {
            Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                let limit = self.settings.reply_limit.as_secs();
                of_network(format!("no connection within {limit} s"), Retry::Yes)
            }
            Error::Timeout(_) => {
                let limit = self.settings.idle_limit.as_secs_f64();
                of_network(format!("the server sent nothing for {limit} s"), Retry::Yes)
            }
            Error::HostNotFound => of_network(
                "the name of the server has no address".to_owned(),
                Retry::IfReachedBefore,
            ),
            Error::Rustls(_) | Error::Tls(_) => {
                (format!("the encrypted connection failed ({error})"), FIX_OF_TLS, Retry::No)
            }
            Error::Io(error) => self.io_words(error),
            Error::BodyExceedsLimit(_) => {
                let limit = LARGEST_LISTING >> 20;
                of_network(format!("the reply is larger than {limit} MiB"), Retry::No)
            }
            Error::ConnectProxyFailed(_) | Error::InvalidProxyUrl => {
                of_network("the proxy does not connect".to_owned(), Retry::No)
            }
            error => of_network(format!("the reply is damaged ({error})"), Retry::Yes),
        }
    }

    fn io_words(&self, error: &io::Error) -> (String, &'static str, Retry) {
        if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return self.words(inner);
        }
        let (what, retry) = match error.kind() {
            ErrorKind::ConnectionRefused => {
                ("the server refuses the connection".to_owned(), Retry::IfReachedBefore)
            }
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => {
                ("the connection was closed before the end of the reply".to_owned(), Retry::Yes)
            }
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                let limit = self.settings.idle_limit.as_secs_f64();
                (format!("the server sent nothing for {limit} s"), Retry::Yes)
            }
            // Errors of rustls while reading have this kind.
            ErrorKind::InvalidData => {
                let what = format!("the encrypted connection failed ({error})");
                return (what, FIX_OF_TLS, Retry::No);
            }
            _ if error.raw_os_error().is_none() => {
                // The resolver of the system has no error numbers.
                (format!("the server cannot be found ({error})"), Retry::IfReachedBefore)
            }
            _ => (error.to_string(), Retry::IfReachedBefore),
        };
        (what, FIX_OF_NETWORK, retry)
    }

    /// Says what went wrong while reading a body.
    pub(crate) fn read_failure(&self, error: &io::Error) -> (String, Retry) {
        let (what, _, retry) = self.io_words(error);
        (what, retry)
    }
}

/// Returns the headers with which the hub describes a file in a redirect.
fn described(headers: HeaderMap) -> HeaderMap {
    let is_of_file = |name: &str| name.starts_with("x-linked-") || name == "x-repo-commit";
    let ours = headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    ours.filter(|(name, _)| is_of_file(name.as_str())).collect()
}

/// Returns the headers of several replies. Later ones count.
fn merged(mut headers: HeaderMap, later: HeaderMap) -> HeaderMap {
    headers.extend(later);
    headers
}

impl Reply {
    /// Returns a header as text, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the size of the file that this reply describes or starts to send.
    pub(crate) fn size(&self) -> Option<u64> {
        let linked = self.header("x-linked-size").parse().ok();
        linked.or_else(|| self.header("content-length").parse().ok())
    }

    /// Returns the pause that the server asks for: as seconds, as a date, or as the hub does, which says
    /// when its limit on requests ends (`RateLimit: "api";r=0;t=55`).
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let wait = self.header("retry-after").trim();
        let until = || {
            // By the clock of the server, because that of this machine may be wrong.
            let seconds = http_date::seconds(wait)? - http_date::seconds(self.header("date"))?;
            Some(seconds.max(0) as f64)
        };
        let end_of_limit = || {
            let parts = self.header("ratelimit").split(';');
            parts.filter(|_| self.status == 429).find_map(|part| {
                part.trim().strip_prefix("t=").and_then(|seconds| seconds.parse::<f64>().ok())
            })
        };
        let seconds = wait.parse().ok().or_else(until).or_else(end_of_limit)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Returns the URL in `Link: <…>; rel="next"`.
    fn next_page(&self) -> Option<Url> {
        let links = self.headers.get_all("link").iter().filter_map(|value| value.to_str().ok());
        let next = links.flat_map(|value| value.split(',')).find(|link| {
            link.split(';').skip(1).any(|part| matches!(part.trim(), "rel=\"next\"" | "rel=next"))
        })?;
        self.url.redirect(next.split_once('<')?.1.split_once('>')?.0)
    }
}
