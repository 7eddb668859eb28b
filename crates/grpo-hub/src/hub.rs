//! Finding files in the cache, and downloading those that it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use grpo_data::without_passwords;

use crate::cache::RepoCache;
use crate::download::{Downloads, report, retry_pause};
use crate::error::HubError;
use crate::http::Http;
use crate::listing::Listing;
use crate::name::{RepoKind, RepoName, is_commit};
use crate::patterns::{is_pattern, matches};
use crate::progress::{Observer, Progress};
use crate::refusal::{Asked, refusal};
use crate::settings::HubSettings;
use crate::url::Url;

/// Which files of a repository are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRequest<'a> {
    /// The repository.
    pub repo: &'a RepoName,
    /// Groups of [patterns](crate::matches). Of each group, the first pattern that matches any file
    /// counts, and the files that it matches are needed. So a group can prefer one format to another.
    pub needed: &'a [&'a [&'a str]],
    /// Patterns of files that are taken too, if there are any.
    pub optional: &'a [&'a str],
    /// Whether to ask the hub for the current commit of a branch, even if the cache has one.
    pub newest: bool,
}

/// Files of a repository at a commit, in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The folder of the commit.
    pub folder: PathBuf,
    /// The hash of the commit.
    pub commit: String,
    /// Paths of the files that were asked for, relative to the folder, sorted.
    pub files: Vec<String>,
    /// Number of bytes that were downloaded.
    pub downloaded: u64,
}

/// The hub and its cache.
#[derive(Debug)]
pub struct Hub {
    http: Http,
}

impl Hub {
    /// Creates a client. It connects when a file is missing.
    ///
    /// # Errors
    /// Returns an error if the URL of the hub is not one.
    pub fn new(settings: HubSettings) -> Result<Self, HubError> {
        Ok(Self { http: Http::new(settings)? })
    }

    /// Returns the files of a request. Nothing is sent to the hub if they are in the cache.
    ///
    /// A cache that another tool has filled does not always say which files a repository has. Then it
    /// counts as complete if it has files of each needed group, and all parts of those that are
    /// numbered (`-00001-of-00003`). A pattern for files of a data set needs a list, because others of them
    /// may be missing.
    ///
    /// # Errors
    /// Returns an error if files are missing and cannot be downloaded. Finished files stay in the
    /// cache, and an interrupted download is resumed by the next call.
    pub fn files(
        &self,
        request: &FileRequest<'_>,
        observer: &mut Observer<'_>,
    ) -> Result<Snapshot, HubError> {
        let settings = self.http.settings();
        let may_ask = !settings.offline;
        let asks_anyway = request.newest && may_ask && !is_commit(request.repo.revision());
        let missing = match self.cached(request)? {
            Cached::Whole(snapshot) if !asks_anyway => return Ok(snapshot),
            Cached::Whole(_) => String::new(),
            Cached::Lacks(missing) => missing,
        };
        if !may_ask {
            let (repo, cache) = (request.repo.clone(), settings.cache.clone());
            return Err(HubError::Offline { repo, missing, cache });
        }
        let listing = self.listing(request.repo, observer)?;
        self.fetch(request, &listing, observer)
    }

    fn cached(&self, request: &FileRequest<'_>) -> Result<Cached, HubError> {
        let HubSettings { cache, has_links, .. } = self.http.settings();
        let lacks = |what: String| Ok(Cached::Lacks(what));
        let repo = request.repo;
        let Some(cache) = RepoCache::open(cache, repo, *has_links)? else {
            return lacks("the folder does not exist".to_owned());
        };
        let Some(commit) = cache.commit(repo.revision())? else {
            return lacks(format!("it has no revision `{}` of it", repo.revision()));
        };
        let found = cache.files(&commit)?;
        let listing = cache.listing(&commit);
        let pattern = request.needed.iter().copied().flatten().find(|path| is_pattern(path));
        if let (None, RepoKind::DataSet, Some(pattern)) = (&listing, repo.kind(), pattern) {
            return lacks(format!("it does not list which files match `{pattern}`"));
        }
        let known = listing.as_ref().map_or_else(|| found.clone(), Listing::paths);
        let mut files = match select(request, &known) {
            Ok(files) => files,
            Err(patterns) => return lacks(format!("no file `{}`", patterns.join("` or `"))),
        };
        let is_found = |file: &String| found.binary_search(file).is_ok();
        files.retain(|file| is_found(file) || !is_for_people(request, file));
        if let Some(file) = files.iter().find(|file| !is_found(file)) {
            return lacks(format!("no file `{file}`"));
        }
        if let Some(part) = missing_part(&files) {
            return lacks(part);
        }
        let folder = cache.snapshot(&commit);
        Ok(Cached::Whole(Snapshot { folder, commit, files, downloaded: 0 }))
    }

