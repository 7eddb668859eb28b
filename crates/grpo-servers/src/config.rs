//! Where a server is and how it is used.

use std::path::PathBuf;
use std::time::Duration;

use grpo_data::short_number;
use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use crate::error::EndpointError;
use crate::http_url::HttpUrl;

/// Longest accepted time limit and pause in seconds.
const LONGEST: f64 = 86_400.0;

/// An OpenAI-compatible server and how to send requests to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Base URL. `/v1` is added to a URL without a path, so `http://localhost:8000`,
    /// `https://api.openai.com/v1` and `https://openrouter.ai/api/v1` are all base URLs.
    pub url: String,
    /// Name of the environment variable with the API key. Without it, no key is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// PEM file with the certificates to trust instead of Mozilla's roots, for a private authority or
    /// a proxy that decrypts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Time limit of an attempt, from the connection to the last byte of the reply, in seconds.
    #[serde(default = "default_time_limit")]
    pub time_limit: f64,
    /// How often a request is retried after status 408, 429, 5xx (except 501) or a failed connection.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Pause before the first retry in seconds. It doubles with each retry. A `Retry-After` of the
    /// server takes precedence.
    #[serde(default = "default_pause")]
    pub pause: f64,
    /// Longest pause in seconds. If the server asks for a longer one, the request fails.
    #[serde(default = "default_longest_pause")]
    pub longest_pause: f64,
    /// Maximum number of requests at the same time.
    #[serde(default = "default_parallel")]
    pub parallel: usize,
    /// Maximum size of a reply in bytes.
    #[serde(default = "default_largest_reply")]
    pub largest_reply: u64,
}

impl EndpointConfig {
    /// Returns the defaults for a base URL: no API key, Mozilla's roots, 120 s per attempt, 4 retries
    /// after 1, 2, 4 and 8 s, pauses of up to 60 s, and 4 requests at the same time.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            api_key_env: None,
            ca_file: None,
            time_limit: default_time_limit(),
            retries: default_retries(),
            pause: default_pause(),
            longest_pause: default_longest_pause(),
            parallel: default_parallel(),
            largest_reply: default_largest_reply(),
        }
    }

    /// Checks all values.
    ///
    /// # Errors
    /// Returns an error if the URL is not a base URL, a number is out of range, or the API key would
    /// be sent to another machine without encryption.
    pub fn check(&self) -> Result<(), EndpointError> {
        let base = self.base()?;
        if self.api_key_env.is_some() && base.starts_with("http://") && !self.is_local() {
            return Err(EndpointError::Setting {
                key: "url",
                found: format!("\"{}\"", HttpUrl::shown(&self.url)),
                expected: "https:// or a tunnel to localhost, because the API key would be sent unencrypted".to_owned(),
            });
        }
        let range = |key, value: f64, low: f64| {
            if (low..=LONGEST).contains(&value) {
                return Ok(());
            }
            let expected = format!("seconds between {low} and {LONGEST}");
            Err(EndpointError::Setting { key, found: short_number(value), expected })
        };
        range("time_limit", self.time_limit, 0.001)?;
        range("pause", self.pause, 0.0)?;
        range("longest_pause", self.longest_pause, 0.0)?;
        let count = |key, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let expected = format!("{low} to {high}");
            Err(EndpointError::Setting { key, found: value.to_string(), expected })
        };
        count("retries", self.retries as usize, 0, 100)?;
        count("parallel", self.parallel, 1, 256)
    }

    /// Returns the URL to which paths such as `chat/completions` are appended, without a slash at the
    /// end.
    ///
    /// # Errors
    /// Returns an error if the URL is not a base URL.
    pub fn base(&self) -> Result<String, EndpointError> {
        let refused = |fault: &str| {
            EndpointError::Setting {
            key: "url",
            found: format!("\"{}\"{fault}", HttpUrl::shown(&self.url)),
            expected: "a base URL such as http://localhost:8000 or https://api.openai.com/v1, without user, query and `/chat/completions`".to_owned(),
        }
        };
        let parts = HttpUrl::parse(&self.url).map_err(|fault| refused(&format!(" ({fault})")))?;
        let path = parts.path.trim_end_matches('/');
        if path.contains('?') || path.ends_with("/completions") || self.url.parse::<Uri>().is_err()
        {
            return Err(refused(""));
        }
        let url = self.url.trim_end_matches('/');
        Ok(if path.is_empty() { format!("{url}/v1") } else { url.to_owned() })
    }

    /// Returns whether the server runs on this machine, so that no proxy is used.
    pub fn is_local(&self) -> bool {
        HttpUrl::parse(&self.url).is_ok_and(|url| url.is_local())
    }

    /// Returns the pause before a retry, counted from 0, if the server asks for none.
    pub(crate) fn pause_before(&self, retry: u32) -> Duration {
        let factor = 2_f64.powi(retry.min(60) as i32);
        Duration::from_secs_f64((self.pause * factor).min(self.longest_pause))
    }
}

