//! Patterns for the paths of files in a repository.

/// Returns whether a text has characters with which it can match several paths.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns whether a path matches a pattern. `*` and `?` stand for characters of a file or folder
/// name, `[abc]` and `[!abc]` for one of them, and `**` for any number of folders.
pub fn matches(pattern: &str, path: &str) -> bool {
    let split = |text: &str| text.split('/').map(|part| part.chars().collect()).collect();
    let (pattern, path): (Vec<Vec<char>>, Vec<Vec<char>>) = (split(pattern), split(path));
    parts_match(&pattern, &path)
}

fn parts_match(pattern: &[Vec<char>], path: &[Vec<char>]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((first, rest)) if first == &['*', '*'] => {
            (0..=path.len()).any(|skipped| parts_match(rest, &path[skipped..]))
                || (rest.is_empty() && !path.is_empty())
        }
        Some((first, rest)) => path
            .split_first()
            .is_some_and(|(name, others)| name_matches(first, name) && parts_match(rest, others)),
    }
}

/// Backtracks to the last `*` only, so that the time is at most the product of the lengths.
fn name_matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => class(&pattern[at..], name[read]),
            Some(c) => (*c == name[read]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => (at, read) = (at + length, read + 1),
            (None, Some((of_star, from))) => {
                star = Some((of_star, from + 1));
                (at, read) = (of_star + 1, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// Returns the length of the class `[…]` at the start of `pattern` if it contains `c`. A `[` without
/// `]` stands for itself.
fn class(pattern: &[char], c: char) -> Option<usize> {
    let is_negated = pattern.get(1) == Some(&'!');
    let start = if is_negated { 2 } else { 1 };
    // A `]` in front is a member.
    let end = pattern.iter().skip(start + 1).position(|c| *c == ']').map(|at| at + start + 1);
    let Some(end) = end else { return (c == '[').then_some(1) };
    let members = &pattern[start..end];
    let mut is_member = false;
    let mut at = 0;
    while at < members.len() {
        let is_range = at + 2 < members.len() && members[at + 1] == '-';
        let last = if is_range { members[at + 2] } else { members[at] };
        is_member |= (members[at]..=last).contains(&c);
        at += if is_range { 3 } else { 1 };
    }
    (is_member != is_negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_paths() {
        let check = |pattern: &str, matching: &[&str], others: &[&str]| {
            for path in matching {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in others {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        };
        check("config.json", &["config.json"], &["a/config.json", "config_json", "config.json/x"]);
        check("*.json", &["config.json", ".json"], &["a/b.json", "a.jsonl"]);
        check("model*.safetensors", &["model.safetensors", "model-1-of-2.safetensors"], &["x"]);
        check("data/train-*.parquet", &["data/train-0.parquet"], &["data/x/train-0.parquet"]);
        check("**", &["a", "a/b", "a/b/c"], &[]);
        check("**/*.json", &["a.json", "x/a.json", "x/y/a.json"], &["x/a.jsonl"]);
        check("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["a", "b", "a/x/c"]);
        check("a/**", &["a/b", "a/b/c"], &["b/a"]);
        check("a?c", &["abc", "aüc"], &["ac", "abbc"]);
        check("[ab]x", &["ax", "bx"], &["cx", "x"]);
        check("[!ab]x", &["cx"], &["ax", "bx"]);
        check("[a-c0-9]", &["b", "7"], &["d", "-"]);
        check("[]x]", &["]", "x"], &["["]);
        check("[x", &["[x"], &["x"]);
        check("*a*b", &["ab", "xaybzb", "aab"], &["ba", "abx"]);
    }

    #[test]
    fn many_stars_are_fast() {
        assert!(!matches(&"*a".repeat(500), &"a".repeat(499)));
        assert!(!matches(&format!("{}b", "a*".repeat(500)), &"a".repeat(5000)));
    }
}
