//! `cargo xtask tidy`: the rules of the house that the compiler doesn't know.
//!
//! A rule is a plain function from the [`tree::Tree`] to its violations, in a file of its own under `rules`.

mod crate_table;
mod rules;
#[cfg(test)]
mod testing;
mod tokens;
mod tree;

use std::path::Path;

use anyhow::{Result, bail};

use tree::Tree;

/// Prints each violation on a line.
///
/// # Errors
/// Where there is one.
pub(crate) fn tidy(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut violations = 0;
    for rule in rules::ALL {
        for violation in rule(&tree) {
            println!("{violation}");
            violations += 1;
        }
    }
    match violations {
        0 => {
            println!("tidy: {} rules hold in {} files", rules::ALL.len(), tree.files().count());
            Ok(())
        }
        1 => bail!("1 violation of the rules of the house"),
        _ => bail!("{violations} violations of the rules of the house"),
    }
}
