//! The download of one file into the cache.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::thread;
use std::time::{Duration, Instant};

use grpo_data::Locked;

use crate::cache::{RepoCache, is_full};
use crate::error::HubError;
use crate::hash::Hash;
use crate::http::{Failure, Http, Method, Reply, Retry};
use crate::listing::Entry;
use crate::name::RepoName;
use crate::progress::{Observer, Progress};
use crate::refusal::{Asked, refusal};
use crate::url::{Url, encoded};

/// How often a pause and a wait for another process report progress.
const SLICE: Duration = Duration::from_millis(100);

/// Downloads files of a commit.
pub(crate) struct Downloads<'a> {
    pub(crate) http: &'a Http,
    pub(crate) cache: &'a RepoCache,
    pub(crate) repo: &'a RepoName,
    pub(crate) commit: &'a str,
}

/// A file as the hub describes it.
struct Described<'a> {
    path: &'a str,
    url: Url,
    hash: Hash,
    size: Option<u64>,
}

impl Downloads<'_> {
    /// Makes a file a part of the snapshot. Returns the number of bytes that were downloaded.
    pub(crate) fn fetch(
        &self,
        path: &str,
        entry: &Entry,
        observer: &mut Observer<'_>,
    ) -> Result<u64, HubError> {
        let file = self.describe(path, entry, observer)?;
        let lock = self.lock(&file, observer)?;
        // Another process may have finished it. Without links, its blob is gone then.
        if self.cache.has(self.commit, path)? {
            return Ok(0);
        }
        let downloaded = match self.cache.has_blob(&file.hash)? {
            true => 0,
            false => self.blob(&file, matches!(lock, Locked::Held(_)), observer)?,
        };
        self.cache.link(self.commit, path, &file.hash)?;
        drop(lock);
        Ok(downloaded)
    }

    /// Returns the hash and size of a file. Asks for them if they are not listed.
    fn describe<'a>(
        &self,
        path: &'a str,
        entry: &Entry,
        observer: &mut Observer<'_>,
    ) -> Result<Described<'a>, HubError> {
        let (prefix, id) = (self.repo.kind().prefix(), self.repo.id());
        let file = encoded(path, "/");
        let url = self.http.url(&format!("{prefix}{id}/resolve/{}/{file}", self.commit))?;
        if let Some(hash) = entry.hash() {
            return Ok(Described { path, url, hash, size: entry.size() });
        }
        let mut pause = |error: &HubError, length| retry_pause(path, error, length, observer);
        let reply = self.http.with_retries(&mut pause, &mut || {
            let reply = self.http.send(Method::Head, &url)?;
            match reply.status {
                200 => Ok(reply),
                _ => Err(refusal(self.http, self.repo, Asked::File, &reply)),
            }
        })?;
        let commit = reply.header("x-repo-commit");
        if !commit.is_empty() && commit != self.commit {
            let what = format!("this is a file of commit {commit}, not {}", self.commit);
            return Err(self.http.bad_reply(&url, &what));
        }
        let etag = [reply.header("x-linked-etag"), reply.header("etag")]
            .into_iter()
            .find_map(Hash::from_etag);
        let size = entry.size().or_else(|| reply.size());
        let what = "neither the listing nor `ETag` has a hash, so a download cannot be checked";
        match etag {
            Some(hash) => Ok(Described { path, url, hash, size }),
            None => Err(self.http.bad_reply(&url, what)),
        }
    }

    /// Waits until no other process downloads the file.
    fn lock(&self, file: &Described<'_>, observer: &mut Observer<'_>) -> Result<Locked, HubError> {
        loop {
            match self.cache.lock(&file.hash)? {
                Locked::Busy => {
                    report(observer, file.path, &Progress::Waiting { file: file.path })?;
                    thread::sleep(SLICE);
                }
                locked => return Ok(locked),
            }
        }
    }

    /// Downloads a content, checks it, and gives it its name. Returns the number of bytes received.
    fn blob(
        &self,
        file: &Described<'_>,
        is_locked: bool,
        observer: &mut Observer<'_>,
    ) -> Result<u64, HubError> {
        let (name, mut part) = self.cache.open_part(&file.hash, is_locked)?;
        let filled = self.fill(file, &mut part, observer);
        let is_empty = part.metadata().is_ok_and(|part| part.len() == 0);
        // On Windows, an open file cannot be renamed.
        drop(part);
        match &filled {
            Ok(_) => self.cache.finish_part(&name, &file.hash)?,
            // A part that filled the disk would keep others from working.
            Err(HubError::Hash { .. } | HubError::DiskFull { .. }) => self.cache.remove_part(&name),
            Err(_) if is_empty || !is_locked => self.cache.remove_part(&name),
            Err(_) => {}
        }
        filled
    }

    /// Downloads a content and checks it. Returns the number of bytes received.
    fn fill(
        &self,
        file: &Described<'_>,
        part: &mut File,
        observer: &mut Observer<'_>,
    ) -> Result<u64, HubError> {
        let mut resumed = self.length(file, part)?;
        if file.size.is_some_and(|size| resumed > size) {
            self.truncate(file, part)?;
            resumed = 0;
        }
        let mut received = 0;
        loop {
            let (more, host) = self.receive(file, part, observer)?;
            received += more;
            report(observer, file.path, &Progress::Checking { file: file.path })?;
            let found = self.hash(file, part)?;
            if found == file.hash {
                part.sync_all().map_err(|error| self.failed_write(file, error))?;
                return Ok(received);
            }
            if resumed == 0 {
                return Err(HubError::Hash {
                    file: file.path.to_owned(),
                    host,
                    found: found.to_string(),
                    expected: file.hash.to_string(),
                });
            }
            // What an earlier run left may be damaged.
            self.truncate(file, part)?;
            resumed = 0;
        }
    }

    /// Receives what is missing, with as many connections as that takes. Returns the number of bytes,
    /// and the host that has sent the last ones.
    fn receive(
        &self,
        file: &Described<'_>,
        part: &mut File,
        observer: &mut Observer<'_>,
    ) -> Result<(u64, String), HubError> {
        // Further than ever: a server that cannot continue, and closes its connections early, would be
        // asked for the same bytes again and again.
        let mut furthest = self.length(file, part)?;
        let mut received = 0;
        let mut retries = 0;
        let mut host = file.url.host().to_owned();
        loop {
            let before = self.length(file, part)?;
            if file.size == Some(before) {
                return Ok((received, host));
            }
            let outcome = self.receive_once(file, part, &mut host, observer);
            let after = self.length(file, part)?;
            received += after.saturating_sub(before);
            if after > furthest {
                (retries, furthest) = (0, after);
            }
            let failure = match outcome {
                Ok(()) => return Ok((received, host)),
                Err(failure) => failure,
            };
            match self.http.pause_before(retries, failure.retry) {
                Some(length) => retry_pause(file.path, &failure.error, length, observer)?,
                None => return Err(self.interrupted(file, host, after, *failure.error)),
            }
            retries += 1;
        }
    }

    /// Sends one request for the rest of a file, and writes what arrives.
    fn receive_once(
        &self,
        file: &Described<'_>,
        part: &mut File,
        host: &mut String,
        observer: &mut Observer<'_>,
    ) -> Result<(), Failure> {
        let from = self.length(file, part).map_err(permanent)?;
        let mut reply = self.http.send(Method::Get { from }, &file.url)?;
        reply.url.host().clone_into(host);
        let starts_at = match reply.status {
            200 => 0,
            206 if range_start(&reply) == Some(from) => from,
            // The server cannot continue there.
            206 | 416 if from > 0 => {
                self.truncate(file, part).map_err(permanent)?;
                let error =
                    self.http.bad_reply(&reply.url, "it does not send the rest of the file");
                return Err(Failure::new(error, Retry::Yes));
            }
            _ => return Err(refusal(self.http, self.repo, Asked::File, &reply)),
        };
        if starts_at < from {
            self.truncate(file, part).map_err(permanent)?;
        }
        self.write_body(file, part, &mut reply, observer)
    }

    fn write_body(
        &self,
        file: &Described<'_>,
        part: &mut File,
        reply: &mut Reply,
        observer: &mut Observer<'_>,
    ) -> Result<(), Failure> {
        let mut done = self.length(file, part).map_err(permanent)?;
        let mut body = reply.body.as_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let progress = Progress::Downloading { file: file.path, done, size: file.size };
            report(observer, file.path, &progress).map_err(permanent)?;
            let read = match body.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let (what, retry) = self.http.read_failure(&error);
                    return Err(self.lost(reply, what, retry));
                }
            };
            if read == 0 {
                return match file.size {
                    Some(size) if done < size => {
                        let what =
                            "the connection was closed before the end of the file".to_owned();
                        Err(self.lost(reply, what, Retry::Yes))
                    }
                    _ => Ok(()),
                };
            }
            done += read as u64;
            if let Some(size) = file.size.filter(|size| done > *size) {
                self.truncate(file, part).map_err(permanent)?;
                let what = format!("it sends more than the {size} bytes of `{}`", file.path);
                return Err(permanent(self.http.bad_reply(&reply.url, &what)));
            }
            let written = part.write_all(&buffer[..read]);
            written.map_err(|error| permanent(self.failed_write(file, error)))?;
        }
    }

    fn lost(&self, reply: &Reply, what: String, retry: Retry) -> Failure {
        let (url, fix) = (reply.url.shown(), "run again");
        Failure::new(HubError::Connection { url, what, fix }, retry)
    }

    /// Says how far a download came, if it can be resumed there.
    fn interrupted(
        &self,
        file: &Described<'_>,
        host: String,
        done: u64,
        error: HubError,
    ) -> HubError {
        match (error, file.size) {
            (HubError::Connection { what, .. }, Some(size)) if done > 0 => {
                HubError::Interrupted { file: file.path.to_owned(), host, done, size, what }
            }
            (error, _) => error,
        }
    }

    fn length(&self, file: &Described<'_>, part: &File) -> Result<u64, HubError> {
        let length = part.metadata().map(|metadata| metadata.len());
        length.map_err(|source| self.unreadable(file, source))
    }

    fn truncate(&self, file: &Described<'_>, part: &File) -> Result<(), HubError> {
        part.set_len(0).map_err(|error| self.failed_write(file, error))
    }

    fn hash(&self, file: &Described<'_>, part: &mut File) -> Result<Hash, HubError> {
        let size = self.length(file, part)?;
        let hash = part.rewind().and_then(|()| file.hash.of(size, part));
        hash.map_err(|source| self.unreadable(file, source))
    }

    fn unreadable(&self, file: &Described<'_>, source: std::io::Error) -> HubError {
        HubError::Cache { action: "read", path: self.cache.part_path(&file.hash), source }
    }

    fn failed_write(&self, file: &Described<'_>, source: std::io::Error) -> HubError {
        if is_full(&source) {
            let cache = self.cache.root().to_owned();
            return HubError::DiskFull { cache, needed: None, free: None };
        }
        HubError::Cache { action: "write", path: self.cache.part_path(&file.hash), source }
    }
}

fn permanent(error: HubError) -> Failure {
    Failure::new(error, Retry::No)
}

/// Returns the first byte of a reply with a range.
fn range_start(reply: &Reply) -> Option<u64> {
    let range = reply.header("content-range").strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}

pub(crate) fn report(
    observer: &mut Observer<'_>,
    file: &str,
    progress: &Progress<'_>,
) -> Result<(), HubError> {
    match observer(progress) {
        std::ops::ControlFlow::Continue(()) => Ok(()),
        std::ops::ControlFlow::Break(()) => Err(HubError::Stopped { file: file.to_owned() }),
    }
}

/// Pauses before another attempt.
pub(crate) fn retry_pause(
    file: &str,
    error: &HubError,
    length: Duration,
    observer: &mut Observer<'_>,
) -> Result<(), HubError> {
    let start = Instant::now();
    while let Some(left) = length.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        report(observer, file, &Progress::Retrying { file, error, left })?;
        thread::sleep(left.min(SLICE));
    }
    Ok(())
}
