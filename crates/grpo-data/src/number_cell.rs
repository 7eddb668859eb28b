//! Numbers in CSV tables.

/// Returns a number as a cell of a CSV table, with six decimals as in all tables of this program.
pub fn number_cell(value: f64) -> String {
    format!("{value:.6}")
}
