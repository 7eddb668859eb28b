//! One spelling of paths, so that they can be compared.

use std::path::{Path, PathBuf};

/// Returns a path that is the same for all spellings, also if there is nothing yet.
pub(super) fn spelled_out(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    let mut folders = plain.ancestors();
    let real = folders.find_map(|folder| {
        let real = folder.canonicalize().ok()?;
        let rest = plain.strip_prefix(folder).ok()?;
        Some(if rest == Path::new("") { real } else { real.join(rest) })
    });
    real.unwrap_or(plain)
}
