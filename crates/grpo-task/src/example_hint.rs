//! Advice for users without the example files.

use std::path::Path;

/// Returns the end of a message about a missing file, with advice on how to get the examples if
/// `path` looks like one of them. Inside of a project, it is a wrong path.
pub(crate) fn example_hint(path: &Path) -> &'static str {
    match ["configs", "data"].into_iter().find(|folder| path.starts_with(folder)) {
        Some(folder) if !Path::new(folder).is_dir() => {
            "; `grpo init-project DIR` writes the examples into a new folder"
        }
        _ => "; check the path",
    }
}
