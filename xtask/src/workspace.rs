//! Workspace packages, as reported by `cargo metadata`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// Returns the repository root.
pub(crate) fn root() -> PathBuf {
    // Cargo sets this variable at run time. If the binary is run directly, fall back to the value
    // at build time.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().expect("the xtask folder is in the workspace root").to_owned()
}

/// The cargo workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// Packages in the workspace, sorted by name.
    pub(crate) packages: Vec<Package>,
    /// Build output directory.
    pub(crate) target_directory: PathBuf,
}

/// A package in the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Name of the package.
    pub(crate) name: String,
    /// Path of its `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    /// Direct dependencies, both internal and external.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    /// Name of the package it refers to.
    pub(crate) name: String,
    /// `dev` or `build`, or `None` for a normal dependency.
    pub(crate) kind: Option<String>,
}

impl Dependency {
    /// Returns whether this is a dev-dependency.
    pub(crate) fn is_dev(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

impl Workspace {
    /// Reads the workspace by running `cargo metadata`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let arguments = ["metadata", "--no-deps", "--format-version", "1"];
        let json = process::output_of(process::cargo(root).args(arguments))?;
        let mut workspace: Self =
            serde_json::from_slice(&json).context("cannot parse the output of `cargo metadata`")?;
        workspace.packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(workspace)
    }
}