fn default_time_limit() -> f64 {
    120.0
}

fn default_retries() -> u32 {
    4
}

fn default_pause() -> f64 {
    1.0
}

fn default_longest_pause() -> f64 {
    60.0
}

fn default_largest_reply() -> u64 {
    16 << 20
}

fn default_parallel() -> usize {
    4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls() {
        let base = |url: &str| EndpointConfig::new(url).base().ok();
        let v1 = Some("http://localhost:8000/v1".to_owned());
        assert_eq!(base("http://localhost:8000"), v1);
        assert_eq!(base("http://localhost:8000/"), v1);
        assert_eq!(base("http://localhost:8000/v1/"), v1);
        let other = "https://host.example/v1beta/openai";
        assert_eq!(base(other).as_deref(), Some(other));
        for url in [
            "localhost:8000",
            "ftp://a",
            "http://",
            "http:///v1",
            "http://user:secret@a/v1",
            "http://a/v1?b",
            "http://a b",
            "http://a/v1/chat/completions",
            "http://a:99999",
            "https://a:65536/v1",
            "http://[::1]:-1",
            "http://a:/v1",
            "http://a:0",
            "http://a:80x",
            "http://a:+80/",
            "http://a:80:90",
            "http://a:80?b",
        ] {
            assert_eq!(base(url), None, "{url}");
        }
        let error = EndpointConfig::new("http://a:99999").check().unwrap_err().to_string();
        let expect = "`url` is \"http://a:99999\" (the port `99999` is not a number from 1 to 65535); expected a base URL such as";
        assert!(error.starts_with(expect), "{error}");
    }

    #[test]
    fn servers_on_this_machine() {
        let local = |url: &str| EndpointConfig::new(url).is_local();
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]"] {
            for rest in ["", ":8000", "/v1", ":8000/v1"] {
                assert!(local(&format!("http://{host}{rest}")), "{host}{rest}");
            }
        }
        for host in [
            "api.openai.com",
            "localhost.example.com",
            "127.example.com",
            "127.0.0.1.example.com",
            "[::2]",
            "10.0.0.1",
            "example.com/localhost",
        ] {
            assert!(!local(&format!("https://{host}")), "{host}");
        }
    }

    #[test]
    fn api_keys_are_encrypted_or_stay_on_this_machine() {
        let check = |url: &str| {
            let api_key_env = Some("KEY".to_owned());
            EndpointConfig { api_key_env, ..EndpointConfig::new(url) }.check()
        };
        assert_eq!(check("https://api.openai.com/v1"), Ok(()));
        assert_eq!(check("http://127.0.0.1:8000"), Ok(()));
        assert_eq!(EndpointConfig::new("http://10.0.0.1:8000").check(), Ok(()));
        for url in ["http://10.0.0.1:8000", "http://localhost.example.com"] {
            let error = check(url).unwrap_err().to_string();
            let expect = format!("`url` is \"{url}\"; expected https:// or a tunnel to");
            assert!(error.starts_with(&expect), "{error}");
        }
    }

    #[test]
    fn numbers_out_of_range() {
        let check = |change: fn(&mut EndpointConfig)| {
            let mut config = EndpointConfig::new("http://localhost");
            assert_eq!(config.check(), Ok(()));
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        let expect = "`time_limit` is NaN; expected seconds between 0.001 and 86400";
        assert_eq!(check(|config| config.time_limit = f64::NAN), expect);
        assert!(check(|config| config.pause = -1.0).contains("`pause` is -1"));
        assert!(
            check(|config| config.longest_pause = f64::INFINITY).contains("`longest_pause` is inf")
        );
        assert!(
            check(|config| config.retries = 101).contains("`retries` is 101; expected 0 to 100")
        );
        assert!(check(|config| config.parallel = 0).contains("`parallel` is 0; expected 1 to 256"));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let config = EndpointConfig { pause: 0.5, longest_pause: 3.0, ..EndpointConfig::new("") };
        let pauses = [0, 1, 2, 3, u32::MAX].map(|retry| config.pause_before(retry));
        assert_eq!(pauses.map(|pause| pause.as_secs_f64()), [0.5, 1.0, 2.0, 3.0, 3.0]);
    }
}