    /// Asks the hub for the commit of a revision and its files.
    fn listing(&self, repo: &RepoName, observer: &mut Observer<'_>) -> Result<Listing, HubError> {
        let name = repo.to_string();
        report(observer, &name, &Progress::Listing { repo: &name })?;
        let path = format!("api/{}/{}", repo.kind().plural(), repo.id());
        let revision = crate::url::encoded(repo.revision(), "");
        let url = self.http.url(&format!("{path}/revision/{revision}?blobs=true"))?;
        let mut pause = |error: &HubError, length| retry_pause(&name, error, length, observer);
        let refused = |reply: &_| refusal(&self.http, repo, Asked::Revision, reply);
        let (json, _) = match self.http.get_whole(&url, &refused, &mut pause) {
            Err(error @ HubError::NoRevision { .. }) => {
                // Not every server says whether the repository or its revision is missing.
                let refused = |reply: &_| refusal(&self.http, repo, Asked::Repo, reply);
                let found = self.http.get_whole(&self.http.url(&path)?, &refused, &mut pause);
                return Err(match found {
                    Err(error @ HubError::NoRepo { .. }) => error,
                    _ => error,
                });
            }
            json => json?,
        };
        let bad = |url: &Url, what: String| self.http.bad_reply(url, &what);
        let mut listing = Listing::from_reply(&json).map_err(|what| bad(&url, what))?;
        if is_commit(repo.revision()) && listing.commit != repo.revision() {
            return Err(bad(&url, format!("it answers with the commit {}", listing.commit)));
        }
        if listing.may_lack_files() {
            listing.files.clear();
            let first = format!("{path}/tree/{}?recursive=true&expand=false", listing.commit);
            let mut next = Some(self.http.url(&first)?);
            let mut seen = BTreeSet::new();
            while let Some(url) = next {
                if !seen.insert(url.text().to_owned()) {
                    return Err(bad(&url, "the pages of the listing repeat themselves".to_owned()));
                }
                let (json, following) = self.http.get_whole(&url, &refused, &mut pause)?;
                listing.add_page(&json).map_err(|what| bad(&url, what))?;
                next = following;
            }
        }
        Ok(listing)
    }

    /// Downloads the files that the cache lacks.
    fn fetch(
        &self,
        request: &FileRequest<'_>,
        listing: &Listing,
        observer: &mut Observer<'_>,
    ) -> Result<Snapshot, HubError> {
        let HubSettings { cache, has_links, .. } = self.http.settings();
        let (repo, commit) = (request.repo, listing.commit.as_str());
        let files = select(request, &listing.paths()).map_err(|patterns| HubError::NoFile {
            repo: repo.clone(),
            patterns,
            found: listing.paths(),
        })?;
        for file in &files {
            let url = || without_passwords(&self.http.settings().endpoint).into_owned();
            Listing::check_path(file).map_err(|what| HubError::Reply { url: url(), what })?;
        }
        let cache = RepoCache::create(cache, repo, *has_links)?;
        let mut missing = Vec::new();
        let mut size = Some(0_u64);
        for file in &files {
            if !cache.has(commit, file)? {
                let entry = &listing.files[file];
                size = size.zip(cache.missing_bytes(entry)?).map(|(a, b)| a.saturating_add(b));
                missing.push((file.as_str(), entry));
            }
        }
        if !missing.is_empty() {
            report(observer, commit, &Progress::Missing { files: missing.len(), size })?;
        }
        check_space(&cache, size.unwrap_or(0))?;
        let downloads = Downloads { http: &self.http, cache: &cache, repo, commit };
        let mut downloaded = 0;
        for (file, entry) in missing {
            downloaded += downloads.fetch(file, entry, observer)?;
        }
        // Last, so that a revision in the cache has what was asked for.
        cache.write_listing(listing);
        cache.write_commit(repo.revision(), commit)?;
        Ok(Snapshot {
            folder: cache.snapshot(commit),
            commit: commit.to_owned(),
            files,
            downloaded,
        })
    }
}

/// What the cache has of a request.
enum Cached {
    Whole(Snapshot),
    /// What is missing, for messages.
    Lacks(String),
}

impl Listing {
    fn paths(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }
}

