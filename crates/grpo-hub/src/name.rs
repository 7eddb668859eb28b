//! Names of repositories on the hub.

use std::fmt;
use std::path::Path;

use crate::error::HubError;

/// The revision of a name without one.
const DEFAULT_REVISION: &str = "main";

/// Longest name of a repository on the hub.
const LONGEST_NAME: usize = 96;

/// Names that no organisation can have on the hub, and folders that users of this program have.
const FOLDERS: &[&str] = &["api", "configs", "data", "datasets", "models", "runs", "spaces"];

/// Folders with the results of a run.
const RESULTS: &[&str] = &["adapter", "model"];

/// What a repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepoKind {
    /// A model or an adapter.
    Model,
    /// A data set.
    DataSet,
}

impl RepoKind {
    /// Returns the folder of the API, which is also the start of the names of folders in the cache.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::DataSet => "datasets",
        }
    }

    /// Returns the start of the path of a repository's pages and files.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::DataSet => "datasets/",
        }
    }
}

impl fmt::Display for RepoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "model",
            Self::DataSet => "data set",
        })
    }
}

/// A repository of the hub, at a revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RepoName {
    kind: RepoKind,
    id: String,
    revision: Option<String>,
}

impl RepoName {
    /// Reads `org/name[@revision]` or `hf://org/name[@revision]`, the name of a model or adapter.
    /// Returns `None` if `text` is a local path.
    ///
    /// Without `hf://`, a text is a path if it exists, if it has another form than `org/name`, if a
    /// file or folder `org` exists, or if it has a usual form of a path: `models/name`, `run/model`.
    /// So a mistyped path is not looked for on the hub.
    ///
    /// # Errors
    /// Returns an error if the text can only be a name of the hub, but is not a valid one.
    pub fn model(text: &str) -> Result<Option<Self>, HubError> {
        let refused = |what| HubError::Name { text: text.to_owned(), what };
        if let Some(rest) = text.strip_prefix("hf://") {
            if rest.starts_with("datasets/") {
                return Err(refused("is a data set; expected a model: hf://org/name"));
            }
            let rest = rest.strip_prefix("models/").unwrap_or(rest);
            let (name, path) = Self::split(RepoKind::Model, rest).map_err(refused)?;
            return match path {
                "" => Ok(Some(name)),
                _ => Err(refused("names a file; expected a whole model: hf://org/name")),
            };
        }
        let exists = |path: &str| Path::new(path).symlink_metadata().is_ok();
        let id = text.split_once('@').map_or(text, |(id, _)| id);
        let Some((org, name)) = id.split_once('/') else { return Ok(None) };
        let is_name =
            is_part(org) && is_part(name) && !FOLDERS.contains(&org) && !RESULTS.contains(&name);
        if exists(text) || exists(org) || !is_name {
            return Ok(None);
        }
        match Self::split(RepoKind::Model, text).map_err(refused)? {
            (name, "") => Ok(Some(name)),
            _ => Err(refused("has a revision with `/`; write it as %2F")),
        }
    }

    /// Splits a name of the hub from the path that follows it.
    fn split(kind: RepoKind, text: &str) -> Result<(Self, &str), &'static str> {
        const FORM: &str = "is not a name of the hub; expected org/name or org/name@revision";
        let (org, rest) = text.split_once('/').ok_or(FORM)?;
        let end = rest.find(['/', '@']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if !is_part(org) || !is_part(name) || org.len() + name.len() >= LONGEST_NAME {
            return Err(FORM);
        }
        let id = format!("{org}/{name}");
        let Some(rest) = rest.strip_prefix('@') else {
            return Ok((Self { kind, id, revision: None }, rest.trim_start_matches('/')));
        };
        let (revision, path) = rest.split_at(end_of_revision(rest));
        let revision = revision.replace("%2F", "/").replace("%2f", "/");
        if !is_revision(&revision) {
            return Err("has no valid revision after `@`; expected a branch, a tag or a commit");
        }
        Ok((Self { kind, id, revision: Some(revision) }, path.trim_start_matches('/')))
    }

    /// Returns the repository of a folder or file in a cache, at the commit of its snapshot, with the path of
    /// the file in it. The cache may be missing. Returns `None` for other paths.
    pub fn of_snapshot(path: &Path) -> Option<(Self, String)> {
        in_snapshot(path)
    }

    /// Returns the model that a path names: by [`Self::model`], or as the folder of its snapshot in a
    /// cache that does not exist any more, or only on another machine. Returns `None` for other paths.
    ///
    /// # Errors
    /// Returns an error if [`Self::model`] fails.
    pub fn of_path(path: &Path) -> Result<Option<Self>, HubError> {
        let Some(text) = path.to_str().filter(|_| !path.exists()) else { return Ok(None) };
        let of_snapshot = || {
            let (name, rest) = in_snapshot(path)?;
            (name.kind == RepoKind::Model && rest.is_empty()).then_some(name)
        };
        Ok(Self::model(text)?.or_else(of_snapshot))
    }

