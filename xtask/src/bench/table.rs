//! Tables on the terminal.

/// Columns as wide as their widest cell; the first to the left, numbers to the right.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let lines = || std::iter::once(&head).chain(rows);
    let width = |column: usize| {
        lines().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (i, row) in lines().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
        if i == 0 {
            text += &"─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
            text.push('\n');
        }
    }
    text
}

/// Three digits or all before the point, with commas: 0.0123, 1.23, 45.6, 12,345.
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

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".into()], vec!["long".into(), "12,345".into()]];
        assert_eq!(
            table(&["name", "rate"], &rows),
            "name    rate\n────────────\na          1\nlong  12,345\n"
        );
    }
}
