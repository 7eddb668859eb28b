//! Proxies and certificates, by the variables that curl and Python's tools read.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use grpo_data::{regular_file, short_text, without_passwords};
use ureq::Proxy;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::error::HubError;
use crate::url::Url;

/// An environment variable and its value.
type Variable = (&'static str, String);

/// How servers are reached. The default is a direct connection, and Mozilla's certificates.
#[derive(Clone, Default)]
pub(crate) struct Route {
    /// Proxy for URLs with `http`.
    http: Option<Variable>,
    /// Proxy for URLs with `https`.
    https: Option<Variable>,
    /// Hosts and networks that are connected to directly, separated by commas.
    direct: String,
    /// File with the certificates to trust instead of Mozilla's.
    certificates: Option<Variable>,
}

impl Route {
    pub(crate) fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Self {
        let first =
            |names: &[&'static str]| names.iter().find_map(|name| Some((*name, get(name)?)));
        Self {
            http: first(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            direct: first(&["no_proxy", "NO_PROXY"]).map_or_else(String::new, |(_, hosts)| hosts),
            certificates: first(&["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]),
        }
    }

    /// Returns the proxy for a URL. Servers on this machine have none.
    ///
    /// # Errors
    /// Returns an error if the variable does not name an HTTP proxy.
    pub(crate) fn proxy(&self, url: &Url) -> Result<Option<Proxy>, HubError> {
        let variable = if url.is_encrypted() { &self.https } else { &self.http };
        let Some((name, value)) = variable else { return Ok(None) };
        if url.is_local() || self.is_direct(url) {
            return Ok(None);
        }
        match Proxy::new(value) {
            Ok(proxy) if matches!(proxy.uri().scheme_str(), Some("http" | "https")) => {
                Ok(Some(proxy))
            }
            _ => Err(HubError::variable(
                name,
                format!("is \"{}\"", short_text(&without_passwords(value))),
                "expected the URL of an HTTP proxy; correct it, or add the host to NO_PROXY",
            )),
        }
    }

    fn is_direct(&self, url: &Url) -> bool {
        let (host, port) = url.host_and_port();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let entries = self.direct.split([',', ' ']).filter(|entry| !entry.is_empty());
        entries.map(str::to_lowercase).any(|entry| {
            let name = entry.strip_suffix(&format!(":{port}")).unwrap_or(&entry);
            let domain = name.trim_start_matches('*').trim_start_matches('.');
            let is_below = host.strip_suffix(domain).is_some_and(|start| start.ends_with('.'));
            name == "*"
                || host == domain
                || (is_below && !domain.is_empty())
                || address.is_some_and(|address| is_in(address, name) == Some(true))
        })
    }

    /// Returns the certificates to trust.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or contains no certificate.
    pub(crate) fn tls(&self) -> Result<TlsConfig, HubError> {
        let Some((name, path)) = &self.certificates else { return Ok(TlsConfig::default()) };
        let refused = |what: String| {
            let what = format!("names the file `{path}`, {what}");
            HubError::variable(name, what, "expected a PEM file with certificates")
        };
        let bytes = regular_file::read(&PathBuf::from(path))
            .map_err(|error| refused(format!("which cannot be read ({error})")))?;
        let mut certificates = Vec::new();
        for item in parse_pem(&bytes) {
            let item = item.map_err(|error| refused(format!("which is not valid ({error})")))?;
            if let PemItem::Certificate(certificate) = item {
                certificates.push(certificate);
            }
        }
        if certificates.is_empty() {
            return Err(refused("which contains no certificate".to_owned()));
        }
        let roots = RootCerts::Specific(Arc::new(certificates));
        Ok(TlsConfig::builder().root_certs(roots).build())
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Proxies can contain passwords.
        f.write_str("Route(…)")
    }
}

/// Returns whether an address is in a network such as `10.0.0.0/8`.
fn is_in(address: IpAddr, network: &str) -> Option<bool> {
    let (start, bits) = network.trim_matches(['[', ']']).split_once('/')?;
    let bits: u32 = bits.parse().ok()?;
    match (address, start.parse().ok()?) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differing = one.to_bits() ^ other.to_bits();
            Some(differing.checked_shr(32_u32.checked_sub(bits)?).unwrap_or(0) == 0)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differing = one.to_bits() ^ other.to_bits();
            Some(differing.checked_shr(128_u32.checked_sub(bits)?).unwrap_or(0) == 0)
        }
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(variables: &[(&str, &str)]) -> Route {
        let variables: Vec<(String, String)> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Route::from_variables(&|wanted| {
            variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn each_scheme_has_its_own_proxy() {
        let check = |variables: &[(&str, &str)], url: &str, expect: Option<&str>| {
            let proxy = route(variables).proxy(&Url::parse(url).unwrap()).unwrap();
            assert_eq!(proxy.map(|proxy| proxy.host().to_owned()).as_deref(), expect, "{url}");
        };
        let both = [("HTTP_PROXY", "http://plain:1"), ("HTTPS_PROXY", "tls:2")];
        check(&both, "https://a.example", Some("tls"));
        check(&both, "http://a.example", Some("plain"));
        check(&both, "http://127.0.0.1:1", None);
        check(&both[..1], "https://a.example", None);
        // `ALL_PROXY` is for what has no other one.
        let all = [("ALL_PROXY", "socks5://all:3"), ("https_proxy", "http://me:secret@tls:2")];
        check(&all, "https://a.example", Some("tls"));
        let error = route(&all).proxy(&Url::parse("http://a.example").unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the environment variable ALL_PROXY is \"socks5://all:3\"; expected the URL of an HTTP proxy; correct it, or add the host to NO_PROXY"
        );
        assert!(!format!("{:?}", route(&all)).contains("secret"));
    }

    #[test]
    fn hosts_without_a_proxy() {
        let check = |direct: &str, url: &str, expect: bool| {
            let route = route(&[("ALL_PROXY", "http://proxy:1"), ("NO_PROXY", direct)]);
            let proxy = route.proxy(&Url::parse(url).unwrap()).unwrap();
            assert_eq!(proxy.is_none(), expect, "{direct} {url}");
        };
        for direct in ["*", "a.example", "x, A.example", ".example", "*.example", "example"] {
            check(direct, "https://a.example", true);
        }
        for direct in ["", ",", ".", "b.example", "x.a.example", "ample", "a.example:80"] {
            check(direct, "https://a.example", false);
        }
        check("a.example:443", "https://a.example", true);
        check("10.0.0.0/8", "http://10.1.2.3:80", true);
        check("10.0.0.0/8", "http://11.1.2.3", false);
        check("0.0.0.0/0", "http://11.1.2.3", true);
        check("10.0.0.0/40", "http://10.1.2.3", false);
        check("fd00::/8", "http://[fd12::1]", true);
        check("fd00::/8", "http://10.1.2.3", false);
    }

    #[test]
    fn certificates_are_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let route = route(&[("SSL_CERT_FILE", path.to_str().unwrap())]);
        let check = |expect: &str| {
            let error = route.tls().unwrap_err().to_string();
            let start = "the environment variable SSL_CERT_FILE names the file `";
            assert!(error.starts_with(start) && error.contains(expect), "{error}");
        };
        check("ca.pem`, which cannot be read (");
        std::fs::write(&path, "no PEM").unwrap();
        check("ca.pem`, which contains no certificate; expected a PEM file with certificates");
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&path, pem.repeat(2)).unwrap();
        match route.tls().unwrap().root_certs() {
            RootCerts::Specific(certificates) => assert_eq!(certificates.len(), 2),
            other => panic!("{other:?}"),
        }
    }
}
