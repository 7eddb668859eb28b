//! Manifests, which list the size and SHA-256 of each file in a folder.

use crate::{RunError, atomic_write};
use grpo_data::regular_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Writes `manifest.json` for all files in `folder` and its subfolders.
///
/// # Errors
/// Returns an error if a file cannot be read, is a link or a device, or if the manifest cannot be
/// written.
pub fn write_manifest(folder: &Path) -> Result<(), RunError> {
    let mut files = BTreeMap::new();
    for (name, path) in files_below(folder)? {
        let (bytes, sha256) = size_and_hash(&path).map_err(RunError::read(&path))?;
        files.insert(name, Entry { bytes, sha256 });
    }
    let json = serde_json::to_string_pretty(&Manifest { version: 1, files });
    let json = json.expect("strings and numbers serialize to JSON") + "\n";
    atomic_write(&folder.join(MANIFEST), json.as_bytes())
}

/// A folder that has been verified against its manifest. Functions that load files require this
/// type instead of a path, so unverified files are never loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedFolder {
    path: PathBuf,
}

impl VerifiedFolder {
    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Verifies a folder against its manifest.
///
/// # Errors
/// Returns an error if the manifest is missing or damaged, or if a file is missing, unlisted (except for
/// `chat_template.jinja` and `README.md`) or modified. The error contains the path of the file.
pub fn verify(folder: &Path) -> Result<VerifiedFolder, RunError> {
    let path = folder.join(MANIFEST);
    let text = match regular_file::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && folder.is_dir() => {
            let fault =
                "has no `manifest.json`, so it is not a complete checkpoint; use another one";
            return Err(RunError::manifest(folder, fault));
        }
        Err(error) => {
            let path = if folder.is_dir() { &path } else { folder };
            return Err(RunError::read(path)(error));
        }
    };
    let manifest: Manifest = serde_json::from_slice(&text).map_err(RunError::json(&path))?;
    if manifest.version != 1 {
        let fault = format!(
            "has manifest version {}, but this program supports version 1; use the program that wrote it, or another checkpoint",
            manifest.version
        );
        return Err(RunError::manifest(folder, fault));
    }
    let mut found = files_below(folder)?;
    for (name, expected) in &manifest.files {
        let Some(path) = found.remove(name) else {
            let fault = "is listed in the manifest but missing; use another checkpoint";
            return Err(RunError::manifest(folder.join(name), fault));
        };
        check(path, expected)?;
    }
    // Users add a template to models that have none. It changes no weights, and a run records its hash
    // like that of its other inputs.
    found.remove(CHAT_TEMPLATE);
    found.remove(MODEL_CARD);
    match found.pop_first() {
        Some((_, path)) => {
            let fault = "is not listed in the manifest; remove it, or use another checkpoint";
            Err(RunError::manifest(path, fault))
        }
        None => Ok(VerifiedFolder { path: folder.to_owned() }),
    }
}

/// Computes the SHA-256 of a file as 64 hexadecimal digits. The file is read in chunks, so it may
/// be larger than memory.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String, RunError> {
    let (_, sha256) = size_and_hash(path).map_err(RunError::read(path))?;
    Ok(sha256)
}

/// Computes the SHA-256 of a folder's manifest, which covers all files in the folder.
///
/// # Errors
/// Returns an error if the manifest cannot be read.
pub fn sha256_of_manifest(folder: &Path) -> Result<String, RunError> {
    sha256_of_file(&folder.join(MANIFEST))
}

const MANIFEST: &str = "manifest.json";

/// Name of the model card. It may be added to a folder with a manifest and edited there, because no
/// command reads more of it than the licence.
pub const MODEL_CARD: &str = "README.md";

/// The only other file that may be added to a folder with a manifest.
const CHAT_TEMPLATE: &str = "chat_template.jinja";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    /// Files by relative path, with `/` as separator.
    files: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bytes: u64,
    sha256: String,
}

fn check(path: PathBuf, entry: &Entry) -> Result<(), RunError> {
    // Check the size first. This is cheap and distinguishes truncated files from modified ones.
    let found = fs::metadata(&path).map_err(RunError::read(&path))?.len();
    if found != entry.bytes {
        let fault = format!(
            "is damaged: it has {found} bytes, but the manifest has {}; use another checkpoint",
            entry.bytes
        );
        return Err(RunError::manifest(path, fault));
    }
    let found = sha256_of_file(&path)?;
    if found != entry.sha256 {
        let fault = format!(
            "is damaged: its SHA-256 is {found}, but the manifest has {}; use another checkpoint",
            entry.sha256
        );
        return Err(RunError::manifest(path, fault));
    }
    Ok(())
}

/// Finds all files in a folder and its subfolders except the manifest. The keys are names as used
/// in the manifest.
fn files_below(folder: &Path) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(String::new(), folder.to_owned())];
    while let Some((prefix, folder)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(RunError::read(&folder))? {
            let entry = entry.map_err(RunError::read(&folder))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(RunError::read(&path))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(RunError::NoName { path });
            };
            let name = format!("{prefix}{name}");
            if kind.is_dir() {
                folders.push((name + "/", path));
            } else if !kind.is_file() {
                let fault = "is neither a file nor a folder; replace it with a regular file";
                return Err(RunError::manifest(path, fault));
            } else if name != MANIFEST {
                files.insert(name, path);
            }
        }
    }
    Ok(files)
}

/// Computes the SHA-256 of `bytes` as 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the size and SHA-256 of a file.
pub(crate) fn size_and_hash(path: &Path) -> io::Result<(u64, String)> {
    let mut file = regular_file::open(path)?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let hash = hash.finalize();
    Ok((bytes, hash.iter().map(|byte| format!("{byte:02x}")).collect()))
}