/// Returns whether a file is text for people. A cache without it is complete, as those are that other
/// tools have filled with what they load.
fn is_for_people(request: &FileRequest<'_>, file: &str) -> bool {
    let is_text = ["README.md", "LICENSE*"].iter().any(|pattern| matches(pattern, file));
    is_text && !request.needed.iter().copied().flatten().any(|pattern| matches(pattern, file))
}

/// Returns the files of a request, sorted.
///
/// # Errors
/// Returns the patterns of a group that match none.
fn select(request: &FileRequest<'_>, known: &[String]) -> Result<Vec<String>, Vec<String>> {
    let of = |pattern: &str| {
        // A recorded path can contain the characters of a pattern.
        match known.iter().any(|file| file == pattern) {
            true => vec![pattern.to_owned()],
            false => known.iter().filter(|file| matches(pattern, file)).cloned().collect(),
        }
    };
    let mut files: Vec<String> =
        request.optional.iter().flat_map(|pattern| -> Vec<String> { of(pattern) }).collect();
    for group in request.needed {
        let found =
            group.iter().map(|pattern| of(pattern)).find(|found: &Vec<String>| !found.is_empty());
        files.extend(
            found.ok_or_else(|| {
                group.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>()
            })?,
        );
    }
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

/// Describes the first missing part of the files that are numbered as `name-00001-of-00003.ending`.
fn missing_part(files: &[String]) -> Option<String> {
    let mut sets: BTreeMap<(&str, u32, &str), Vec<u32>> = BTreeMap::new();
    for file in files {
        if let Some((start, part, parts, end)) = numbered(file) {
            sets.entry((start, parts, end)).or_default().push(part);
        }
    }
    sets.into_iter().find(|((_, parts, _), found)| found.len() < *parts as usize).map(
        |((start, parts, end), found)| {
            format!("only {} of the {parts} parts of `{start}{end}`", found.len())
        },
    )
}

/// Splits `name-00001-of-00003.ending`.
fn numbered(file: &str) -> Option<(&str, u32, u32, &str)> {
    let (start, rest) = file.rsplit_once("-of-")?;
    let (start, part) = start.rsplit_once('-')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((start, part.parse().ok()?, rest[..digits].parse().ok()?, &rest[digits..]))
}

/// Checks that the disk has space for a download.
fn check_space(cache: &RepoCache, needed: u64) -> Result<(), HubError> {
    // Some file systems do not tell, and then a write fails if the disk is full.
    let Ok(free) = fs4::available_space(cache.root()) else { return Ok(()) };
    if needed <= free {
        return Ok(());
    }
    let (needed, free) = (Some(needed), Some(free));
    Err(HubError::DiskFull { cache: cache.root().to_owned(), needed, free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_of_a_group_counts() {
        let repo = RepoName::model("hf://a/b").unwrap().unwrap();
        let check = |known: &[&str], expect: Result<&[&str], &str>| {
            let request = FileRequest {
                repo: &repo,
                needed: &[&["config.json"], &["model*.safetensors", "*.bin"]],
                optional: &["*.json", "*.txt"],
                newest: false,
            };
            let known: Vec<String> = known.iter().map(|&file| file.to_owned()).collect();
            let found = select(&request, &known).map_err(|patterns| patterns.join(" "));
            let found =
                found.as_ref().map(|files| files.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(found.as_deref().map_err(|text| text.as_str()), expect);
        };
        check(
            &["config.json", "m.bin", "model.safetensors", "x/model.safetensors", "x.txt", "y.md"],
            Ok(&["config.json", "model.safetensors", "x.txt"]),
        );
        check(&["config.json", "m.bin"], Ok(&["config.json", "m.bin"]));
        check(&["config.json"], Err("model*.safetensors *.bin"));
        let request =
            FileRequest { repo: &repo, needed: &[&["x[1].json"]], optional: &[], newest: false };
        let known = ["x1.json", "x[1].json"].map(str::to_owned);
        assert_eq!(select(&request, &known).unwrap(), ["x[1].json"]);
        assert_eq!(select(&request, &known[..1]).unwrap(), ["x1.json"]);
    }

    #[test]
    fn missing_parts_are_named() {
        let check = |files: &[&str], expect: Option<&str>| {
            let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
            assert_eq!(missing_part(&files).as_deref(), expect);
        };
        check(&["model.safetensors", "a-of-b"], None);
        check(&["m-00001-of-00002.bin", "m-00002-of-00002.bin"], None);
        check(&["m-00001-of-00002.bin"], Some("only 1 of the 2 parts of `m.bin`"));
        check(&["d/train-00000-of-00001-abc.parquet"], None);
    }
}
