//! A reward server, which receives requests over HTTP.
//!
//! Each request has its own connection, which is closed after the reply. Redirects are not followed,
//! because prompts and completions are only for the server that the user names. For the same reason,
//! proxies of the environment are only used for encrypted connections to other machines, which they
//! cannot read.

use std::io::{ErrorKind, Read};
use std::thread;
use std::time::{Duration, Instant};

use grpo_data::ConfigFault;
use ureq::http::{HeaderMap, Uri, Version};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, Error};

use crate::connection::{FIX_OF_PROXY, FIX_OF_SCHEME, NO_PROXY, Problem};
use crate::error::excerpt;
use crate::http::check_proxy;
use crate::http_url::HttpUrl;

/// Maximum size of a reply in bytes.
const MOST: usize = 16 << 20;
/// Maximum size of the status line and headers in bytes.
const MOST_OF_HEAD: usize = 1 << 16;
/// Delays between connection attempts, in milliseconds.
const PAUSES: [u64; 5] = [100, 200, 400, 800, 1600];

/// A server.
pub(super) struct Server {
    url: String,
    agent: Agent,
}

/// A reply with a status that indicates success.
pub(super) struct Reply {
    pub(super) body: Vec<u8>,
    /// The headers that say where the body ends, for error messages.
    pub(super) framing: String,
}

/// The reason why a request has no reply.
pub(super) enum Failure {
    /// There is no connection, so the server cannot have received the request.
    Unreached(String),
    /// The reply is late.
    Late(String),
    /// The reply is invalid, or the connection was closed.
    Other(String),
}

impl Server {
    pub(super) fn new(url: &str, tls: TlsConfig) -> Result<Self, ConfigFault> {
        let refused = |fault: &str| {
            let shown = HttpUrl::shown(url);
            ConfigFault::from_sentence(
                "",
                format!(
                    "reward.url = \"{shown}\" is not a supported URL: {fault}; expected one such as http://localhost:8000/score"
                ),
            )
        };
        let parts = HttpUrl::parse(url).map_err(|fault| refused(&fault.to_string()))?;
        if url.parse::<Uri>().is_err() {
            return Err(refused("its path or query has a character that has to be written as %XX"));
        }
        let mut builder = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(MOST_OF_HEAD)
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            .user_agent(concat!("grpo-servers/", env!("CARGO_PKG_VERSION")));
        if !parts.is_encrypted || parts.is_local() {
            builder = builder.proxy(None);
        }
        let agent = builder.build().new_agent();
        check_proxy(&agent).map_err(|error| ConfigFault::new("", error.to_string(), ""))?;
        Ok(Self { url: url.to_owned(), agent })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request. If the server cannot be reached, tries again after a delay until `end`. A
    /// request is never sent twice, because the server may have processed the first one.
    pub(super) fn reply(&self, request: &[u8], end: Instant) -> Result<Reply, Failure> {
        let mut pauses = PAUSES.map(Duration::from_millis).into_iter();
        loop {
            let failure = match self.reply_once(request, end, None) {
                Err(failure @ Failure::Unreached(_)) => failure,
                other => return other,
            };
            match pauses.next().filter(|pause| Instant::now() + *pause < end) {
                Some(pause) => thread::sleep(pause),
                None => return Err(failure),
            }
        }
    }

    /// Sends a request. Waits for the connection for at most `patience`, and for the reply until `end`.
    pub(super) fn reply_once(
        &self,
        request: &[u8],
        end: Instant,
        patience: Option<Duration>,
    ) -> Result<Reply, Failure> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Late(String::new()));
        }
        let post = self.agent.post(&self.url).config();
        let post = post.timeout_global(Some(left)).timeout_connect(patience).build();
        let post = post.content_type("application/json").header("connection", "close");
        let response = post.send(request).map_err(|error| failure(&error, ""))?;
        let (head, body) = response.into_parts();
        let framing = framing(&head.headers);
        refuse_encoding(&head.headers, head.version)?;
        let body = read(body, &framing)?;
        match head.status.is_success() {
            true => Ok(Reply { body, framing }),
            false => {
                let target = head.headers.get("location").filter(|_| head.status.is_redirection());
                let redirect = target.map_or(String::new(), |location| {
                    let location = String::from_utf8_lossy(location.as_bytes());
                    let target = HttpUrl::redirect(&self.url, &location);
                    format!("; set reward.url to {target}, to which it redirects")
                });
                let (status, body) = (head.status.as_u16(), excerpt(&body));
                Err(Failure::Other(format!("it returned status {status}: {body}{redirect}")))
            }
        }
    }
}

