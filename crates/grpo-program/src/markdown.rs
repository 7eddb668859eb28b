//! Texts from files and arguments as parts of Markdown documents.

/// Replaces line breaks and other control characters, e.g. of a metric's name, which would end a row.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

/// Escapes what Markdown reads as formatting, HTML or the end of a cell.
pub(crate) fn markdown_text(text: &str) -> String {
    let mut escaped = String::new();
    for c in one_line(text).chars() {
        if "\\`*[]<&|".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Returns a YAML scalar in double quotes, which cannot end before its last character.
pub(crate) fn yaml_text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c => quoted += &format!("\\U{:08X}", c as u32),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_in_its_row() {
        assert_eq!(one_line("x\n\n# h\r\u{7}\u{2028}"), "x  # h   ");
        assert_eq!(markdown_text("a|<b>&\n*`[x](y)\\"), r"a\|\<b>\& \*\`\[x\](y)\\");
        assert_eq!(markdown_text("pooled/self_bleu"), "pooled/self_bleu");
    }

    #[test]
    fn a_yaml_scalar_stays_on_its_line() {
        assert_eq!(yaml_text("Qwen/Qwen3-0.6B"), r#""Qwen/Qwen3-0.6B""#);
        assert_eq!(yaml_text("é\n---\n\"\\\u{85}"), r#""é\U0000000A---\U0000000A\"\\\U00000085""#);
    }
}
