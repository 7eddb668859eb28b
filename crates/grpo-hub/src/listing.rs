//! The files of a repository at a commit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::name::is_commit;

/// The version of the format of the files `trees/<commit>.json`.
const FORMAT: u32 = 1;

/// The files of a repository at a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    /// By path.
    pub(crate) files: BTreeMap<String, Entry>,
}

/// What the hub lists of a file, as `huggingface_hub` keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    /// SHA-1 of the blob in git, which for a file of LFS is a pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blob_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lfs_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lfs_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) xet_hash: Option<String>,
}

impl Entry {
    fn new(size: Option<u64>, blob_id: Option<String>, lfs: Option<Lfs>) -> Self {
        let Lfs { sha256: lfs_sha256, size: lfs_size } = lfs.unwrap_or_default();
        Self { size, blob_id, lfs_sha256, lfs_size, xet_hash: None }
    }

    /// Returns the hash of the content, if it is listed.
    pub(crate) fn hash(&self) -> Option<Hash> {
        self.lfs_sha256.as_deref().or(self.blob_id.as_deref()).and_then(Hash::parse)
    }

    pub(crate) fn size(&self) -> Option<u64> {
        self.lfs_size.or(self.size)
    }
}

/// Number of files from which the hub may leave some out of its description of a repository.
const MOST_FILES: usize = 50_000;

/// The file `trees/<commit>.json`.
#[derive(Serialize, Deserialize)]
struct Tree {
    format_version: u32,
    files: BTreeMap<String, Entry>,
}

/// The reply of the API.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Default, Deserialize)]
struct Lfs {
    #[serde(alias = "oid")]
    sha256: Option<String>,
    size: Option<u64>,
}

/// A file or folder in the pages of the API.
#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    oid: Option<String>,
    lfs: Option<Lfs>,
}

impl Listing {
    /// Reads the reply to a request for a revision.
    ///
    /// # Errors
    /// Returns what is wrong if it is not that of a hub.
    pub(crate) fn from_reply(json: &[u8]) -> Result<Self, String> {
        let info: Info = serde_json::from_slice(json)
            .map_err(|error| format!("the reply does not list a repository ({error})"))?;
        if !is_commit(&info.sha) {
            return Err("the reply has no commit".to_owned());
        }
        let files = info.siblings.into_iter();
        let files =
            files.map(|file| (file.rfilename, Entry::new(file.size, file.blob_id, file.lfs)));
        Ok(Self { commit: info.sha, files: files.collect() })
    }

    /// Returns whether the files have to be listed by pages.
    pub(crate) fn may_lack_files(&self) -> bool {
        self.files.len() >= MOST_FILES
    }

    /// Adds the files of a page.
    ///
    /// # Errors
    /// Returns what is wrong if it is not that of a hub.
    pub(crate) fn add_page(&mut self, json: &[u8]) -> Result<(), String> {
        let page: Vec<Item> = serde_json::from_slice(json)
            .map_err(|error| format!("the reply does not list files ({error})"))?;
        let files = page.into_iter().filter(|item| item.kind == "file");
        self.files.extend(files.map(|file| (file.path, Entry::new(file.size, file.oid, file.lfs))));
        Ok(())
    }

    /// Checks the path of a file that will be written. A repository may have others, which only other
    /// systems can store.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub(crate) fn check_path(path: &str) -> Result<(), String> {
        match is_path(path) {
            true => Ok(()),
            false => Err(format!(
                "the reply lists a file with the path \"{}\", which cannot be stored",
                grpo_data::short_text(path)
            )),
        }
    }

    /// Reads a listing of the cache. Returns `None` if its format is unknown.
    pub(crate) fn from_tree(commit: &str, json: &[u8]) -> Option<Self> {
        let Tree { format_version, files } = serde_json::from_slice(json).ok()?;
        (format_version == FORMAT).then(|| Self { commit: commit.to_owned(), files })
    }

    /// Returns the listing for the cache, or `None` if it lacks what other tools expect there.
    pub(crate) fn to_tree(&self) -> Option<Vec<u8>> {
        let is_whole = |entry: &Entry| entry.size.is_some() && entry.blob_id.is_some();
        let tree = Tree { format_version: FORMAT, files: self.files.clone() };
        self.files.values().all(is_whole).then(|| serde_json::to_vec_pretty(&tree).ok()).flatten()
    }
}

