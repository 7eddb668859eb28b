//! The environment variables that the tools of the hub share.

use std::env::VarError;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grpo_data::{regular_file, short_text, without_passwords};

use crate::error::HubError;
use crate::route::Route;
use crate::url::Url;

const ENDPOINT: &str = "https://huggingface.co";

/// Where the hub and its cache are, and how requests are sent.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// Folder of the cache: `HF_HUB_CACHE`, or `hub` in `HF_HOME`.
    pub cache: PathBuf,
    /// URL of the hub: `HF_ENDPOINT`.
    pub endpoint: String,
    /// Token for private and gated repositories: `HF_TOKEN`, or the file that `hf auth login` writes.
    pub token: Option<Token>,
    /// No request is sent: `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// Whether files of a snapshot are links to blobs, not if `HF_HUB_DISABLE_SYMLINKS` is set.
    pub has_links: bool,
    /// Time limit of a connection: `HF_HUB_ETAG_TIMEOUT`.
    pub reply_limit: Duration,
    /// Longest time without any byte of a reply: `HF_HUB_DOWNLOAD_TIMEOUT`.
    pub idle_limit: Duration,
    /// Number of retries of a request. A download that makes progress is retried without limit.
    pub retries: u32,
    /// Pause before the first retry. It doubles with each.
    pub first_pause: Duration,
    /// Longest pause, also of those that a server asks for. The hub counts requests for 5 minutes.
    pub longest_pause: Duration,
    pub(crate) route: Route,
}

/// The variables that are paths, tokens or URLs.
const TEXTS: [&str; 7] = [
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "XDG_CACHE_HOME",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_ENDPOINT",
];

/// A token of the hub. It is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    origin: String,
}

impl Token {
    /// Checks a token. `origin` says in messages where it comes from.
    ///
    /// # Errors
    /// Returns an error if it is not a word of visible ASCII characters.
    pub fn new(text: &str, origin: &str) -> Result<Self, HubError> {
        let text = text.trim().to_owned();
        if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
            let what = "does not contain a token (visible ASCII characters)".to_owned();
            let fix = "correct it, or remove it";
            return Err(HubError::Setting { place: origin.to_owned(), what, fix });
        }
        Ok(Self { text, origin: origin.to_owned() })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl HubSettings {
    /// Reads the environment variables.
    ///
    /// # Errors
    /// Returns an error if a variable has a value that cannot be used, or if the file with the token
    /// cannot be read.
    pub fn from_environment() -> Result<Self, HubError> {
        for name in TEXTS {
            if let Err(VarError::NotUnicode(_)) = std::env::var(name) {
                let what = "is not UTF-8".to_owned();
                return Err(HubError::variable(name, what, "set it to a text in UTF-8"));
            }
        }
        Self::from_variables(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Returns settings with a cache and an endpoint, and otherwise defaults.
    ///
    /// # Errors
    /// Returns an error if the endpoint is not a URL.
    pub fn new(cache: &Path, endpoint: &str) -> Result<Self, HubError> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if !Url::parse(&endpoint).is_some_and(|url| url.is_base()) {
            let what = format!("is \"{}\"", short_text(&without_passwords(&endpoint)));
            let fix = "expected a URL such as https://huggingface.co";
            return Err(HubError::variable("HF_ENDPOINT", what, fix));
        }
        Ok(Self {
            cache: cache.to_owned(),
            endpoint,
            token: None,
            offline: false,
            has_links: true,
            reply_limit: Duration::from_secs(10),
            idle_limit: Duration::from_secs(30),
            retries: 5,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
            route: Route::default(),
        })
    }

    fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let home = home(get)?;
        let cache = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter().find_map(get);
        let cache = cache.map_or_else(|| home.join("hub"), |cache| expanded(&cache, get));
        // Paths in it are recorded, and used later in other folders.
        let cache = std::path::absolute(&cache).unwrap_or(cache);
        let endpoint = get("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let is_set = |name: &str| {
            let value = get(name).unwrap_or_default().to_uppercase();
            matches!(value.as_str(), "1" | "ON" | "YES" | "TRUE")
        };
        let mut settings = Self::new(&cache, &endpoint)?;
        settings.offline = is_set("HF_HUB_OFFLINE")
            || (get("HF_HUB_OFFLINE").is_none() && is_set("TRANSFORMERS_OFFLINE"));
        settings.has_links = !is_set("HF_HUB_DISABLE_SYMLINKS");
        settings.route = Route::from_variables(get);
        for (variable, limit) in [
            ("HF_HUB_ETAG_TIMEOUT", &mut settings.reply_limit),
            ("HF_HUB_DOWNLOAD_TIMEOUT", &mut settings.idle_limit),
        ] {
            if let Some(value) = get(variable) {
                *limit = seconds(variable, &value)?;
            }
        }
        if !settings.offline && !is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            settings.token = token(get, &home)?;
        }
        Ok(settings)
    }
}

