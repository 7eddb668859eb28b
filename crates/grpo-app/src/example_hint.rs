//! Advice for users without the example files.

use std::path::Path;

/// Returns the end of a message about a missing file, with advice on how to get the examples if
/// `path` looks like one of them.
pub(crate) fn example_hint(path: &Path) -> &'static str {
    match path.starts_with("configs") || path.starts_with("data") {
        true => "; `grpo init-project DIR` writes the examples into a new folder",
        false => "; check the path",
    }
}