/// Returns whether a path stays in its repository, and can be the name of a file here.
fn is_path(path: &str) -> bool {
    let is_name = |part: &str| {
        let is_strange = matches!(part, "" | "." | "..") || part.contains(char::is_control);
        !is_strange && (!cfg!(windows) || !part.contains(['\\', ':']))
    };
    path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn listings_of_the_hub_and_of_the_cache() {
        let git = "1".repeat(40);
        let sha256 = "2".repeat(64);
        let reply = format!(
            r#"{{"id": "a/b", "sha": "{COMMIT}", "siblings": [
                {{"rfilename": "x/config.json", "size": 3, "blobId": "{git}"}},
                {{"rfilename": "m.bin", "size": 9, "blobId": "{git}",
                  "lfs": {{"sha256": "{sha256}", "size": 9, "pointerSize": 100}}}}]}}"#
        );
        let listing = Listing::from_reply(reply.as_bytes()).unwrap();
        assert_eq!(listing.files["x/config.json"].hash(), Hash::parse(&git));
        assert_eq!(listing.files["m.bin"].hash(), Hash::parse(&sha256));
        assert_eq!(listing.files["m.bin"].size(), Some(9));
        let tree = listing.to_tree().unwrap();
        assert_eq!(Listing::from_tree(COMMIT, &tree), Some(listing));
        assert_eq!(Listing::from_tree(COMMIT, b"{\"format_version\": 2, \"files\": {}}"), None);
        assert_eq!(Listing::from_tree(COMMIT, b"{"), None);
    }

    #[test]
    fn pages_of_large_repositories() {
        let reply = format!(r#"{{"sha": "{COMMIT}", "siblings": []}}"#);
        let mut listing = Listing::from_reply(reply.as_bytes()).unwrap();
        let (git, sha256) = ("1".repeat(40), "2".repeat(64));
        let page = format!(
            r#"[{{"type": "directory", "path": "x", "oid": "{git}", "size": 0}},
                {{"type": "file", "path": "x/a.json", "oid": "{git}", "size": 3}},
                {{"type": "file", "path": "m.bin", "oid": "{git}", "size": 9,
                  "lfs": {{"oid": "{sha256}", "size": 9, "pointerSize": 100}}, "xetHash": "x"}}]"#
        );
        listing.add_page(page.as_bytes()).unwrap();
        assert_eq!(listing.files.keys().collect::<Vec<_>>(), ["m.bin", "x/a.json"]);
        assert_eq!(listing.files["x/a.json"].hash(), Hash::parse(&git));
        assert_eq!(listing.files["m.bin"].hash(), Hash::parse(&sha256));
        assert!(listing.add_page(b"{}").is_err());
    }

    #[test]
    fn paths_that_leave_the_repository_are_refused() {
        for path in ["../x", "/etc/x", "a/../../x", "a//b", "a/./b", "a\u{1b}[2J", ""] {
            let fault = Listing::check_path(path).unwrap_err();
            assert!(fault.ends_with("which cannot be stored"), "{fault}");
            assert!(!fault.contains('\u{1b}'));
        }
        for path in ["a/b c", "2024-01-01T10:00:00.json", "a\\b", "\u{fc}", "...", "-rf"] {
            let fits = !cfg!(windows) || !path.contains(['\\', ':']);
            assert_eq!(Listing::check_path(path).is_ok(), fits, "{path}");
        }
        assert!(Listing::from_reply(b"<html>").is_err());
        assert!(Listing::from_reply(br#"{"sha": "main", "siblings": []}"#).is_err());
    }
}
