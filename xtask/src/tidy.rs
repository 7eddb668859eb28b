//! The `cargo xtask tidy` command, which checks rules that the compiler, clippy and cargo don't
//! cover.
//!
//! A rule is a function that maps the [`tree::Tree`] to a list of violations. Each rule has its own
//! file in `rules`.

mod rules;
#[cfg(test)]
mod testing;
mod tokens;
mod tree;

use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

/// Prints each violation on a separate line.
///
/// # Errors
/// Returns an error if there are any violations.
pub(crate) fn tidy(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let violations: Vec<_> = rules::ALL.iter().flat_map(|rule| rule(&tree)).collect();
    violations.iter().for_each(|violation| println!("{violation}"));
    match violations.len() {
        0 => {
            let (rules, files) = (rules::ALL.len(), tree.files().count());
            println!("tidy: {rules} rules hold in {files} files");
            Ok(())
        }
        1 => bail!("1 violation"),
        count => bail!("{count} violations"),
    }
}
