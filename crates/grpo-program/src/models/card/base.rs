//! The base model of a card: its name on the hub, its commit and its licence.

use std::fs::File;
use std::path::Path;

use grpo_data::regular_file;
use grpo_gguf::{Gguf, MetadataValue};
use grpo_hub::RepoName;
use grpo_model::is_gguf_file;
use grpo_run::MODEL_CARD;
use serde_json::Value;

use super::rows::Rows;
use crate::import_trl::yaml::parse_yaml;
use crate::markdown::yaml_text;

/// Longest name of a licence, and longest link.
const LONGEST: usize = 300;
/// Largest card that is read.
const LARGEST_CARD: usize = 1 << 20;

/// What is known of a base model.
#[derive(Debug, Default)]
pub(crate) struct Base {
    /// Name on the hub, from the path in its cache or from the card in the folder.
    pub(super) id: Option<String>,
    /// Path, as the user wrote it, unless it is in the cache of the hub.
    path: Option<String>,
    /// Commit, from the path in the cache.
    pub(super) commit: Option<String>,
    /// The licence.
    pub(super) license: License,
}

/// A licence as its owner states it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct License {
    /// Identifiers of the hub, such as `apache-2.0`.
    ids: Vec<String>,
    name: Option<String>,
    link: Option<String>,
    /// The file that states it.
    from: &'static str,
}

impl Base {
    /// Reads what a model folder or GGUF file says about itself.
    pub(crate) fn of(model: &Path) -> Self {
        let place = model.canonicalize();
        let in_cache = |path: &Path| RepoName::of_snapshot(path).map(|(repo, _)| repo);
        // Files in the cache are links, so the path itself is looked at first.
        let repo = in_cache(model).or_else(|| in_cache(place.as_deref().ok()?));
        let folder = match is_gguf_file(model) {
            // The card next to a file can belong to another one.
            true => model.parent().filter(|_| repo.is_some()),
            false => Some(model),
        };
        let card = folder.map(front_matter).unwrap_or_default();
        let commit = repo.as_ref().map(|repo| repo.revision().to_owned());
        let id = match &repo {
            Some(repo) => Some(repo.id().to_owned()),
            None => card["base_model"].as_str().filter(|id| is_id(id)).map(str::to_owned),
        };
        let page = repo.as_ref().zip(commit.as_ref());
        let page = page
            .map(|(repo, commit)| format!("https://huggingface.co/{}/blob/{commit}/", repo.id()));
        let license = [
            License::of_card(&card, page.as_deref()),
            folder.and_then(License::of_file),
            is_gguf_file(model).then(|| License::of_gguf(model)).flatten(),
        ];
        Self {
            id,
            path: repo.is_none().then(|| model.display().to_string()),
            commit,
            license: license.into_iter().flatten().next().unwrap_or_default(),
        }
    }

    /// Adds the rows about the base model. `title` names it.
    pub(super) fn add_to(&self, title: &str, rows: &mut Rows) {
        match (&self.path, &self.id) {
            (Some(path), Some(id)) => rows.add(&[title, &format!("{path}, derived from {id}")]),
            (Some(only), None) | (None, Some(only)) => rows.add(&[title, only]),
            (None, None) => {}
        }
        if let Some(commit) = &self.commit {
            rows.add(&["Revision", commit]);
        }
        let License { ids, name, from, .. } = &self.license;
        let stated = match name {
            Some(name) => format!("{} ({name})", ids.join(", ")),
            None => ids.join(", "),
        };
        if !ids.is_empty() {
            rows.add(&["Licence of the base model", &format!("{stated}, according to its {from}")]);
        }
    }
}

/// Returns whether a text is a name of the hub, which is copied to the new card.
fn is_id(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(is_plain);
    text.len() <= LONGEST
        && text.split_once('/').is_some_and(|(org, name)| is_part(org) && is_part(name))
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns the metadata of the card in a folder, or nothing if there is none that can be read.
fn front_matter(folder: &Path) -> Value {
    let read = || {
        let text = regular_file::read_to_string(&folder.join(MODEL_CARD)).ok()?;
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        let rest = text.strip_prefix("---\n").filter(|_| text.len() <= LARGEST_CARD)?;
        parse_yaml(rest.split_once("\n---")?.0).ok()
    };
    read().unwrap_or_default()
}

impl License {
    /// Reads the metadata of a card. `page` is where its files are on the hub.
    fn of_card(card: &Value, page: Option<&str>) -> Option<Self> {
        let is_license = |id: &&str| !id.is_empty() && id.len() <= 64 && id.chars().all(is_plain);
        let stated = match &card["license"] {
            Value::Array(ids) => ids.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().into_iter().collect::<Vec<_>>(),
        };
        let ids: Vec<String> = stated.into_iter().filter(is_license).map(str::to_owned).collect();
        let text = |key: &str| card[key].as_str().filter(|text| text.len() <= LONGEST);
        let link = text("license_link").and_then(|link| match link.contains("://") {
            true => Some(link.to_owned()).filter(|link| link.starts_with("https://")),
            // A file of the repository.
            false => Some(format!("{}{link}", page?)),
        });
        let name = text("license_name").map(str::to_owned);
        (!ids.is_empty()).then_some(Self { ids, name, link, from: MODEL_CARD })
    }

    /// Recognises the texts of two common licences.
    fn of_file(folder: &Path) -> Option<Self> {
        let names = ["LICENSE", "LICENSE.txt", "LICENSE.md"];
        let (from, text) = names.into_iter().find_map(|name| {
            Some((name, regular_file::read_to_string(&folder.join(name)).ok()?))
        })?;
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let id = match (lines.next()?, lines.next().unwrap_or_default()) {
            ("Apache License", version) if version.starts_with("Version 2.0") => "apache-2.0",
            ("MIT License", _) => "mit",
            _ => return None,
        };
        Some(Self { ids: vec![id.to_owned()], from, ..Self::default() })
    }

    /// Reads the metadata of a GGUF file.
    fn of_gguf(file: &Path) -> Option<Self> {
        let gguf: Gguf<File> = Gguf::open(regular_file::open(file).ok()?).ok()?;
        let id = match gguf.metadata().get("general.license")? {
            MetadataValue::Text(id) => id.clone(),
            _ => return None,
        };
        let is_id = !id.is_empty() && id.len() <= 64 && id.chars().all(is_plain);
        is_id.then(|| Self { ids: vec![id], from: "metadata", ..Self::default() })
    }

    /// Returns the keys of the metadata of a card.
    pub(super) fn front_matter(&self) -> String {
        let mut lines = match self.ids.as_slice() {
            [] => return String::new(),
            [id] => format!("license: {}\n", yaml_text(id)),
            ids => {
                let ids: Vec<String> =
                    ids.iter().map(|id| format!("- {}\n", yaml_text(id))).collect();
                format!("license:\n{}", ids.concat())
            }
        };
        for (key, value) in [("license_name", &self.name), ("license_link", &self.link)] {
            if let Some(value) = value {
                lines += &format!("{key}: {}\n", yaml_text(value));
            }
        }
        lines
    }
}
