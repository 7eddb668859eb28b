//! URLs of HTTP servers.

use std::net::{IpAddr, Ipv6Addr};

use grpo_data::short_text;

/// The parts of a URL that starts with `http://` or `https://`.
///
/// Every URL that the program connects to is parsed here first: HTTP libraries replace a port that they
/// cannot read by the standard one, so prompts would go to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl<'a> {
    /// Whether it starts with `https://`.
    pub(crate) is_encrypted: bool,
    /// Name or address of the server, without the brackets of an IPv6 address.
    pub(crate) host: &'a str,
    /// Port, if the URL has one.
    pub(crate) port: Option<u16>,
    /// Path and query with the `/` or `?` in front, or empty.
    pub(crate) path: &'a str,
}

/// Why a text is not the URL of an HTTP server, as a clause about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpUrlFault {
    /// It has another scheme or none.
    #[error("it does not start with http:// or https://")]
    Scheme,
    /// It has a user or a password in front of its host.
    #[error("users and passwords are not supported")]
    Credentials,
    /// It has no host.
    #[error("it has no host")]
    NoHost,
    /// Its host is not a name or an address.
    #[error("the host `{0}` is not a name or an address; IPv6 addresses are in brackets")]
    Host(String),
    /// Its port does not exist.
    #[error("the port `{0}` is not a number from 1 to 65535")]
    Port(String),
    /// It has a character that no URL has.
    #[error("it contains the character {0}, which has to be written as %XX")]
    Character(String),
}

/// Longest name of a host.
const LONGEST_HOST: usize = 253;

impl<'a> HttpUrl<'a> {
    /// Parses a URL without user and password.
    ///
    /// # Errors
    /// Returns an error if it is not the URL of an HTTP server.
    pub(crate) fn parse(url: &'a str) -> Result<Self, HttpUrlFault> {
        let schemes = [("http://", false), ("https://", true)];
        let known = schemes.iter().find_map(|(scheme, is_encrypted)| {
            url.strip_prefix(scheme).map(|rest| (rest, *is_encrypted))
        });
        let (rest, is_encrypted) = known.ok_or(HttpUrlFault::Scheme)?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(HttpUrlFault::Credentials);
        }
        let is_foreign = |c: &char| !c.is_ascii_graphic() || "\"#<>\\^`".contains(*c);
        if let Some(foreign) = rest.chars().find(is_foreign) {
            return Err(HttpUrlFault::Character(format!("{foreign:?}")));
        }
        let (host, port) = host_and_port(authority)?;
        Ok(Self { is_encrypted, host, port, path })
    }

    /// Returns whether the server runs on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(is_loopback)
    }

    /// Returns a URL for messages: short, and without anything in front of an `@`.
    pub(crate) fn shown(url: &str) -> String {
        let start = url.find("://").map_or(0, |start| start + 3);
        short_text(&match url[start..].rfind('@') {
            Some(at) => format!("{}***{}", &url[..start], &url[start + at..]),
            None => url.to_owned(),
        })
    }

    /// Returns where a reply with the header `Location` redirects the request for `url`, for messages.
    pub(crate) fn redirect(url: &str, location: &str) -> String {
        let location = &location[..location.find(['?', '#']).unwrap_or(location.len())];
        let scheme = url.find("://").map_or(0, |start| start + 3);
        let origin = url[scheme..].find(['/', '?']).map_or(url.len(), |end| scheme + end);
        let target = match location {
            whole if whole.contains("://") => whole.to_owned(),
            no_scheme if no_scheme.starts_with("//") => {
                format!("{}{no_scheme}", &url[..scheme.saturating_sub(2)])
            }
            path if path.starts_with('/') => format!("{}{path}", &url[..origin]),
            relative => {
                let path = &url[..url.find('?').unwrap_or(url.len())];
                let folder = path[origin..].rfind('/').map_or(path.len(), |end| origin + end);
                format!("{}/{relative}", &path[..folder])
            }
        };
        Self::shown(&target)
    }
}

