//! Rust source as a flat list of tokens, which lets rules ignore comments and strings.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A word, punctuation character, literal or bracket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Token as written in the source.
    pub(super) text: String,
    /// Line number, starting at 1.
    pub(super) line: usize,
}

/// Returns the tokens of a source file without comments. Doc comments appear as string literals.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>> {
    let stream: TokenStream = source
        .parse()
        .map_err(|e: proc_macro2::LexError| anyhow!("line {}: {e}", e.span().start().line))?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    Ok(tokens)
}

/// Returns the indices at which `pattern` occurs.
pub(super) fn find(tokens: &[Token], pattern: &[&str]) -> Vec<usize> {
    (0..tokens.len()).filter(|i| stands_at(tokens, *i, pattern)).collect()
}

/// Returns whether `pattern` occurs at index `i`.
pub(super) fn stands_at(tokens: &[Token], i: usize, pattern: &[&str]) -> bool {
    let texts = tokens[i..].iter().map(|token| token.text.as_str());
    texts.take(pattern.len()).eq(pattern.iter().copied())
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                tokens.push(Token { text: open.into(), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.into(), line: group.span_close().end().line });
            }
            other => tokens.push(Token { text: other.to_string(), line }),
        }
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, pattern: &[&str], lines: &[usize]) {
        let tokens = tokens(source).unwrap();
        let found: Vec<usize> =
            find(&tokens, pattern).into_iter().map(|i| tokens[i].line).collect();
        assert_eq!(found, lines, "{source}");
    }

    #[test]
    fn patterns_are_found_in_code_alone() {
        check("fn f() {\n    todo!();\n    todo ! ()\n}", &["todo", "!"], &[2, 3]);
        check("// todo!()\n/* todo!() */ /// todo!()\nfn f() {}", &["todo", "!"], &[]);
        check(
            r##"const A: &str = "todo!() "; const B: &str = r#"todo!()"#;"##,
            &["todo", "!"],
            &[],
        );
        check("#[a]\nfn f() {}", &["#", "[", "a", "]"], &[1]);
    }

    #[test]
    fn reports_the_line_of_invalid_rust() {
        assert!(tokens("fn f() {\n  ]").unwrap_err().to_string().starts_with("line 2"));
    }
}
