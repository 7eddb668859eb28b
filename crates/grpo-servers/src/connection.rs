//! Failed connections and damaged replies.

use std::io::ErrorKind;

use ureq::{Error, Timeout};

use crate::config::EndpointConfig;
use crate::http_words::{connection_words, is_unresolved, reply_words};
use crate::request::FIX_OF_API;

const FIX_OF_SERVER: &str = "start the server, or correct its URL";
const FIX_OF_SERVER_OR_PROXY: &str =
    "start the server, correct its URL, or check the proxy in ALL_PROXY, HTTPS_PROXY or HTTP_PROXY";
const FIX_OF_CLOSED: &str = "check the server's log and any proxy in front of it";
pub(crate) const FIX_OF_PROXY: &str =
    "check the environment variables ALL_PROXY, HTTPS_PROXY, HTTP_PROXY and NO_PROXY";
const FIX_OF_TLS: &str =
    "check the server's certificate, or set `ca_file` to that of its authority";
pub(crate) const FIX_OF_SCHEME: &str =
    "check the URL: it may have to start with http:// instead of https://";
const FIX_OF_NAME: &str = "correct its URL, or check the network";

/// Which requests have a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// This one.
    Request,
    /// This one if any other has a reply, and otherwise all of them.
    Unclear,
    /// All requests to the server.
    Endpoint,
}

/// Why no complete reply arrived.
pub(crate) struct Fault {
    /// What went wrong, in plain words.
    pub(crate) what: String,
    pub(crate) fix: &'static str,
    pub(crate) scope: Scope,
    pub(crate) may_retry: bool,
}

impl Fault {
    /// Describes an error. `has_proxy` says whether the environment names a proxy.
    pub(crate) fn new(error: &Error, config: &EndpointConfig, has_proxy: bool) -> Self {
        use Scope::{Endpoint, Unclear};
        let of_server = if has_proxy { FIX_OF_SERVER_OR_PROXY } else { FIX_OF_SERVER };
        let (what, fix, scope, may_retry) = match Problem::of(error) {
            Problem::LateConnection | Problem::Late => {
                let what = format!("no complete reply within {} s", config.time_limit);
                (what, "raise `time_limit` or lower `parallel`", Unclear, true)
            }
            Problem::LargeBody => {
                let what = format!("the reply is larger than {} MiB", config.largest_reply >> 20);
                (what, "lower `max_tokens`", Unclear, false)
            }
            Problem::LargeHead => {
                let what = "the headers of the reply are larger than 64 KiB".to_owned();
                (what, FIX_OF_API, Unclear, false)
            }
            Problem::Damaged(words) => {
                (format!("the reply is damaged: {words}"), FIX_OF_API, Unclear, false)
            }
            Problem::Closed => {
                let what = "the connection was closed before the end of the reply".to_owned();
                (what, FIX_OF_CLOSED, Unclear, true)
            }
            Problem::Tls { what, is_certificate: true } => {
                (what.to_owned(), FIX_OF_TLS, Endpoint, false)
            }
            Problem::Tls { what, .. } => (what.to_owned(), FIX_OF_SCHEME, Endpoint, false),
            Problem::Unresolved(what) => (what, FIX_OF_NAME, Endpoint, true),
            Problem::Unreached(what) | Problem::Silent(what) | Problem::System(what) => {
                (what, of_server, Endpoint, true)
            }
            Problem::Other => (NO_CONNECTION.to_owned(), of_server, Endpoint, true),
            Problem::Proxy => (NO_PROXY.to_owned(), FIX_OF_PROXY, Endpoint, true),
        };
        Self { what, fix, scope, may_retry }
    }
}