/// Reads a body. An error says how much of it has arrived.
fn read(body: Body, framing: &str) -> Result<Vec<u8>, Failure> {
    let mut reader = body.into_reader();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let arrived = format!("; {} bytes of its body had arrived{framing}", bytes.len());
                return Err(failure(&Error::from(error), &arrived));
            }
        }
        if bytes.len() > MOST {
            return Err(Failure::Other("the response is larger than 16 MiB".to_owned()));
        }
    }
}

/// Rejects bodies that are compressed or otherwise encoded.
fn refuse_encoding(headers: &HeaderMap, version: Version) -> Result<(), Failure> {
    let refused = |what: String| Err(Failure::Other(format!("the reply has {what}")));
    let values = |name: &str| -> Vec<String> {
        let of_name = headers.get_all(name).iter();
        let words = |value: &[u8]| String::from_utf8_lossy(value).trim().to_ascii_lowercase();
        of_name.map(|value| words(value.as_bytes())).collect()
    };
    if let Some(encoding) = values("content-encoding").iter().find(|value| *value != "identity") {
        return refused(format!(
            "`Content-Encoding: {encoding}`, which is not supported; send it without compression"
        ));
    }
    let transfer = values("transfer-encoding").join(", ");
    match (transfer.as_str(), version) {
        ("" | "identity", _) => Ok(()),
        ("chunked", version) if version > Version::HTTP_10 => Ok(()),
        ("chunked", _) => refused(
            "`Transfer-Encoding: chunked`, which HTTP/1.0 does not have; answer with HTTP/1.1"
                .to_owned(),
        ),
        (other, _) => refused(format!(
            "`Transfer-Encoding: {other}`, which is not supported; use Content-Length or chunked"
        )),
    }
}

/// Describes the headers that determine the length of the body.
fn framing(headers: &HeaderMap) -> String {
    let names = [("content-length", "Content-Length"), ("transfer-encoding", "Transfer-Encoding")];
    let named = names.iter().flat_map(|(name, words)| {
        let values = headers.get_all(*name).iter();
        values.map(move |value| format!("{words}: {}", String::from_utf8_lossy(value.as_bytes())))
    });
    match named.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        named => format!(" (its headers have {named})"),
    }
}

/// Describes an error. `arrived` says what has arrived of the reply.
fn failure(error: &Error, arrived: &str) -> Failure {
    const FIX: &str = "start the server, or correct reward.url";
    const FIX_OF_NAME: &str = "correct reward.url, or check the network";
    const FIX_OF_TLS: &str =
        "check the server's certificate, or set reward.ca_file to that of its authority";
    let unreached = |what: &str, fix: &str| Failure::Unreached(format!("{what}; {fix}"));
    let invalid = |what: &str| Failure::Other(format!("invalid HTTP response: {what}{arrived}"));
    match Problem::of(error) {
        Problem::Unresolved(what) => unreached(&what, FIX_OF_NAME),
        Problem::Unreached(what) => unreached(&what, FIX),
        Problem::LateConnection => unreached("there was no connection in time", FIX),
        Problem::Proxy => unreached(NO_PROXY, FIX_OF_PROXY),
        Problem::Late | Problem::Silent(_) => Failure::Late(arrived.to_owned()),
        Problem::Tls { what, is_certificate } => {
            let fix = if is_certificate { FIX_OF_TLS } else { FIX_OF_SCHEME };
            Failure::Other(format!("{what}; {fix}"))
        }
        Problem::Damaged(what) => invalid(what),
        Problem::LargeHead => {
            Failure::Other("invalid HTTP response: its headers are larger than 64 KiB".to_owned())
        }
        Problem::Closed => Failure::Other(format!(
            "the connection was closed before the end of the response{arrived}"
        )),
        Problem::System(what) => Failure::Other(format!("{what}{arrived}")),
        Problem::LargeBody | Problem::Other => invalid("it is incomplete, or does not follow HTTP"),
    }
}
