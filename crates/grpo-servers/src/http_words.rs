//! Failures of HTTP connections in plain words.

use std::io::{Error, ErrorKind};

use grpo_data::without_os_code;

/// Messages of HTTP libraries by characteristic words, and what they say about a reply.
const REPLIES: [(&str, &str); 14] = [
    ("invalid HTTP version", "it does not start with HTTP/1.0 or HTTP/1.1"),
    ("unsupported http version", "its HTTP version is not supported"),
    ("invalid response status", "its status is not a number of three digits"),
    ("invalid header name", "a header has an invalid name"),
    ("invalid header value", "a header has an invalid value"),
    ("invalid new line", "a line of its head ends in the wrong place"),
    ("invalid token", "its first line has an invalid character"),
    ("too many headers", "it has too many headers"),
    ("content-length header not a number", "Content-Length is not a number"),
    ("conflicting content-length", "it has several values of Content-Length"),
    ("transfer-encoding and content-length", "it has Transfer-Encoding and Content-Length"),
    ("chunk", "the length of a chunk is wrong"),
    ("location header", "it redirects without a valid Location"),
    ("100-continue", "its interim reply has headers"),
];

/// Returns what is wrong with a reply that does not follow HTTP, as a clause about it. `message` is the
/// message of a library.
pub(crate) fn reply_words(message: &str) -> &'static str {
    let known = REPLIES.iter().find(|(words, _)| message.contains(words));
    known.map_or("it does not follow HTTP", |(_, words)| words)
}

/// Returns why there is no connection to a server.
pub(crate) fn connection_words(error: &Error) -> String {
    let message = error.to_string();
    let words = match error.kind() {
        ErrorKind::ConnectionRefused => "the connection was refused",
        ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            "this machine has no route to the server"
        }
        ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => "the network cannot be reached",
        ErrorKind::PermissionDenied => "this machine does not allow the connection",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "there was no answer in time",
        ErrorKind::BrokenPipe
        | ErrorKind::ConnectionAborted
        | ErrorKind::ConnectionReset
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof => "the connection was closed",
        _ if is_lookup(&message) => "the name of the server cannot be resolved",
        _ => without_os_code(&message),
    };
    words.to_owned()
}

/// Returns whether the name of a server cannot be resolved.
pub(crate) fn is_unresolved(error: &Error) -> bool {
    is_lookup(&error.to_string())
}

fn is_lookup(message: &str) -> bool {
    message.contains("lookup address information")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_of_the_system_is_left() {
        let lookup = "failed to lookup address information: Name or service not known";
        for (error, expected) in [
            (Error::from_raw_os_error(111), "the connection was refused"),
            (Error::from_raw_os_error(113), "this machine has no route to the server"),
            (Error::from_raw_os_error(101), "the network cannot be reached"),
            (Error::from_raw_os_error(104), "the connection was closed"),
            (Error::from_raw_os_error(24), "Too many open files"),
            (Error::other(lookup), "the name of the server cannot be resolved"),
        ] {
            assert_eq!(connection_words(&error), expected, "{error}");
        }
        assert!(is_unresolved(&Error::other(lookup)));
    }

    #[test]
    fn damaged_replies() {
        for (message, expected) in [
            (
                "http parse fail: invalid HTTP version",
                "it does not start with HTTP/1.0 or HTTP/1.1",
            ),
            ("http parse resulted in too many headers", "it has too many headers"),
            ("chunk length is not ascii", "the length of a chunk is wrong"),
            ("output too small", "it does not follow HTTP"),
        ] {
            assert_eq!(reply_words(message), expected);
        }
    }
}
