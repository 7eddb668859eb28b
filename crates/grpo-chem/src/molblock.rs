//! Connection tables with 2D coordinates, e.g. for SD files.

use chematic::smiles::{RdkitSmilesError, parse_template, rdkit_mol_block_2d};

use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::{Molecule, from_parser, from_sanitizer};

/// Maximum number of characters in the title, which is a single line.
const TITLE_LENGTH: usize = 80;

impl Molecule {
    /// Returns an MDL V2000 mol block with RDKit's 2D coordinates. It preserves charges, isotopes,
    /// radicals and stereochemistry. If the coordinates contradict the configuration of a double
    /// bond, e.g. in some macrocycles, all double bonds are written as unspecified. Control
    /// characters in `title` are replaced, and it is truncated to 80 characters.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the format cannot represent the molecule (more
    /// than 999 atoms or bonds, or dative bonds). Returns [`InvalidSmiles::ToolkitPanic`] if the
    /// toolkit panics.
    pub fn mol_block(&self, title: &str) -> Result<String, InvalidSmiles> {
        let block = guarded(|| match rdkit_mol_block_2d(self.graph()) {
            Err(RdkitSmilesError::Unsupported(_)) => {
                let without_directions = self.smiles().replace(['/', '\\'], "");
                let graph = parse_template(&without_directions).map_err(from_parser)?;
                rdkit_mol_block_2d(&graph).map_err(from_sanitizer)
            }
            result => result.map_err(from_sanitizer),
        })??;
        // The first three lines are the title, the program and a comment.
        let table = block.splitn(4, '\n').nth(3).unwrap_or_default();
        if !table.lines().next().is_some_and(|counts| counts.ends_with("V2000")) {
            let detail = "a mol block with more than 999 atoms or with dative bonds".to_owned();
            return Err(InvalidSmiles::Unsupported { detail });
        }
        let title = one_line(title);
        Ok(format!("{title}\n  grpo              2D\n\n{table}"))
    }
}

fn one_line(title: &str) -> String {
    let printable = title.chars().map(|c| if c.is_control() { ' ' } else { c });
    let title: String = printable.take(TITLE_LENGTH).collect();
    // Four dollar signs would end the record in an SD file.
    if title.starts_with("$$$$") { format!(" {title}") } else { title }
}
