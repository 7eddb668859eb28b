//! The `cargo xtask build` command.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use crate::{mpi, process};

/// Build `grpo` in release mode and print the path of the program
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask build                                  for this machine's CPU
  cargo xtask build --features mpi                   for runs of several processes
  cargo xtask build --features mpi,cuda              the same on NVIDIA cards")]
pub(crate) struct Build {
    /// Additional features, separated by commas
    #[arg(long, value_name = "FEATURES", value_delimiter = ',', value_parser = ["cuda", "mpi", "wgpu"])]
    features: Vec<String>,
}

/// Builds `grpo` and prints its path.
pub(crate) fn build(root: &Path, build: &Build) -> Result<()> {
    // The build script of `mpi-sys` would print many lines.
    if build.features.iter().any(|feature| feature == "mpi") && mpi::lacks_library() {
        bail!(
            "the feature `mpi` needs an MPI library, but `mpicc` was not found; on a cluster, load its MPI module; {}",
            mpi::INSTALL
        );
    }
    println!("{}", built(root, &build.features)?.display());
    Ok(())
}

/// Builds `grpo` in release mode and returns the path of the program.
pub(crate) fn built(root: &Path, features: &[String]) -> Result<PathBuf> {
    let mut cargo = process::cargo(root);
    cargo.args(["build", "--release", "--package", "grpo-cli", "--bin", "grpo"]);
    if !features.is_empty() {
        cargo.args(["--features", &features.join(",")]);
    }
    process::run(&mut cargo)?;
    let folder = Workspace::read(root)?.target_directory.join("release");
    Ok(folder.join(format!("grpo{}", std::env::consts::EXE_SUFFIX)))
}
