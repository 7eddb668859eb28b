//! The cache that the hub's tools share.
//!
//! ```text
//! models--org--name/refs/main                     the commit of a branch or tag
//! models--org--name/snapshots/<commit>/<path>     a link to a blob, or a file where links are missing
//! models--org--name/blobs/<hash>                  a content
//! models--org--name/blobs/<hash>.incomplete       a download that was interrupted, and can be resumed
//! models--org--name/blobs/<hash>.<n>.incomplete   a download on a file system without locks
//! models--org--name/trees/<commit>.json           the files of a commit
//! .locks/models--org--name/<hash>.lock            who writes a blob
//! ```
//!
//! Links are followed only from a snapshot to a blob of the same repository, and from there to the
//! blobs that several repositories share. A cache can come from somebody else, and another link could
//! lead to any file.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};

use grpo_data::{FileKind, Locked, OwnFolder, regular_file};

use crate::error::HubError;
use crate::hash::Hash;
use crate::listing::{Entry, Listing};
use crate::name::{RepoName, is_commit};

/// Size of the largest listing that is kept, which is that of the largest file that [`regular_file::read_from`]
/// reads. It has about 300,000 files.
const LARGEST_TREE: usize = 64 << 20;

/// The part of the cache that belongs to a repository.
#[derive(Debug)]
pub(crate) struct RepoCache {
    root: OwnFolder,
    /// Name of the repository's folder.
    name: String,
    has_links: bool,
}

impl RepoCache {
    /// Opens the cache. Returns `None` if its folder does not exist.
    pub(crate) fn open(
        root: &Path,
        repo: &RepoName,
        has_links: bool,
    ) -> Result<Option<Self>, HubError> {
        match OwnFolder::open(root) {
            Ok(root) => Ok(Some(Self { root, name: repo.folder(), has_links })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(HubError::Cache { action: "open", path: root.to_owned(), source }),
        }
    }

    /// Opens the cache, and creates its folder if it does not exist.
    pub(crate) fn create(root: &Path, repo: &RepoName, has_links: bool) -> Result<Self, HubError> {
        let failed = |source| HubError::Cache { action: "create", path: root.to_owned(), source };
        std::fs::create_dir_all(root).map_err(failed)?;
        let root = OwnFolder::open(root).map_err(failed)?;
        Ok(Self { root, name: repo.folder(), has_links })
    }

    /// Returns the path of the snapshot of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.path().join(self.within("snapshots")).join(commit)
    }

    /// Returns the commit of a revision as the cache knows it.
    pub(crate) fn commit(&self, revision: &str) -> Result<Option<String>, HubError> {
        if is_commit(revision) {
            return Ok(Some(revision.to_owned()));
        }
        let name = self.within("refs").join(revision);
        let Some(text) = self.read(&name)? else { return Ok(None) };
        let commit = String::from_utf8_lossy(&text).trim().to_owned();
        match is_commit(&commit) {
            true => Ok(Some(commit)),
            false => Err(self.foreign(&name, "does not contain a commit")),
        }
    }

    /// Returns the files of a commit, if a tool has listed them.
    pub(crate) fn listing(&self, commit: &str) -> Option<Listing> {
        // One that cannot be read, e.g. because it is too large, is as good as none.
        let json = self.read(&self.tree(commit)).ok().flatten();
        json.and_then(|json| Listing::from_tree(commit, &json))
    }

    /// Returns the paths of the files of a commit that are in the cache, sorted.
    pub(crate) fn files(&self, commit: &str) -> Result<Vec<String>, HubError> {
        let mut found = Vec::new();
        self.add_files(commit, "", &mut found)?;
        found.sort_unstable();
        Ok(found)
    }