/// Parses a name or address with an optional port.
///
/// # Errors
/// Returns an error if the host is not a name or an address, or if the port does not exist.
pub(crate) fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), HttpUrlFault> {
    let refused = || HttpUrlFault::Host(short_text(authority));
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(refused)?;
            if host.parse::<Ipv6Addr>().is_err() || !(port.is_empty() || port.starts_with(':')) {
                return Err(refused());
            }
            (host, port.strip_prefix(':'))
        }
        None if authority.parse::<Ipv6Addr>().is_ok() => return Err(refused()),
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            if host.is_empty() {
                return Err(HttpUrlFault::NoHost);
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            let is_label = |label: &str| !label.is_empty() && label.chars().all(is_plain);
            let name = host.strip_suffix('.').unwrap_or(host);
            if host.len() > LONGEST_HOST || !name.split('.').all(is_label) {
                return Err(HttpUrlFault::Host(short_text(host)));
            }
            (host, port)
        }
    };
    let number = |port: &str| {
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let number = port.parse().ok().filter(|number| is_number && *number > 0);
        number.ok_or_else(|| HttpUrlFault::Port(short_text(port)))
    };
    Ok((host, port.map(number).transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls() {
        for (url, is_encrypted, host, port, path) in [
            ("http://localhost:8000", false, "localhost", Some(8000), ""),
            ("http://127.0.0.1/score?a=b@c", false, "127.0.0.1", None, "/score?a=b@c"),
            ("https://[::1]:65535/v1", true, "::1", Some(65535), "/v1"),
            ("http://my_host-1.example.?x", false, "my_host-1.example.", None, "?x"),
            ("http://a:00080/{b}|c", false, "a", Some(80), "/{b}|c"),
        ] {
            let expected = HttpUrl { is_encrypted, host, port, path };
            assert_eq!(HttpUrl::parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn urls_that_lead_elsewhere() {
        let port = "is not a number from 1 to 65535";
        for (urls, expected) in [
            (&["99999", "65536", "0", "-1", "", "80x", "+80", "80:90", "0x50", "1e3"][..], port),
            (&["4294967376", "18446744073709551696", "%38%30", "8_0", "８０"], ""),
        ] {
            for found in urls {
                for (host, path) in [("127.0.0.1", ""), ("[::1]", "/score"), ("a.b", "?x=:80")] {
                    let url = format!("http://{host}:{found}{path}");
                    let fault = HttpUrl::parse(&url).unwrap_err().to_string();
                    assert!(fault.contains(expected), "{url}: {fault}");
                }
            }
        }
        for (url, expected) in [
            ("", "it does not start with http:// or https://"),
            ("ftp://a", "it does not start with"),
            ("HTTP://a", "it does not start with"),
            ("http:/a", "it does not start with"),
            ("http://", "it has no host"),
            ("http://:80", "it has no host"),
            ("http:///v1", "it has no host"),
            ("http://u:p@a", "users and passwords are not supported"),
            ("http://a:80@b", "users and passwords are not supported"),
            ("http://a#@b", "users and passwords are not supported"),
            ("http://a/b c", "the character ' '"),
            ("http://a\\b", "the character '\\\\'"),
            ("http://a:80#b", "the character '#'"),
            ("http://ä", "the character 'ä'"),
            ("http://a\nb", "the character '\\n'"),
            ("http://::1", "the host `::1` is not a name or an address; IPv6 addresses are in"),
            ("http://[::1", "the host `[::1` is not"),
            ("http://[::1]80", "the host `[::1]80` is not"),
            ("http://[a]", "the host `[a]` is not"),
            ("http://a..b", "the host `a..b` is not"),
            ("http://a%2Eb", "the host `a%2Eb` is not"),
            ("http://a;b", "the host `a;b` is not"),
        ] {
            let fault = HttpUrl::parse(url).unwrap_err().to_string();
            assert!(fault.contains(expected), "{url}: {fault}");
        }
        assert!(HttpUrl::parse(&format!("http://{}", "a".repeat(254))).is_err());
    }

    #[test]
    fn messages_have_no_credentials() {
        for (url, expected) in [
            ("http://a/b", "http://a/b"),
            ("http://u:p@a/b", "http://***@a/b"),
            ("http://u:p#@a", "http://***@a"),
            ("u:p@a", "***@a"),
        ] {
            assert_eq!(HttpUrl::shown(url), expected);
        }
        let long = HttpUrl::shown(&format!("http://{}", "a".repeat(500)));
        assert_eq!(long.chars().count(), 101);
    }

    #[test]
    fn where_redirects_lead() {
        for (location, expected) in [
            ("https://b:1/v2/x", "https://b:1/v2/x"),
            ("https://u:p@b/?key=1#x", "https://***@b/"),
            ("//u:p@b/c", "http://***@b/c"),
            ("/login?next=1", "http://a:8/login"),
            ("y", "http://a:8/v1/y"),
            ("", "http://a:8/v1/"),
        ] {
            assert_eq!(HttpUrl::redirect("http://a:8/v1/x?k=/z", location), expected, "{location}");
        }
        assert_eq!(HttpUrl::redirect("http://a", "y"), "http://a/y");
    }
}
