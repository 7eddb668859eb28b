//! Replies on disk, by request.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use grpo_data::{FileKind, ForeignFile, OwnFolder, dangling_link};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::EndpointError;

/// A JSON-lines file with one reply per line. It contains the requests too, but no API key.
///
/// Each line is written as a whole as soon as its reply arrives, so a killed process loses none. An
/// incomplete last line is removed when the file is opened. The file is locked, so no other process
/// can use it at the same time. After a failed write, nothing more is written.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    file: File,
    /// Size of the file in bytes.
    size: u64,
    /// The error of a failed write.
    failure: Option<EndpointError>,
    /// Replies as JSON.
    replies: HashMap<Key, Box<str>>,
}

/// Largest file in bytes.
const LARGEST: u64 = 1 << 30;

/// SHA-256 of the URL and the body of a request.
pub(crate) type Key = [u8; 32];

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    url: String,
    request: Map<String, Value>,
    reply: Value,
}

impl Cache {
    /// Opens a file, or creates it if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read and written, if another process uses it, if a
    /// complete line is not a reply, or if the incomplete last line is not the start of one.
    pub fn open(path: &Path) -> Result<Self, EndpointError> {
        Self::open_with(path, File::try_lock)
    }

    fn open_with(
        path: &Path,
        lock: impl FnOnce(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, EndpointError> {
        let failed = |fix| {
            move |error: std::io::Error| EndpointError::Cache {
                path: path.to_owned(),
                what: error.to_string(),
                fix,
            }
        };
        const FIX: &str = "choose a file in an existing folder that you may write to";
        let file = open_regular(path).map_err(|error| match ForeignFile::of(&error) {
            // The user chose the path, so the advice for files of a run would be wrong.
            Some(ForeignFile::Other { found, .. }) => EndpointError::Cache {
                path: path.to_owned(),
                what: match found {
                    FileKind::Folder => "it is a folder, not a file",
                    _ => "it is a named pipe, device or socket, not a file",
                }
                .to_owned(),
                fix: "choose another file for the cache",
            },
            _ => failed(FIX)(error),
        })?;
        match lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let error = std::io::Error::other("another process uses this cache");
                return Err(failed("wait until it finishes, or use another file")(error));
            }
            // File systems without locks.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(failed(FIX)(error)),
        }
        let mut cache =
            Self { path: path.to_owned(), file, size: 0, failure: None, replies: HashMap::new() };
        // Read only now, so that no other process can have written to the file since.
        let mut bytes = Vec::new();
        (&cache.file).take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed(FIX))?;
        if bytes.len() as u64 > LARGEST {
            let error = std::io::Error::other("the cache is larger than 1 GiB");
            return Err(failed("use another file")(error));
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (lines, torn) = bytes.split_at(whole);
        let refused = |number| EndpointError::Cache {
            path: format!("{}:{number}", path.display()).into(),
            what: "not a line of a reply cache".to_owned(),
            fix: "delete the line, or use another file",
        };
        let mut number = 1;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let (key, reply) = parse(line).ok_or_else(|| refused(number))?;
            cache.replies.entry(key).or_insert(reply);
            number += 1;
        }
        if !is_start(torn) {
            return Err(refused(number));
        }
        if !torn.is_empty() {
            cache.file.set_len(whole as u64).map_err(failed(FIX))?;
        }
        cache.size = whole as u64;
        Ok(cache)
    }

    /// Returns the number of replies.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Returns `true` if the cache has no replies.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Returns the reply to a request.
    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        let reply = self.replies.get(key)?;
        Some(serde_json::from_str(reply).expect("written by serde_json"))
    }

    /// Adds the reply to a request. After an error, returns the same error again.
    pub(crate) fn append(
        &mut self,
        key: Key,
        url: &str,
        request: Map<String, Value>,
        reply: Value,
    ) -> Result<(), EndpointError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let line = Line { key: hex(&key), url: url.to_owned(), request, reply };
        let mut bytes = serde_json::to_vec(&line).expect("JSON values serialize");
        bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&bytes) {
            // If this fails too, the incomplete line is removed when the file is opened again.
            let _ = self.file.set_len(self.size);
            let what = error.to_string();
            let fix = "free space on the disk, or use another file";
            let failure = EndpointError::Cache { path: self.path.clone(), what, fix };
            self.failure = Some(failure.clone());
            return Err(failure);
        }
        self.size += bytes.len() as u64;
        self.replies.insert(key, line.reply.to_string().into());
        Ok(())
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // Closing the file would not unlock it while a child process that is being started has a copy.
        // The operating system unlocks files that cannot be unlocked here.
        let _ = self.file.unlock();
    }
}

