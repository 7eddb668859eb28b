//! Data files that are named by a pattern.

use std::path::{Path, PathBuf};

use grpo_hub::{is_pattern, matches};

/// Returns the local files that match a path whose last part is a pattern, sorted by name. Returns `None` if the
/// path is not a pattern, e.g. because it exists.
pub(crate) fn matching_files(path: &Path) -> Option<Vec<PathBuf>> {
    let pattern = path.file_name()?.to_str().filter(|name| is_pattern(name))?;
    if path.exists() {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.unwrap_or(Path::new(".")).read_dir().into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<PathBuf> = names
        .filter(|name| matches(pattern, name))
        .map(|name| path.with_file_name(name))
        .filter(|file| file.is_file())
        .collect();
    found.sort_unstable();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_match_a_pattern() {
        let place = tempfile::tempdir().unwrap();
        for name in ["b.jsonl", "a.jsonl", "a.parquet", "[x].jsonl"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        std::fs::create_dir(place.path().join("c.jsonl")).unwrap();
        let check = |pattern: &str, expect: Option<&[&str]>| {
            let found = matching_files(&place.path().join(pattern));
            let expect =
                expect.map(|names| names.iter().map(|name| place.path().join(name)).collect());
            assert_eq!(found, expect, "{pattern}");
        };
        check("*.jsonl", Some(&["[x].jsonl", "a.jsonl", "b.jsonl"]));
        check("a.*", Some(&["a.jsonl", "a.parquet"]));
        check("[ab].jsonl", Some(&["a.jsonl", "b.jsonl"]));
        check("none-*.jsonl", Some(&[]));
        check("absent/*.jsonl", Some(&[]));
        check("a.jsonl", None);
        // A file of this name is not a pattern.
        check("[x].jsonl", None);
    }
}
