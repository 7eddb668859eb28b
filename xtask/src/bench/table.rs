//! Tables and number formatting for the terminal.

use comfy_table::{CellAlignment, Table, presets};

/// Formats a table. The first column is left-aligned, all others are right-aligned.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(head).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Formats a table as Markdown. The first three columns are left-aligned, all others are
/// right-aligned.
pub(super) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule = |column: usize| if column < 3 { "---|" } else { "---:|" };
    let rule: String = (0..head.len()).map(rule).collect();
    let mut text = line(&mut head.iter().copied()) + "|" + &rule + "\n";
    text.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    text
}

/// Formats a number with three significant digits, or as an integer with thousands separators:
/// 0.0123, 1.23, 45.6, 12,345.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (text.as_str(), String::new()),
    };
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let check = |value: f64, expect: &str| assert_eq!(number(value), expect);
        check(0.012_34, "0.0123");
        check(1.234, "1.23");
        check(45.67, "45.7");
        check(999.4, "999");
        check(12_345.6, "12,346");
        check(-1_234_567.0, "-1,234,567");
        check(0.0, "0");
        check(f64::NAN, "NaN");
    }
}
