//! Replies on disk, by request.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use grpo_data::regular_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::EndpointError;

/// A JSON-lines file with one reply per line. It contains the requests too, but no API key.
///
/// Each line is written as a whole as soon as its reply arrives, so a killed process loses none. An
/// incomplete last line is removed when the file is opened. The file is locked, so no other process
/// can use it at the same time.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    file: File,
    /// Replies as JSON.
    replies: HashMap<Key, Box<str>>,
}

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
    /// Returns an error if the file cannot be read and written, if another process uses it, or if a
    /// complete line is not a reply.
    pub fn open(path: &Path) -> Result<Self, EndpointError> {
        let failed = |fix| {
            move |error: std::io::Error| EndpointError::Cache {
                path: path.to_owned(),
                what: error.to_string(),
                fix,
            }
        };
        const FIX: &str = "choose a file in an existing folder that you may write to";
        if !path.exists() {
            OpenOptions::new().append(true).create(true).open(path).map_err(failed(FIX))?;
        }
        // Refuses folders, devices and named pipes before the file is opened for writing.
        let bytes = regular_file::read_data(path).map_err(failed(FIX))?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed(FIX))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let error = std::io::Error::other("another process uses this cache");
                return Err(failed("wait for its end, or use another file")(error));
            }
            // File systems without locks.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(failed(FIX)(error)),
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut replies = HashMap::new();
        for (number, line) in (1..).zip(bytes[..whole].split_inclusive(|byte| *byte == b'\n')) {
            let (key, reply) = parse(line).ok_or_else(|| EndpointError::Cache {
                path: format!("{}:{number}", path.display()).into(),
                what: "not a line of this cache".to_owned(),
                fix: "delete the line, or use another file",
            })?;
            replies.entry(key).or_insert(reply);
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed(FIX))?;
        }
        Ok(Self { path: path.to_owned(), file, replies })
    }

    /// Returns the number of replies.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Returns whether there are no replies.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Returns the reply to a request.
    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        let reply = self.replies.get(key)?;
        Some(serde_json::from_str(reply).expect("written by serde_json"))
    }

    /// Adds the reply to a request.
    pub(crate) fn append(
        &mut self,
        key: Key,
        url: &str,
        request: Map<String, Value>,
        reply: Value,
    ) -> Result<(), EndpointError> {
        let line = Line { key: hex(&key), url: url.to_owned(), request, reply };
        let mut bytes = serde_json::to_vec(&line).expect("JSON values serialize");
        bytes.push(b'\n');
        self.file.write_all(&bytes).map_err(|error| EndpointError::Cache {
            path: self.path.clone(),
            what: error.to_string(),
            fix: "free space on the disk, or use another file",
        })?;
        self.replies.insert(key, line.reply.to_string().into());
        Ok(())
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

fn parse(line: &[u8]) -> Option<(Key, Box<str>)> {
    let line: Line = serde_json::from_slice(line).ok()?;
    let key = key(&line.url, &line.request);
    (line.key == hex(&key)).then(|| (key, line.reply.to_string().into()))
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
        check(&path, "another process uses this cache; wait for its end");
        drop(cache);
        fs::write(&path, "{}\n").unwrap();
        check(&path, "cache.jsonl:1: not a line of this cache; delete the line");
        // A request that was changed has another key.
        let line = Line {
            key: hex(&key("u", &body("x"))),
            url: "u".to_owned(),
            request: body("y"),
            reply: json!(1),
        };
        fs::write(&path, serde_json::to_string(&line).unwrap() + "\n").unwrap();
        check(&path, "not a line of this cache");
        check(folder.path(), "it is a folder, not a regular file");
        check(&folder.path().join("absent/cache.jsonl"), "choose a file in an existing folder");
    }
}
