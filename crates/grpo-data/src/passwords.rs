//! Passwords in URLs, which must not be printed or recorded.

use std::borrow::Cow;

/// Replaces the user and the password of each URL in `text`, as in `http://user:password@host`.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("://").map(|start| start + 3) {
        let (before, after) = rest.split_at(start);
        let ends = |c: char| c.is_whitespace() || c.is_control() || "/?#\"'`\\<>".contains(c);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        shown.push_str(before);
        rest = match authority.rfind('@') {
            Some(at) => {
                shown.push_str("***");
                &after[at..]
            }
            None => after,
        };
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_hidden() {
        for (text, expected) in [
            ("", ""),
            ("no URL, but a@b", "no URL, but a@b"),
            ("http://host/a@b", "http://host/a@b"),
            ("http://user:pass@host", "http://***@host"),
            ("\"http://u:p@a:80/x\", 'https://q@b'", "\"http://***@a:80/x\", 'https://***@b'"),
            ("url=[\"http://u:p@w@a\"]", "url=[\"http://***@a\"]"),
            ("http://é:ü@host?x=@", "http://***@host?x=@"),
            ("://@ ://", "://***@ ://"),
        ] {
            assert_eq!(without_passwords(text), expected, "{text}");
        }
    }
}
