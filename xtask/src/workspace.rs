//! The packages of the workspace, as `cargo metadata` tells them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    // Cargo says it at run time; where the built program is called by hand, what was true at build time.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().expect("the xtask folder is in the workspace root").to_owned()
}

/// The workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// Our packages, sorted by name.
    pub(crate) packages: Vec<Package>,
    /// Where cargo builds.
    pub(crate) target_directory: PathBuf,
}

/// A package of ours.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    /// What it depends on, ours and others'.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// The name of the package.
    pub(crate) name: String,
    /// `dev`, `build`, or none for what the code itself uses.
    pub(crate) kind: Option<String>,
}

impl Dependency {
    /// Whether only tests, benches and examples see it.
    pub(crate) fn is_dev(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let arguments = ["metadata", "--no-deps", "--format-version", "1"];
        let json = process::output_of(process::cargo(root).args(arguments))?;
        let mut workspace: Self =
            serde_json::from_slice(&json).context("cannot parse the output of `cargo metadata`")?;
        workspace.packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(workspace)
    }
}