/// Returns the key of a request. The order of keys in the body does not matter.
pub(crate) fn key(url: &str, body: &Map<String, Value>) -> Key {
    let mut body = Value::Object(body.clone());
    body.sort_all_objects();
    Sha256::new()
        .chain_update(url)
        .chain_update("\n")
        .chain_update(body.to_string())
        .finalize()
        .into()
}

/// Opens a regular file for reading and appending, and creates it if it does not exist. Links are
/// followed, because the user chose the path.
fn open_regular(path: &Path) -> std::io::Result<File> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(link) = dangling_link(&real) {
        return Err(std::io::Error::other(link));
    }
    let (folder, name) = OwnFolder::around(&real)?;
    folder.open_to_read_and_append(name)
}

fn parse(line: &[u8]) -> Option<(Key, Box<str>)> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let key = key(&line.url, &line.request);
    (line.key == hex(&key)).then(|| (key, line.reply.to_string().into()))
}

/// Returns whether bytes are the start of a line: `{"key":"`, 64 hexadecimal digits, `","url":"` and
/// anything, cut off anywhere.
fn is_start(bytes: &[u8]) -> bool {
    let start = format!("{{\"key\":\"{}\",\"url\":\"", "0".repeat(64));
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    bytes.iter().zip(start.bytes()).all(|(found, expected)| match expected {
        b'0' => is_digit(found),
        _ => *found == expected,
    })
}

