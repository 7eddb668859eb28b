//! A client in the tests.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use grpo_hub::{FileRequest, Hub, HubError, HubSettings, RepoName, Snapshot};

use crate::fake::Server;

/// Settings without pauses that a test would notice.
pub(crate) fn settings(server: &Server, cache: &Path) -> HubSettings {
    let mut settings = HubSettings::new(cache, &server.url).unwrap();
    settings.first_pause = Duration::from_millis(1);
    settings.longest_pause = Duration::from_secs(2);
    settings
}

/// Asks for a model: its configuration, its weights, and other files if there are any.
pub(crate) fn model(settings: &HubSettings, name: &str) -> Result<Snapshot, HubError> {
    let repo = RepoName::model(name).unwrap().unwrap();
    let request = FileRequest {
        repo: &repo,
        needed: &[&["config.json"], &["model*.safetensors"]],
        optional: &["*.json", "sub/*.txt"],
        newest: false,
    };
    Hub::new(settings.clone())?.files(&request, &mut |_| ControlFlow::Continue(()))
}

/// Lists the files and links in a folder, with contents or targets, without locks.
pub(crate) fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    add(folder, "", &mut found);
    found.sort();
    found
}

fn add(folder: &Path, start: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{start}{}", entry.file_name().to_str().unwrap());
        let kind = entry.file_type().unwrap();
        if name == ".locks" {
        } else if kind.is_dir() {
            add(&entry.path(), &format!("{name}/"), found);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            found.push(format!("{name} -> {}", target.display()));
        } else {
            found.push(name);
        }
    }
}