    /// Returns what the repository holds.
    pub fn kind(&self) -> RepoKind {
        self.kind
    }

    /// Returns `org/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the branch, tag or commit; `main` if the name has none.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(DEFAULT_REVISION)
    }

    /// Returns whether the name has a revision.
    pub fn has_revision(&self) -> bool {
        self.revision.is_some()
    }

    /// Returns the name at a commit, e.g. at the one that a run has recorded.
    #[must_use]
    pub fn at(&self, commit: &str) -> Self {
        Self { revision: Some(commit.to_owned()), ..self.clone() }
    }

    /// Returns the name of the repository's folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("{}--{}", self.kind.plural(), self.id.replace('/', "--"))
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == RepoKind::DataSet {
            f.write_str("hf://datasets/")?;
        }
        f.write_str(&self.id)?;
        match &self.revision {
            Some(revision) => write!(f, "@{}", revision.replace('/', "%2F")),
            None => Ok(()),
        }
    }
}

/// Files of a data set on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DataName {
    /// The data set.
    pub repo: RepoName,
    /// The path of a file in it, or a pattern: see [`crate::matches`].
    pub pattern: String,
}

impl DataName {
    /// Reads `hf://datasets/org/name[@revision]/path`. Returns `None` if `text` does not start with
    /// `hf://`, and therefore is a local path.
    ///
    /// # Errors
    /// Returns an error if the name is not valid or has no path.
    pub fn parse(text: &str) -> Result<Option<Self>, HubError> {
        let Some(rest) = text.strip_prefix("hf://") else { return Ok(None) };
        let refused = |what| HubError::Name { text: text.to_owned(), what };
        let Some(rest) = rest.strip_prefix("datasets/") else {
            return Err(refused("is not a data set; expected hf://datasets/org/name/path"));
        };
        let (repo, pattern) = RepoName::split(RepoKind::DataSet, rest).map_err(refused)?;
        if pattern.is_empty() {
            return Err(refused(
                "names no file; add the path of one or a pattern, e.g. /data/train-*.parquet",
            ));
        }
        Ok(Some(Self { repo, pattern: pattern.to_owned() }))
    }

    /// Returns the file that a path names: by [`Self::parse`], or as a file in a cache that does not
    /// exist any more, or only on another machine. Returns `None` for other paths.
    ///
    /// # Errors
    /// Returns an error if [`Self::parse`] fails.
    pub fn of_path(path: &Path) -> Result<Option<Self>, HubError> {
        let Some(text) = path.to_str().filter(|_| !path.exists()) else { return Ok(None) };
        let of_cached = || {
            let (repo, pattern) = in_snapshot(path)?;
            (repo.kind == RepoKind::DataSet && !pattern.is_empty())
                .then_some(Self { repo, pattern })
        };
        Ok(Self::parse(text)?.or_else(of_cached))
    }
}

impl fmt::Display for DataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.repo, self.pattern)
    }
}

/// Returns whether a path is a name of the hub.
pub fn is_name(path: &Path) -> bool {
    let is_model = matches!(RepoName::of_path(path), Ok(Some(_)));
    is_model || matches!(DataName::of_path(path), Ok(Some(_)))
}

/// Splits `…/models--org--name/snapshots/<commit>/path`.
fn in_snapshot(path: &Path) -> Option<(RepoName, String)> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let at = parts.iter().rposition(|part| *part == "snapshots").filter(|at| *at > 0)?;
    let commit = parts.get(at + 1).filter(|commit| is_commit(commit))?;
    let (start, name) = parts[at - 1].split_once("--")?;
    let kind =
        [RepoKind::Model, RepoKind::DataSet].into_iter().find(|kind| kind.plural() == start)?;
    let text = format!("{}@{commit}", name.replacen("--", "/", 1));
    let (name, rest) = RepoName::split(kind, &text).ok()?;
    rest.is_empty().then(|| (name, parts[at + 2..].join("/")))
}

/// Returns the length of a revision at the start of `text`. Pull requests and conversions contain
/// slashes; in other revisions they are written as `%2F`.
fn end_of_revision(text: &str) -> usize {
    let slashes = match text {
        _ if text.starts_with("refs/pr/") || text.starts_with("refs/convert/") => 2,
        _ => 0,
    };
    text.match_indices('/').nth(slashes).map_or(text.len(), |(at, _)| at)
}

/// Returns whether a text can be the name of an organisation or repository.
fn is_part(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty()
        && text.chars().all(is_allowed)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
        && !text.contains("--")
        && !text.contains("..")
        && !text.ends_with(".git")
}

/// Returns whether a text can be a revision. It becomes the path of a file in the cache.
fn is_revision(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.');
    text.chars().all(is_allowed) && text.split('/').all(is_part)
}

