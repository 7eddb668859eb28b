//! Paths that a run folder can have.

use crate::RunError;
use grpo_data::short_text;
use std::path::Path;

/// Longest name of a file or folder, in bytes. The folder is created under a name that is longer by
/// up to 32 bytes and then renamed.
const LONGEST_NAME: usize = 255 - 32;
/// Longest path, in bytes. Files in the run folder have longer paths.
const LONGEST_PATH: usize = 3800;

/// Checks that a folder can be created at `path`, without looking at the disk.
///
/// # Errors
/// Returns an error if the path is empty, ends with `/` alone or `..`, is too long, is not UTF-8 text, or
/// contains a NUL character.
pub(crate) fn check_run_name(path: &Path) -> Result<(), RunError> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let longest = path.iter().map(|name| name.as_encoded_bytes().len()).max().unwrap_or(0);
    let reason = if bytes.is_empty() {
        "it is empty"
    } else if bytes.contains(&0) {
        "it contains a NUL character"
    } else if path.to_str().is_none() {
        "it is not UTF-8 text, which config.toml needs"
    } else if path.file_name().is_none() {
        "it does not end in the name of a folder"
    } else if longest > LONGEST_NAME || bytes.len() > LONGEST_PATH {
        "it is too long"
    } else {
        return Ok(());
    };
    Err(RunError::BadName { name: short_text(&path.to_string_lossy()), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration of the run, which is UTF-8 text, names the folder.
    #[test]
    #[cfg(unix)]
    fn names_are_utf8() {
        use std::os::unix::ffi::OsStrExt;
        for name in [&b"runs/\xff"[..], b"\xfe/run"] {
            let path = Path::new(std::ffi::OsStr::from_bytes(name));
            let error = check_run_name(path).unwrap_err().to_string();
            assert!(error.contains("cannot be a run folder: it is not UTF-8 text"), "{error}");
        }
    }

    #[test]
    fn names_that_no_folder_can_have_are_refused() {
        for (name, expected) in [
            ("run", None),
            ("runs/a b/é", None),
            ("./run/", None),
            ("", Some("it is empty")),
            ("/", Some("does not end")),
            ("runs/..", Some("does not end")),
            ("a\0b", Some("NUL")),
            (&"a".repeat(5000), Some("too long")),
            (&"a/".repeat(2500), Some("too long")),
            (&"a".repeat(240), Some("too long")),
        ] {
            let found = check_run_name(Path::new(name)).err().map(|error| error.to_string());
            match (expected, &found) {
                (None, None) => {}
                (Some(part), Some(error)) => assert!(error.contains(part), "{error}"),
                _ => panic!("{name}: {found:?}"),
            }
        }
    }
}
