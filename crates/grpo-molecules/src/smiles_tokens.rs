//! A tokenizer for SMILES.
//!
//! It implements the regular expression of MolGPT. These are its alternatives in order: a bracket
//! atom `[…]` up to the first `]`; `<`; `B` or `Br`; `C` or `Cl`; one of `N O S P F I b c n o s p`;
//! one of `( ) . = # - + \ / : ~ @ ? > * $`; `%` and two digits; one digit. No alternative is a
//! prefix of a later one, so the first byte determines the alternative. This implementation is
//! several times as fast as the regular expression, which is used in tests as a reference.

use grpo_data::{DataError, Shortened};

/// Returns an iterator over the tokens of `smiles`. It ends after the first error.
///
/// MolGPT skips characters that don't match any alternative. This function returns an error
/// instead, because skipping characters would change the molecule.
pub fn smiles_tokens(smiles: &str) -> SmilesTokens<'_> {
    SmilesTokens { smiles, position: 0 }
}

/// An iterator over the tokens of a SMILES, created by [`smiles_tokens`].
#[derive(Clone, Debug)]
pub struct SmilesTokens<'a> {
    smiles: &'a str,
    position: usize,
}

impl<'a> Iterator for SmilesTokens<'a> {
    type Item = Result<&'a str, UnknownToken>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.smiles[self.position..];
        let first = rest.chars().next()?;
        let Some(len) = token_len(rest.as_bytes()) else {
            let error = unknown_token(self.smiles, self.position, first.encode_utf8(&mut [0; 4]));
            self.position = self.smiles.len();
            return Some(Err(error));
        };
        self.position += len;
        Some(Ok(&rest[..len]))
    }
}

/// An error for a part of a SMILES that is not in the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{token}` (character {position} of `{}`) is not in the vocabulary; remove the molecule, or use a vocabulary that contains the token", Shortened(.smiles))]
pub struct UnknownToken {
    /// The unknown token, or a character that cannot begin a token.
    pub token: String,
    /// Position in characters, starting at 1.
    pub position: usize,
    /// The complete SMILES.
    pub smiles: String,
}

impl From<UnknownToken> for DataError {
    fn from(error: UnknownToken) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Returns an error for `token` at byte `offset` in `smiles`.
pub(crate) fn unknown_token(smiles: &str, offset: usize, token: &str) -> UnknownToken {
    UnknownToken {
        token: token.to_owned(),
        position: smiles[..offset].chars().count() + 1,
        smiles: smiles.to_owned(),
    }
}

/// Returns whether a token is an aromatic atom, e.g. `c` or `[nH]`.
pub(crate) fn is_aromatic(token: &str) -> bool {
    let symbol = token.strip_prefix('[').unwrap_or(token);
    symbol.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(|c: char| c.is_lowercase())
}

/// Returns the length in bytes of the token at the start of `text`, or `None` if there is none.
fn token_len(text: &[u8]) -> Option<usize> {
    let second = text.get(1).copied();
    match text[0] {
        b'[' => match text.iter().position(|&byte| byte == b']')? {
            1 => None, // `[]` holds no atom
            end => Some(end + 1),
        },
        b'B' => Some(if second == Some(b'r') { 2 } else { 1 }),
        b'C' => Some(if second == Some(b'l') { 2 } else { 1 }),
        b'%' => text.get(1..3)?.iter().all(u8::is_ascii_digit).then_some(3),
        b'<'
        | b'N'
        | b'O'
        | b'S'
        | b'P'
        | b'F'
        | b'I'
        | b'b'
        | b'c'
        | b'n'
        | b'o'
        | b's'
        | b'p'
        | b'('
        | b')'
        | b'.'
        | b'='
        | b'#'
        | b'-'
        | b'+'
        | b'\\'
        | b'/'
        | b':'
        | b'~'
        | b'@'
        | b'?'
        | b'>'
        | b'*'
        | b'$'
        | b'0'..=b'9' => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;
    use std::sync::LazyLock;

    fn check(smiles: &str, expect: &[&str]) {
        let tokens: Result<Vec<&str>, _> = smiles_tokens(smiles).collect();
        assert_eq!(tokens.unwrap(), expect);
    }

    fn check_error(smiles: &str, token: &str, position: usize) {
        let error = smiles_tokens(smiles).find_map(Result::err).unwrap();
        assert_eq!((error.token.as_str(), error.position), (token, position));
        assert_eq!(error.smiles, smiles);
    }

    #[test]
    fn tokens_of_two_letters_and_brackets_stay_whole() {
        check("BrCCl", &["Br", "C", "Cl"]);
        check("BC[C@@H](N)O", &["B", "C", "[C@@H]", "(", "N", ")", "O"]);
        check("c1%12[nH]1", &["c", "1", "%12", "[nH]", "1"]);
        check("F/C=C\\I", &["F", "/", "C", "=", "C", "\\", "I"]);
        check("C<<", &["C", "<", "<"]);
        check("[[]C", &["[[]", "C"]);
        check("", &[]);
    }

    #[test]
    fn what_is_no_token_is_named_with_its_place() {
        check_error("CCX", "X", 3);
        check_error("C[NH", "[", 2);
        check_error("C[]", "[", 2);
        check_error("C%1C", "%", 2);
        check_error("Cé", "é", 2);
        check_error("[é]é", "é", 4);
        check_error("C C", " ", 2);
    }

    #[test]
    fn aromatic_atoms_are_lower_case() {
        let (aromatic, other): (Vec<&str>, Vec<&str>) = [
            "c", "[nH]", "[13cH]", "[se]", "o", "C", "Cl", "[Cl-]", "[13CH4]", "1", "%10", "(", "<",
        ]
        .into_iter()
        .partition(|token| is_aromatic(token));
        assert_eq!((aromatic.len(), other.len()), (5, 8), "{aromatic:?}");
    }

    #[test]
    fn nothing_follows_an_error() {
        assert_eq!(smiles_tokens("CXC").count(), 2);
    }

    static MOLGPT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?:\[[^\]]+\]|<|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>|\*|\$|%[0-9]{2}|[0-9])").unwrap()
    });

    /// Returns the tokens before the first position at which the regular expression does not match,
    /// and that position.
    fn oracle(smiles: &str) -> (Vec<&str>, usize) {
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(found) = MOLGPT.find(&smiles[at..]) {
            tokens.push(found.as_str());
            at += found.len();
        }
        (tokens, at)
    }

    proptest! {
        #[test]
        fn the_scanner_is_the_regular_expression(smiles in "([]\\[%0-9<BrClNOSPFIbcnosp().=#+\\\\/:~@?>*$HXé -]|%[0-9]|\\[[a-zA-Z0-9@+]{0,3}]){0,40}") {
            let (expect, end) = oracle(&smiles);
            let found: Vec<&str> = smiles_tokens(&smiles).map_while(Result::ok).collect();
            prop_assert_eq!(found, expect);
            let error = smiles_tokens(&smiles).find_map(Result::err);
            prop_assert_eq!(error.is_some(), end < smiles.len());
            if let Some(error) = error {
                prop_assert_eq!(error.position, smiles[..end].chars().count() + 1);
            }
        }

        #[test]
        fn any_text_is_split_without_a_panic(smiles: String) {
            smiles_tokens(&smiles).for_each(drop);
        }
    }
}
