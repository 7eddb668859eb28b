//! Formatting of byte counts.

/// Formats a number of bytes in MB or GB.
pub(super) fn words(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (unit, name) = if bytes >= 1e9 { (1e9, "GB") } else { (1e6, "MB") };
    let digits = if bytes / unit < 10.0 { 1 } else { 0 };
    format!("{:.digits$} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn bytes_in_words() {
        for (bytes, expected) in [
            (0, "0.0 MB"),
            (1_250_000, "1.2 MB"),
            (52_400_000, "52 MB"),
            (999_400_000, "999 MB"),
            (1_000_000_000, "1.0 GB"),
            (23_600_000_000, "24 GB"),
        ] {
            assert_eq!(words(bytes), expected);
        }
    }
}