    fn add_files(
        &self,
        commit: &str,
        folder: &str,
        found: &mut Vec<String>,
    ) -> Result<(), HubError> {
        let name = self.pointer(commit, folder);
        let entries =
            self.root.entries(&name).map_err(|error| self.unusable("read", &name, error))?;
        for (entry, kind) in entries {
            let path = if folder.is_empty() { entry } else { format!("{folder}/{entry}") };
            match kind {
                FileKind::Folder => self.add_files(commit, &path, found)?,
                _ if self.has(commit, &path)? => found.push(path),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether a file of a commit is in the cache.
    pub(crate) fn has(&self, commit: &str, path: &str) -> Result<bool, HubError> {
        let pointer = self.pointer(commit, path);
        match self.kind(&pointer)? {
            None => Ok(false),
            Some(FileKind::File) => Ok(true),
            Some(FileKind::Link) => {
                let blobs = self.within("blobs");
                let Some(blob) = self.target(&pointer, &blobs, 1)? else {
                    return Err(self.foreign(
                        &pointer,
                        "is a link that does not lead to a blob of its repository",
                    ));
                };
                self.has_content(&blob)
            }
            Some(_) => Err(self.foreign(&pointer, "is not a file or a link to one")),
        }
    }

    /// Returns whether the content with a hash is in the cache.
    pub(crate) fn has_blob(&self, hash: &Hash) -> Result<bool, HubError> {
        self.has_content(&self.blob(hash))
    }

    fn has_content(&self, blob: &Path) -> Result<bool, HubError> {
        match self.kind(blob)? {
            None => Ok(false),
            Some(FileKind::File) => Ok(true),
            Some(FileKind::Link) => {
                // Contents that several repositories share are in `blobs/ab/abcd…` next to them.
                let shared = match self.target(blob, Path::new("blobs"), 2)? {
                    Some(shared) => self.kind(&shared)?.map(|kind| kind == FileKind::File),
                    None => Some(false),
                };
                match shared {
                    Some(false) => {
                        Err(self.foreign(blob, "is a link that does not lead to a shared blob"))
                    }
                    found => Ok(found.is_some()),
                }
            }
            Some(_) => Err(self.foreign(blob, "is not a file")),
        }
    }

    /// Returns the target of a relative link, if it is exactly `depth` names below `folder`.
    fn target(
        &self,
        link: &Path,
        folder: &Path,
        depth: usize,
    ) -> Result<Option<PathBuf>, HubError> {
        let target = self.root.link_target(link);
        let target = target.map_err(|error| self.unusable("read", link, error))?;
        let mut path = link.parent().unwrap_or(Path::new("")).to_owned();
        for part in target.components() {
            match part {
                Component::ParentDir if path.pop() => {}
                Component::Normal(name) => path.push(name),
                _ => return Ok(None),
            }
        }
        let is_there =
            path.strip_prefix(folder).is_ok_and(|rest| rest.components().count() == depth);
        Ok(is_there.then_some(path))
    }

    /// Writes the commit of a branch or tag.
    pub(crate) fn write_commit(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if is_commit(revision) || self.commit(revision).ok().flatten().as_deref() == Some(commit) {
            return Ok(());
        }
        self.write(&self.within("refs").join(revision), commit.as_bytes())
    }

    /// Writes the listing of a commit, unless it is there. Without it, the hub is asked more often. So it
    /// is left out if it cannot be written, or is too large to be read.
    pub(crate) fn write_listing(&self, listing: &Listing) {
        if self.listing(&listing.commit).is_some() {
            return;
        }
        if let Some(tree) = listing.to_tree().filter(|tree| tree.len() <= LARGEST_TREE) {
            let _ = self.write(&self.tree(&listing.commit), &tree);
        }
    }

    /// Returns how much of a file is missing, if its size is known.
    pub(crate) fn missing_bytes(&self, entry: &Entry) -> Result<Option<u64>, HubError> {
        let (Some(size), Some(hash)) = (entry.size(), entry.hash()) else {
            return Ok(entry.size());
        };
        if self.has_blob(&hash)? {
            return Ok(Some(0));
        }
        let part = self.root.open_file(self.part(&hash)).and_then(|part| part.metadata());
        Ok(Some(size.saturating_sub(part.map_or(0, |part| part.len()))))
    }

    /// Makes a content a file of a commit.
    pub(crate) fn link(&self, commit: &str, path: &str, hash: &Hash) -> Result<(), HubError> {
        let (pointer, blob) = (self.pointer(commit, path), self.blob(hash));
        let failed = |error| self.unusable("create", &pointer, error);
        self.create_folder_of(&pointer)?;
        if self.kind(&pointer)? == Some(FileKind::Link) {
            // Its blob was deleted, or has another hash.
            self.root.remove_file(&pointer).map_err(failed)?;
        }
        let ups = "../".repeat(path.split('/').count() + 1);
        let target = format!("{ups}blobs/{hash}");
        let linked = match self.has_links {
            true => self.root.create_link(Path::new(&target), &pointer),
            false => Err(ErrorKind::Unsupported.into()),
        };
        match linked {
            // FAT and some network file systems do not permit links. Without permission to write, renaming
            // fails too.
            Err(error)
                if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) =>
            {
                self.root.rename(&blob, &pointer).map_err(failed)
            }
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && self.has(commit, path)? => {
                Ok(())
            }
            linked => linked.map_err(failed),
        }
    }

    /// Locks a blob, unless another process has locked it.
    pub(crate) fn lock(&self, hash: &Hash) -> Result<Locked, HubError> {
        let name = Path::new(".locks").join(&self.name).join(format!("{hash}.lock"));
        self.create_folder_of(&name)?;
        self.root.lock_file(&name).map_err(|error| self.unusable("lock", &name, error))
    }

    /// Opens the file with what an interrupted download left, or a new one. Without a lock, another
    /// process may write at the same time, so the file is one that nobody else uses.
    pub(crate) fn open_part(
        &self,
        hash: &Hash,
        is_locked: bool,
    ) -> Result<(PathBuf, File), HubError> {
        let mut name = self.part(hash);
        self.create_folder_of(&name)?;
        if !is_locked {
            let of = |number| self.within("blobs").join(format!("{hash}.{number}.incomplete"));
            name = self.create_new(&of)?.0;
        }
        match self.root.open_to_read_and_append(&name) {
            Ok(part) => Ok((name, part)),
            Err(error) => Err(self.unusable("write", &name, error)),
        }
    }

    /// Makes a finished download a blob.
    pub(crate) fn finish_part(&self, part: &Path, hash: &Hash) -> Result<(), HubError> {
        let blob = self.blob(hash);
        let renamed = self.root.rename(part, &blob);
        renamed.map_err(|error| self.unusable("write", &blob, error))?;
        // The name may be lost if the machine stops, and then the file is downloaded again.
        let _ = self.root.sync(self.within("blobs"));
        Ok(())
    }

    /// Removes a part that is useless. If this fails, the next download finds that it is.
    pub(crate) fn remove_part(&self, part: &Path) {
        let _ = self.root.remove_file(part);
    }

    /// Returns the path of an unfinished download, for messages.
    pub(crate) fn part_path(&self, hash: &Hash) -> PathBuf {
        self.root.path_of(self.part(hash))
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    fn within(&self, folder: &str) -> PathBuf {
        Path::new(&self.name).join(folder)
    }

    fn pointer(&self, commit: &str, path: &str) -> PathBuf {
        self.within("snapshots").join(commit).join(path)
    }

    fn blob(&self, hash: &Hash) -> PathBuf {
        self.within("blobs").join(hash.text())
    }

    fn part(&self, hash: &Hash) -> PathBuf {
        self.within("blobs").join(format!("{hash}.incomplete"))
    }

    fn tree(&self, commit: &str) -> PathBuf {
        self.within("trees").join(format!("{commit}.json"))
    }

    fn kind(&self, name: &Path) -> Result<Option<FileKind>, HubError> {
        self.root.kind(name).map_err(|error| self.unusable("read", name, error))
    }

    /// Reads a small file. Returns `None` if it does not exist.
    fn read(&self, name: &Path) -> Result<Option<Vec<u8>>, HubError> {
        match self.root.open_file(name).and_then(regular_file::read_from) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| self.unusable("read", name, error)),
        }
    }

    /// Writes a small file as a whole. It is not created in `refs`, where other tools take each file for
    /// a branch, also one that a killed process has left.
    fn write(&self, name: &Path, content: &[u8]) -> Result<(), HubError> {
        self.create_folder_of(name)?;
        let of = |number| self.within("").join(format!(".{number}.tmp"));
        let (temporary, mut file) = self.create_new(&of)?;
        let mut write = || {
            file.write_all(content)?;
            file.sync_all()?;
            self.root.rename(&temporary, name)
        };
        write().map_err(|error| {
            // If this fails too, the file has a name that nothing reads.
            let _ = self.root.remove_file(&temporary);
            self.unusable("write", name, error)
        })
    }

    /// Creates a file with the first number whose name is free. Process ids would not do: those in two
    /// containers can be equal.
    fn create_new(&self, of: &dyn Fn(u32) -> PathBuf) -> Result<(PathBuf, File), HubError> {
        let mut number = 0;
        loop {
            let name = of(number);
            match self.root.create_file(&name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Ok(file) => return Ok((name, file)),
                Err(error) => return Err(self.unusable("write", &name, error)),
            }
        }
    }

    fn create_folder_of(&self, name: &Path) -> Result<(), HubError> {
        let folder = name.parent().unwrap_or(Path::new(""));
        let created = self.root.create_folders(folder);
        created.map_err(|error| self.unusable("create", folder, error))
    }

    pub(crate) fn unusable(
        &self,
        action: &'static str,
        name: &Path,
        source: io::Error,
    ) -> HubError {
        if is_full(&source) {
            let cache = self.root.path().to_owned();
            return HubError::DiskFull { cache, needed: None, free: None };
        }
        HubError::Cache { action, path: self.root.path_of(name), source }
    }

    fn foreign(&self, name: &Path, what: &str) -> HubError {
        HubError::Foreign { path: self.root.path_of(name), what: what.to_owned() }
    }
}

/// Returns whether an error says that the disk, or the share of it that one may use, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_lock_each_download_has_its_own_part() {
        let folder = tempfile::tempdir().unwrap();
        let repo = RepoName::model("hf://a/b").unwrap().unwrap();
        let cache = RepoCache::create(folder.path(), &repo, true).unwrap();
        let hash = Hash::parse(&"1".repeat(40)).unwrap();
        let name = |is_locked| cache.open_part(&hash, is_locked).unwrap().0;
        let own = [name(false), name(false)];
        assert_eq!((name(true), name(true)), (cache.part(&hash), cache.part(&hash)));
        assert_ne!(own[0], own[1]);
        cache.finish_part(&own[0], &hash).unwrap();
        cache.remove_part(&own[1]);
        let blobs = folder.path().join("models--a--b/blobs");
        let left = |name: &str| blobs.join(format!("{hash}{name}")).exists();
        assert!(
            left("") && left(".incomplete") && !left(".0.incomplete") && !left(".1.incomplete")
        );
    }
}