/// Returns the folder with the files of the hub's tools.
fn home(get: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, HubError> {
    if let Some(home) = get("HF_HOME") {
        return Ok(expanded(&home, get));
    }
    if let Some(cache) = get("XDG_CACHE_HOME") {
        return Ok(expanded(&cache, get).join("huggingface"));
    }
    match get("HOME").or_else(|| get("USERPROFILE")) {
        Some(home) => Ok(Path::new(&home).join(".cache").join("huggingface")),
        None => Err(HubError::variable(
            "HOME",
            "is not set".to_owned(),
            "set HF_HOME to a folder for models and data sets",
        )),
    }
}

/// Replaces `~` at the start and `$NAME` or `${NAME}` anywhere, as Python's tools do. Names that are
/// not set stay.
fn expanded(path: &str, get: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let mut text =
        match path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => get("HOME").unwrap_or_else(|| "~".to_owned()) + rest,
            None => path.to_owned(),
        };
    let mut at = 0;
    while let Some(start) = text[at..].find('$').map(|found| found + at) {
        let rest = &text[start + 1..];
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, length) = match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((name, _)) => (name, name.len() + 3),
            None => {
                let end = rest.find(|c| !is_in_name(c)).unwrap_or(rest.len());
                (&rest[..end], end + 1)
            }
        };
        at = match get(name).filter(|_| !name.is_empty()) {
            Some(value) => {
                text.replace_range(start..start + length, &value);
                start + value.len()
            }
            None => start + 1,
        };
    }
    text.into()
}

fn seconds(variable: &str, value: &str) -> Result<Duration, HubError> {
    match value.trim().parse::<u32>() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.into())),
        _ => Err(HubError::variable(
            variable,
            format!("is \"{}\"", short_text(value)),
            "expected a number of seconds from 1",
        )),
    }
}