/// Returns whether a revision is the hash of a commit, whose files never change.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models() {
        let check = |text: &str, expect: &str| {
            let name = RepoName::model(text).unwrap().unwrap();
            assert_eq!(format!("{} {} {}", name.kind(), name.id(), name.revision()), expect);
            assert_eq!(RepoName::model(&name.to_string()).unwrap(), Some(name), "{text}");
        };
        check("Qwen/Qwen3-0.6B", "model Qwen/Qwen3-0.6B main");
        check("Qwen/Qwen3-0.6B@v1.0", "model Qwen/Qwen3-0.6B v1.0");
        check("hf://Qwen/Qwen3-0.6B", "model Qwen/Qwen3-0.6B main");
        check("hf://models/a/b@refs/pr/3", "model a/b refs/pr/3");
        check("a/b@feature%2Fx", "model a/b feature/x");
    }

    #[test]
    fn paths_are_not_names() {
        // Tests run in the folder of the crate, which has folders src and tests.
        for text in [
            "model",
            "./a/b",
            "/a/b",
            "../a/b",
            "a/b/c",
            "~/a/b",
            "a/",
            "",
            ".a/b",
            "a/b.",
            "a b/c",
            "models/Qwen3-0.6B",
            "runs/text",
            "my-run/adapter",
            "src/lib.rs",
            "src/absent",
            "tests/it",
            "a\\b",
            "C:/b",
        ] {
            assert_eq!(RepoName::model(text).unwrap(), None, "{text}");
        }
        for text in ["data/train.jsonl", "train.parquet", "/data/x"] {
            assert_eq!(DataName::parse(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn names_of_data_sets() {
        let check = |text: &str, expect: [&str; 3]| {
            let name = DataName::parse(text).unwrap().unwrap();
            let found = [name.repo.id(), name.repo.revision(), &name.pattern];
            assert_eq!(found, expect);
            assert_eq!(DataName::parse(&name.to_string()).unwrap(), Some(name), "{text}");
        };
        check("hf://datasets/a/b/data/train-*.parquet", ["a/b", "main", "data/train-*.parquet"]);
        check("hf://datasets/a/b@v1/x.jsonl", ["a/b", "v1", "x.jsonl"]);
        let converted = "hf://datasets/a/b@refs/convert/parquet/main/train/0.parquet";
        check(converted, ["a/b", "refs/convert/parquet", "main/train/0.parquet"]);
    }

    #[test]
    fn paths_in_a_cache_name_a_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let check = |path: &str, model: Option<&str>, data: Option<&str>| {
            let path = path.replace("COMMIT", commit);
            let expect = |text: Option<&str>| text.map(|text| text.replace("COMMIT", commit));
            let found = RepoName::of_path(Path::new(&path)).unwrap();
            assert_eq!(found.map(|name| name.to_string()), expect(model), "{path}");
            let found = DataName::of_path(Path::new(&path)).unwrap();
            assert_eq!(found.map(|name| name.to_string()), expect(data), "{path}");
            assert_eq!(is_name(Path::new(&path)), model.is_some() || data.is_some(), "{path}");
        };
        check("/c/hub/models--a--b-c/snapshots/COMMIT", Some("a/b-c@COMMIT"), None);
        let data = "hf://datasets/a/b@COMMIT/x/y.jsonl";
        check("/c/datasets--a--b/snapshots/COMMIT/x/y.jsonl", None, Some(data));
        for path in [
            "models--a--b/snapshots/main",
            "models--a--b/snapshots",
            "/c/snapshots/COMMIT",
            "models--a/snapshots/COMMIT",
            "spaces--a--b/snapshots/COMMIT",
            "models--a--b/snapshots/COMMIT/config.json",
            "",
        ] {
            check(path, None, None);
        }
    }

    #[test]
    fn refused_names() {
        let check = |error: Result<(), HubError>, expect: &str| {
            assert_eq!(error.unwrap_err().to_string(), expect);
        };
        let model = |text: &str| RepoName::model(text).map(drop);
        let data = |text: &str| DataName::parse(text).map(drop);
        check(
            model("hf://gpt2"),
            "`hf://gpt2` is not a name of the hub; expected org/name or org/name@revision",
        );
        check(
            model("a/b@"),
            "`a/b@` has no valid revision after `@`; expected a branch, a tag or a commit",
        );
        check(
            model("a/b@../../x"),
            "`a/b@../../x` has no valid revision after `@`; expected a branch, a tag or a commit",
        );
        check(
            model("hf://datasets/a/b"),
            "`hf://datasets/a/b` is a data set; expected a model: hf://org/name",
        );
        check(
            model("hf://a/b/config.json"),
            "`hf://a/b/config.json` names a file; expected a whole model: hf://org/name",
        );
        check(
            data("hf://a/b/train.jsonl"),
            "`hf://a/b/train.jsonl` is not a data set; expected hf://datasets/org/name/path",
        );
        check(
            data("hf://datasets/a/b"),
            "`hf://datasets/a/b` names no file; add the path of one or a pattern, e.g. /data/train-*.parquet",
        );
        assert!(model(&format!("hf://a/{}", "x".repeat(100))).is_err());
    }
}