fn hex(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn body(text: &str) -> Map<String, Value> {
        json!({"model": "m", "prompt": text}).as_object().unwrap().clone()
    }

    #[test]
    fn keys_depend_on_values_and_not_on_their_order() {
        let of = |body: Value| key("u", body.as_object().unwrap());
        let one = of(json!({"a": 1, "b": {"c": 2, "d": 3}}));
        assert_eq!(one, of(json!({"b": {"d": 3, "c": 2}, "a": 1})));
        assert_ne!(one, of(json!({"a": 1, "b": {"c": 2, "d": 4}})));
        assert_ne!(key("u", &body("x")), key("v", &body("x")));
        // printf 'u\n{"model":"m","prompt":"x"}' | sha256sum
        assert!(hex(&key("u", &body("x"))).starts_with("1412dd49d986ec52"));
    }

    #[test]
    fn a_torn_line_is_dropped_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.jsonl");
        let keys = ["x", "y"].map(|text| key("u", &body(text)));
        let mut cache = Cache::open(&path).unwrap();
        assert!(cache.is_empty());
        for (key, text) in keys.iter().zip(["x", "y"]) {
            cache.append(*key, "u", body(text), json!({"is": text})).unwrap();
        }
        drop(cache);
        let text = fs::read_to_string(&path).unwrap();
        let first = text.find('\n').unwrap() + 1;
        for end in [first, first + 1, text.len() - 1] {
            fs::write(&path, &text[..end]).unwrap();
            let mut cache = Cache::open(&path).unwrap();
            assert_eq!(cache.len(), 1);
            assert_eq!(cache.get(&keys[0]), Some(json!({"is": "x"})));
            assert_eq!(cache.get(&keys[1]), None);
            cache.append(keys[1], "u", body("y"), json!({"is": "y"})).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(cache.get(&keys[1]), Some(json!({"is": "y"})));
        }
        assert_eq!(Cache::open(&path).unwrap().len(), 2);
    }

    #[test]
    fn files_that_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.jsonl");
        let check = |path: &Path, expect: &str| {
            let error = Cache::open(path).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        let cache = Cache::open(&path).unwrap();
        check(&path, "another process uses this cache; wait until it finishes, or");
        drop(cache);
        fs::write(&path, "{}\n").unwrap();
        check(&path, "cache.jsonl:1: not a line of a reply cache; delete the line");
        // A request that was changed has another key.
        let line = Line {
            key: hex(&key("u", &body("x"))),
            url: "u".to_owned(),
            request: body("y"),
            reply: json!(1),
        };
        fs::write(&path, serde_json::to_string(&line).unwrap() + "\n").unwrap();
        check(&path, "not a line of a reply cache");
        let other = "choose another file for the cache";
        check(folder.path(), &format!(": it is a folder, not a file; {other}"));
        let device = "it is a named pipe, device or socket, not a file";
        for special in ["/dev/null", "/dev/full"] {
            check(Path::new(special), &format!("{special}: {device}; {other}"));
        }
        check(&folder.path().join("absent/cache.jsonl"), "choose a file in an existing folder");
    }

    #[test]
    fn files_without_a_line_break_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        let key = hex(&key("u", &body("x")));
        for text in [
            "x",
            "{\"key\": \"spaced\"}",
            "{\"key\":\"value\"}",
            &format!("{{\"key\":\"{key}\"}}"),
            &format!("{{\"key\":\"{key}\",\"path\":\"\"}}"),
            "[1]",
        ] {
            fs::write(&path, text).unwrap();
            let error = Cache::open(&path).unwrap_err().to_string();
            assert!(error.contains("notes.txt:1: not a line of a reply cache"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        for text in ["", "{", "{\"key\":\"0a", &format!("{{\"key\":\"{key}\",\"url\":\"http")] {
            fs::write(&path, text).unwrap();
            assert!(Cache::open(&path).unwrap().is_empty());
            assert_eq!(fs::read_to_string(&path).unwrap(), "");
        }
    }

    /// Another process may write until the lock is acquired.
    #[test]
    fn the_file_is_read_after_it_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.jsonl");
        let lock = |file: &File| {
            let (key, request) = (hex(&key("u", &body("x"))), body("x"));
            let line = Line { key, url: "u".to_owned(), request, reply: json!(1) };
            fs::write(&path, serde_json::to_string(&line).unwrap() + "\n").unwrap();
            file.try_lock()
        };
        let cache = Cache::open_with(&path, lock).unwrap();
        assert_eq!(cache.get(&key("u", &body("x"))), Some(json!(1)));
        assert_eq!(cache.size, fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn nothing_is_written_after_a_failed_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.jsonl");
        let mut cache = Cache::open(&path).unwrap();
        let [x, y] = ["x", "y"].map(|text| key("u", &body(text)));
        let writable = std::mem::replace(&mut cache.file, File::open(&path).unwrap());
        let error = cache.append(x, "u", body("x"), json!(1)).unwrap_err();
        assert!(error.to_string().contains("cache.jsonl: "), "{error}");
        cache.file = writable;
        assert_eq!(cache.append(y, "u", body("y"), json!(1)), Err(error));
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), cache.len()), ("", 0));
    }

    /// Runs itself in a shell that limits the size of files, as a full disk would.
    #[test]
    fn an_incomplete_line_is_removed_after_a_failed_write() {
        const VARIABLE: &str = "GRPO_ENDPOINT_CACHE_ON_A_FULL_DISK";
        const SCRIPT: &str = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact cache::tests::an_incomplete_line_is_removed_after_a_failed_write";
        if let Some(path) = std::env::var_os(VARIABLE) {
            let path = Path::new(&path);
            let mut cache = Cache::open(path).unwrap();
            let [x, y] = ["x", "y"].map(|text| key("u", &body(text)));
            cache.append(x, "u", body("x"), json!(1)).unwrap();
            let before = fs::read(path).unwrap();
            let error = cache.append(y, "u", body("y"), json!("y".repeat(50_000))).unwrap_err();
            assert!(error.to_string().contains("free space on the disk"), "{error}");
            assert_eq!(fs::read(path).unwrap(), before);
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache.jsonl");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", SCRIPT]).arg(std::env::current_exe().unwrap()).env(VARIABLE, &path);
        let ended = shell.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        assert_eq!(Cache::open(&path).unwrap().len(), 1);
    }
}
