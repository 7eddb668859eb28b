//! Utilities for the model folders of rewards.

use std::path::{Path, PathBuf};

use grpo_data::{ConfigFault, regular_file};

/// Checks that a folder exists. `contents` describes the expected contents for the error message.
///
/// # Errors
/// Returns an error if the folder does not exist.
pub fn check_folder(key: &str, folder: &Path, contents: &str) -> Result<(), ConfigFault> {
    match regular_file::folder_fault(folder) {
        None => Ok(()),
        Some(fault) => ConfigFault::refuse(format!(
            "reward.{key}: folder {} {fault}; {contents}",
            folder.display()
        )),
    }
}

/// Returns the sorted files in a folder, each with the key that refers to the folder.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn folder_files(
    key: &'static str,
    folder: &Path,
) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
    let unreadable = |error: std::io::Error| {
        ConfigFault::from_sentence(
            "",
            format!("reward.{key}: cannot read {}: {error}", folder.display()),
        )
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() {
            files.push((key, path));
        }
    }
    files.sort();
    Ok(files)
}
