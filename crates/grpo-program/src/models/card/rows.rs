//! Tables of a card.

use std::fmt::Write;

use crate::markdown::markdown_text;

/// Rows of a table.
#[derive(Debug, Default)]
pub(super) struct Rows(Vec<Vec<String>>);

impl Rows {
    /// Adds a row whose cells are escaped.
    pub(super) fn add(&mut self, cells: &[&str]) {
        self.0.push(cells.iter().map(|cell| markdown_text(cell)).collect());
    }

    /// Returns the table, followed by an empty line. Without rows, it is empty.
    pub(super) fn table(&self, head: &[&str]) -> String {
        let mut table = String::new();
        if self.0.is_empty() {
            return table;
        }
        let _ = writeln!(table, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        for cells in &self.0 {
            let _ = writeln!(table, "| {} |", cells.join(" | "));
        }
        table + "\n"
    }
}
