//! Failed connections and damaged replies.

use std::io::ErrorKind;

use grpo_data::{connection_words, is_unresolved, reply_words};
use ureq::Error;

use crate::config::EndpointConfig;
use crate::request::FIX_OF_API;

const FIX_OF_SERVER: &str = "start the server, or correct its URL";
const FIX_OF_SERVER_OR_PROXY: &str =
    "start the server, correct its URL, or check the proxy in ALL_PROXY, HTTPS_PROXY or HTTP_PROXY";
const FIX_OF_CLOSED: &str = "check the server's log and any proxy in front of it";
const FIX_OF_PROXY: &str =
    "check the environment variables ALL_PROXY, HTTPS_PROXY, HTTP_PROXY and NO_PROXY";
const FIX_OF_TLS: &str =
    "check the server's certificate, or set `ca_file` to that of its authority";

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
        let fix_of_server = if has_proxy { FIX_OF_SERVER_OR_PROXY } else { FIX_OF_SERVER };
        let fault = |what: &str, fix, scope, may_retry| Self {
            what: what.to_owned(),
            fix,
            scope,
            may_retry,
        };
        match error {
            Error::Timeout(_) => {
                let what = format!("no complete reply within {} s", config.time_limit);
                let fix = "raise `time_limit` or lower `parallel`";
                fault(&what, fix, Scope::Unclear, true)
            }
            Error::BodyExceedsLimit(_) => {
                let what = format!("the reply is larger than {} MiB", config.largest_reply >> 20);
                fault(&what, "lower `max_tokens`", Scope::Unclear, false)
            }
            Error::LargeResponseHeader(..) => {
                let what = "the headers of the reply are larger than 64 KiB";
                fault(what, FIX_OF_API, Scope::Unclear, false)
            }
            Error::Protocol(error) => {
                let what = format!("the reply is damaged: {}", reply_words(&error.to_string()));
                fault(&what, FIX_OF_API, Scope::Unclear, false)
            }
            Error::Io(error) if is_closed(error.kind()) => fault(
                "the connection was closed before the end of the reply",
                FIX_OF_CLOSED,
                Scope::Unclear,
                true,
            ),
            // Rustls's errors have the kind InvalidData.
            Error::Io(error) if error.kind() == ErrorKind::InvalidData => tls(&error.to_string()),
            Error::Rustls(error) => tls(&error.to_string()),
            Error::Tls(error) => tls(error),
            Error::Io(error) => {
                let fix = match is_unresolved(error) {
                    true => "correct its URL, or check the network",
                    false => fix_of_server,
                };
                fault(&connection_words(error), fix, Scope::Endpoint, true)
            }
            Error::HostNotFound => fault(
                "the name of the server cannot be resolved",
                "correct its URL, or check the network",
                Scope::Endpoint,
                true,
            ),
            Error::ConnectProxyFailed(_) | Error::InvalidProxyUrl => {
                fault("the proxy does not connect", FIX_OF_PROXY, Scope::Endpoint, true)
            }
            Error::ConnectionFailed | Error::Other(_) | Error::TlsRequired => {
                fault("there is no connection", fix_of_server, Scope::Endpoint, true)
            }
            // For example a body that ends within a chunk.
            _ => fault(
                "the reply is damaged: it is incomplete, or does not follow HTTP",
                FIX_OF_API,
                Scope::Unclear,
                false,
            ),
        }
    }
}

/// Describes an error of the encryption.
fn tls(message: &str) -> Fault {
    let certificate = [
        ("alert", "the server refuses the TLS connection"),
        ("UnknownIssuer", "an unknown authority issued the server's certificate"),
        ("Expired", "the server's certificate has expired"),
        ("NotValidForName", "the server's certificate is for another name"),
        ("not valid for name", "the server's certificate is for another name"),
        ("NotValidYet", "the server's certificate is not valid yet"),
        ("certificate", "the server's certificate is not valid"),
    ];
    let known = certificate.iter().find(|(word, _)| message.contains(word));
    let (what, fix) = match known {
        Some((_, what)) => (*what, FIX_OF_TLS),
        None => (
            "the server does not answer with TLS",
            "check the URL: it may have to start with http:// instead of https://",
        ),
    };
    Fault { what: what.to_owned(), fix, scope: Scope::Endpoint, may_retry: false }
}

/// Returns whether an error means that the server closed the connection.
fn is_closed(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
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