/// What went wrong with a request, in plain words.
pub(crate) enum Problem {
    /// The name of the server has no address.
    Unresolved(String),
    /// There is no connection, so the server cannot have received the request.
    Unreached(String),
    /// There was no connection in time.
    LateConnection,
    /// There was no complete reply in time.
    Late,
    /// The system's own time limit is over.
    Silent(String),
    /// The server closed the connection.
    Closed,
    /// The encryption failed, perhaps because of the certificate.
    Tls { what: &'static str, is_certificate: bool },
    /// The proxy does not connect.
    Proxy,
    /// The headers are larger than the limit.
    LargeHead,
    /// The body is larger than the limit.
    LargeBody,
    /// The reply does not follow HTTP.
    Damaged(&'static str),
    /// Another error of the system.
    System(String),
    /// An error of the library.
    Other,
}

pub(crate) const NO_CONNECTION: &str = "there is no connection";
pub(crate) const NO_PROXY: &str = "the proxy does not connect";

impl Problem {
    pub(crate) fn of(error: &Error) -> Self {
        use ErrorKind::{
            AddrNotAvailable, BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset,
            HostUnreachable, InvalidData, NetworkUnreachable, NotFound, TimedOut, UnexpectedEof,
            WouldBlock,
        };
        match error {
            Error::Timeout(Timeout::Resolve | Timeout::Connect) => Self::LateConnection,
            Error::Timeout(_) => Self::Late,
            Error::BodyExceedsLimit(_) => Self::LargeBody,
            Error::LargeResponseHeader(..) => Self::LargeHead,
            Error::Protocol(error) => Self::Damaged(reply_words(&error.to_string())),
            Error::Io(error) => match error.kind() {
                BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => Self::Closed,
                // Rustls's errors have this kind.
                InvalidData => Self::tls(&error.to_string()),
                _ if is_unresolved(error) => Self::Unresolved(connection_words(error)),
                AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable
                | NotFound => Self::Unreached(connection_words(error)),
                TimedOut | WouldBlock => Self::Silent(connection_words(error)),
                _ => Self::System(connection_words(error)),
            },
            Error::Rustls(error) => Self::tls(&error.to_string()),
            Error::Tls(error) => Self::tls(error),
            Error::HostNotFound => {
                Self::Unresolved("the name of the server cannot be resolved".to_owned())
            }
            Error::ConnectProxyFailed(_) | Error::InvalidProxyUrl => Self::Proxy,
            Error::ConnectionFailed => Self::Unreached(NO_CONNECTION.to_owned()),
            Error::Other(_) | Error::TlsRequired => Self::Other,
            // For example a body that ends within a chunk.
            _ => Self::Damaged("it is incomplete, or does not follow HTTP"),
        }
    }

    /// Describes an error of the encryption.
    fn tls(message: &str) -> Self {
        let known = [
            ("alert", "the server refuses the TLS connection"),
            ("UnknownIssuer", "an unknown authority issued the server's certificate"),
            ("Expired", "the server's certificate has expired"),
            ("NotValidForName", "the server's certificate is for another name"),
            ("not valid for name", "the server's certificate is for another name"),
            ("NotValidYet", "the server's certificate is not valid yet"),
            ("certificate", "the server's certificate is not valid"),
        ];
        let known = known.iter().find(|(word, _)| message.contains(word));
        let what = known.map_or("the server does not answer with TLS", |(_, what)| what);
        Self::Tls { what, is_certificate: known.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_no_words_of_libraries() {
        let config = EndpointConfig::new("http://localhost");
        let refused = || Error::Io(std::io::Error::from_raw_os_error(111));
        let tls = |text: &str| Error::Io(std::io::Error::new(ErrorKind::InvalidData, text));
        for (error, has_proxy, expected) in [
            (refused(), false, "the connection was refused; start the server, or correct its URL"),
            (
                refused(),
                true,
                "the connection was refused; start the server, correct its URL, or check the proxy in ALL_PROXY, HTTPS_PROXY or HTTP_PROXY",
            ),
            (
                Error::HostNotFound,
                false,
                "the name of the server cannot be resolved; correct its URL, or check the network",
            ),
            (
                Error::ConnectProxyFailed("407/407".to_owned()),
                true,
                "the proxy does not connect; check the environment variables ALL_PROXY, HTTPS_PROXY, HTTP_PROXY and NO_PROXY",
            ),
            (
                tls("invalid peer certificate: UnknownIssuer"),
                false,
                "an unknown authority issued the server's certificate; check the server's certificate, or set `ca_file` to that of its authority",
            ),
            (
                tls("received corrupt message of type InvalidContentType"),
                false,
                "the server does not answer with TLS; check the URL: it may have to start with http:// instead of https://",
            ),
        ] {
            let Fault { what, fix, .. } = Fault::new(&error, &config, has_proxy);
            assert_eq!(format!("{what}; {fix}"), expected);
        }
    }
}