fn token(get: &dyn Fn(&str) -> Option<String>, home: &Path) -> Result<Option<Token>, HubError> {
    for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        if let Some(text) = get(name) {
            return Token::new(&text, &format!("the environment variable {name}")).map(Some);
        }
    }
    let path = get("HF_TOKEN_PATH").map_or_else(|| home.join("token"), |path| expanded(&path, get));
    match regular_file::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HubError::Setting {
            place: format!("the file `{}`", path.display()),
            what: format!("with the token cannot be read ({error})"),
            fix: "correct it, or set HF_TOKEN",
        }),
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Token::new(&text, &format!("the file `{}`", path.display())).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(variables: &[(&str, &str)]) -> Result<HubSettings, HubError> {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        HubSettings::from_variables(&|name| variables.get(name).map(|&value| value.to_owned()))
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        let check = |variables: &[(&str, &str)], expect: &str| {
            let variables = [&[("HOME", "/home/a")], variables].concat();
            assert_eq!(read(&variables).unwrap().cache, Path::new(expect));
        };
        check(&[], "/home/a/.cache/huggingface/hub");
        check(&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/hf")], "/hf/hub");
        check(&[("HF_HOME", "/hf"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old");
        check(&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "~/c")], "/home/a/c");
        check(&[("HF_HOME", "$HOME/x/${USER}"), ("USER", "me")], "/home/a/x/me/hub");
        check(&[("HF_HOME", "/$ABSENT/$")], "/$ABSENT/$/hub");
        let relative = std::env::current_dir().unwrap().join("here/hub");
        check(&[("HF_HOME", "here")], relative.to_str().unwrap());
        // A variable of older versions of transformers, which current ones ignore too.
        check(&[("TRANSFORMERS_CACHE", "/old")], "/home/a/.cache/huggingface/hub");
        assert_eq!(
            read(&[]).unwrap_err().to_string(),
            "the environment variable HOME is not set; set HF_HOME to a folder for models and data sets"
        );
    }

    #[test]
    fn switches_and_limits() {
        let check = |name: &str, value: &str| read(&[("HF_HOME", "/absent"), (name, value)]);
        for value in ["1", "true", "yes", "ON"] {
            assert!(check("HF_HUB_OFFLINE", value).unwrap().offline, "{value}");
        }
        assert!(check("TRANSFORMERS_OFFLINE", "yes").unwrap().offline);
        assert!(!check("HF_HUB_OFFLINE", "0").unwrap().offline);
        assert!(!check("HF_HUB_DISABLE_SYMLINKS", "true").unwrap().has_links);
        let limits = check("HF_HUB_DOWNLOAD_TIMEOUT", "7").unwrap();
        assert_eq!(limits.idle_limit, Duration::from_secs(7));
        assert_eq!(
            check("HF_HUB_ETAG_TIMEOUT", "soon").unwrap_err().to_string(),
            "the environment variable HF_HUB_ETAG_TIMEOUT is \"soon\"; expected a number of seconds from 1"
        );
        assert_eq!(
            check("HF_ENDPOINT", "http://localhost:1/").unwrap().endpoint,
            "http://localhost:1"
        );
        assert_eq!(
            check("HF_ENDPOINT", "http://localhost:1/mirror//").unwrap().endpoint,
            "http://localhost:1/mirror"
        );
        for (value, shown) in [
            ("localhost", "localhost"),
            ("https://a.example?key=1", "https://a.example?key=1"),
            ("ftp://me:secret@a.example", "ftp://***@a.example"),
        ] {
            let expect = format!(
                "the environment variable HF_ENDPOINT is \"{shown}\"; expected a URL such as https://huggingface.co"
            );
            assert_eq!(check("HF_ENDPOINT", value).unwrap_err().to_string(), expect);
        }
    }

    #[test]
    fn tokens_are_found_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let home = folder.path().to_str().unwrap();
        let check = |more: &[(&str, &str)]| {
            let settings = read(&[&[("HF_HOME", home)], more].concat()).unwrap();
            assert!(!format!("{settings:?}").contains("hf_"));
            settings.token.map(|token| token.text)
        };
        assert_eq!(check(&[]).unwrap(), "hf_file");
        assert_eq!(check(&[("HF_TOKEN", "hf_own")]).unwrap(), "hf_own");
        assert_eq!(check(&[("HUGGING_FACE_HUB_TOKEN", "hf_old")]).unwrap(), "hf_old");
        assert_eq!(check(&[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(check(&[("HF_HUB_OFFLINE", "1")]), None);
        assert_eq!(check(&[("HF_TOKEN_PATH", "/absent")]), None);
        let error = read(&[("HF_HOME", home), ("HF_TOKEN_PATH", home)]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the file `{home}` with the token cannot be read (")));
        assert!(error.ends_with("; correct it, or set HF_TOKEN"), "{error}");
        assert_eq!(
            read(&[("HF_HOME", home), ("HF_TOKEN", "a b")]).unwrap_err().to_string(),
            "the environment variable HF_TOKEN does not contain a token (visible ASCII characters); correct it, or remove it"
        );
    }
}
