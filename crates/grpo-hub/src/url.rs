//! URLs of the hub and of the servers to which it redirects.

use grpo_data::without_passwords;
use ureq::http::Uri;

/// A URL with the scheme `http` or `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    /// `scheme://host:port`
    origin: String,
}

impl Url {
    /// Returns `None` if the text is not such a URL.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let scheme = uri.scheme_str()?;
        let port: u16 = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?.to_lowercase();
        let after_host = uri.authority()?.as_str().rsplit([']', '@']).next().unwrap_or_default();
        let port = match after_host.split_once(':') {
            Some((_, port)) => port.parse().ok()?,
            None => port,
        };
        Some(Self { text: text.to_owned(), origin: format!("{scheme}://{host}:{port}") })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the host with its port, if it is not the usual one.
    pub(crate) fn host(&self) -> &str {
        let host = self.origin.split_once("://").map_or("", |(_, host)| host);
        let usual = if self.is_encrypted() { ":443" } else { ":80" };
        host.strip_suffix(usual).unwrap_or(host)
    }

    /// Returns the host without its port, and the port.
    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let host = self.origin.split_once("://").map_or("", |(_, host)| host);
        host.rsplit_once(':').unwrap_or((host, ""))
    }

    /// Returns whether the server runs on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let (host, _) = self.host_and_port();
        host == "localhost" || host == "[::1]" || host.starts_with("127.")
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.origin.starts_with("https:")
    }

    /// Returns whether paths can be appended.
    pub(crate) fn is_base(&self) -> bool {
        !self.text.contains(['?', '#'])
    }

    /// Returns the URL for messages: without its query, which can be a key, and without a password.
    pub(crate) fn shown(&self) -> String {
        without_passwords(self.without_query()).into_owned()
    }

    fn without_query(&self) -> &str {
        self.text.split(['?', '#']).next().unwrap_or_default()
    }

    /// Returns whether both URLs have scheme, host and port in common.
    pub(crate) fn has_origin_of(&self, other: &Self) -> bool {
        self.origin == other.origin
    }

    /// Returns the target of a redirect.
    pub(crate) fn redirect(&self, location: &str) -> Option<Self> {
        let (scheme, rest) = self.text.split_once("://")?;
        let start = &self.text[..scheme.len() + 3 + rest.find('/').unwrap_or(rest.len())];
        // Some servers send characters that have to be encoded.
        let location = &encoded(location, "!#$%&'()*+,/:;=?@[]");
        let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric());
        let target = match location.as_str() {
            _ if location.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)) => {
                location.clone()
            }
            _ if location.starts_with('?') => format!("{}{location}", self.without_query()),
            _ if location.starts_with("//") => format!("{scheme}:{location}"),
            _ if location.starts_with('/') => format!("{start}{location}"),
            _ => {
                let folder = self.without_query().rsplit_once('/')?.0;
                format!("{folder}/{location}")
            }
        };
        Self::parse(&target)
    }
}

/// Encodes a path or revision for a URL. `keep` lists the characters that stay besides letters,
/// digits, `-`, `_`, `.` and `~`.
pub(crate) fn encoded(text: &str, keep: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let c = char::from(byte);
        let stays = byte.is_ascii_alphanumeric() || "-_.~".contains(c);
        if stays || (byte.is_ascii() && keep.contains(c)) {
            encoded.push(c);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let check = |one: &str, other: &str, expect: bool| {
            let [one, other] = [one, other].map(|url| Url::parse(url).unwrap());
            assert_eq!(one.has_origin_of(&other), expect, "{one:?} {other:?}");
        };
        check("https://huggingface.co/a", "https://HuggingFace.co:443/b?c", true);
        check("https://huggingface.co", "http://huggingface.co", false);
        check("https://huggingface.co", "https://cdn.huggingface.co", false);
        check("http://localhost:1", "http://localhost:2", false);
        check("http://[::1]:1/a", "http://[::1]:1", true);
        check("http://[::1]/a", "http://[::1]:80", true);
        check("https://huggingface.co", "https://huggingface.co@evil.example/", false);
        for text in ["", "localhost:80", "ftp://a", "https://", "file:///a", "http://a:99999"] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let url = Url::parse("https://me:secret@a.example/x?key=secret#secret").unwrap();
        assert!(!url.shown().contains("secret"), "{}", url.shown());
        assert_eq!(url.host(), "a.example");
    }

    #[test]
    fn redirects() {
        let check = |location: &str, expect: Option<&str>| {
            let from = Url::parse("https://a.example/x/y?q=/z").unwrap();
            assert_eq!(from.redirect(location).map(|url| url.text), expect.map(str::to_owned));
        };
        check("https://cdn.example/b?k=1", Some("https://cdn.example/b?k=1"));
        check("/api/b", Some("https://a.example/api/b"));
        check("//cdn.example/b", Some("https://cdn.example/b"));
        check("b", Some("https://a.example/x/b"));
        check("/b?from=https://c.example", Some("https://a.example/b?from=https://c.example"));
        check("b?from=https://c.example", Some("https://a.example/x/b?from=https://c.example"));
        check("?key=1", Some("https://a.example/x/y?key=1"));
        check("/b c/\u{fc}%20", Some("https://a.example/b%20c/%C3%BC%20"));
        check("file:///etc/passwd", None);
        check("", Some("https://a.example/x/"));
    }

    #[test]
    fn encoding() {
        assert_eq!(encoded("a b/ü?.json", "/"), "a%20b/%C3%BC%3F.json");
        assert_eq!(encoded("refs/pr/1", ""), "refs%2Fpr%2F1");
    }
}
