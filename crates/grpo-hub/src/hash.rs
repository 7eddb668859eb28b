//! Hashes by which the hub names the contents of files.

use std::fmt;
use std::io::{self, Read};

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The hash of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// SHA-1 of git's blob: of a header with the size, and the content.
    Git(String),
    /// SHA-256 of the content, of a file of LFS.
    Sha256(String),
}

impl Hash {
    /// Reads a hash in hexadecimal digits. Its length says which one it is.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match text.len() {
            40 if is_hex => Some(Self::Git(text.to_owned())),
            64 if is_hex => Some(Self::Sha256(text.to_owned())),
            _ => None,
        }
    }

    /// Reads the header `ETag` or `X-Linked-Etag`.
    pub(crate) fn from_etag(etag: &str) -> Option<Self> {
        Self::parse(etag.trim().trim_start_matches("W/").trim_matches('"'))
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Git(text) | Self::Sha256(text) => text,
        }
    }

    /// Returns the hash of this kind of a content with `size` bytes.
    pub(crate) fn of(&self, size: u64, content: impl Read) -> io::Result<Self> {
        Ok(match self {
            Self::Git(_) => {
                let start = Sha1::new_with_prefix(format!("blob {size}\0"));
                Self::Git(digits(start, content)?)
            }
            Self::Sha256(_) => Self::Sha256(digits(Sha256::new(), content)?),
        })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

fn digits(mut hasher: impl Digest, mut content: impl Read) -> io::Result<String> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_git_and_lfs() {
        // `printf hello | git hash-object --stdin` and `printf hello | sha256sum`.
        for expect in [
            "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0",
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        ] {
            let hash = Hash::parse(expect).unwrap();
            assert_eq!(hash.of(5, &b"hello"[..]).unwrap(), hash);
            assert_ne!(hash.of(5, &b"hellp"[..]).unwrap(), hash);
            assert_eq!(Hash::from_etag(&format!("W/\"{expect}\"")), Some(hash));
        }
        assert_eq!(Hash::from_etag("\"abc\""), None);
        assert_eq!(Hash::parse(&"Z".repeat(40)), None);
    }
}
