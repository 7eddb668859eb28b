//! Rules that end a completion, in addition to end ids.

use std::fmt;
use std::sync::Arc;

use grpo_data::SampleKey;

use crate::RolloutError;

/// Converts ids to text.
pub type Decode = Arc<dyn Fn(&[u32]) -> String + Send + Sync>;

/// Decides after each token whether to end the completion.
pub trait StopRule: Send + Sync {
    /// Returns whether the completion should end. `completion` contains the ids after the prompt.
    fn ends(&self, completion: &[u32], key: &SampleKey) -> bool;
}

/// Ends a completion when its text contains one of several strings. The last token is kept as part
/// of the completion.
#[derive(Clone)]
pub struct StopStrings {
    strings: Arc<[String]>,
    decode: Decode,
    /// Number of trailing tokens that are decoded.
    window: usize,
}

/// Number of tokens to decode before the window. Some decoders treat the start of the text
/// differently, e.g. by stripping a space. This margin ensures that only these tokens are affected.
const MARGIN: usize = 16;

impl StopStrings {
    /// Creates the rule. Returns `None` if `strings` is empty.
    ///
    /// # Errors
    /// Returns [`RolloutError::EmptyStop`] if a string is empty.
    pub fn new(strings: &[String], decode: Decode) -> Result<Option<Self>, RolloutError> {
        Self::check(strings)?;
        // Every token has at least one byte.
        let window = strings.iter().map(String::len).max().map(|longest| longest + MARGIN);
        Ok(window.map(|window| Self { strings: strings.into(), decode, window }))
    }

    /// Checks that no string is empty.
    ///
    /// # Errors
    /// Returns [`RolloutError::EmptyStop`] if a string is empty.
    pub fn check(strings: &[String]) -> Result<(), RolloutError> {
        if strings.iter().any(String::is_empty) {
            return Err(RolloutError::EmptyStop);
        }
        Ok(())
    }
}

impl StopRule for StopStrings {
    fn ends(&self, completion: &[u32], _key: &SampleKey) -> bool {
        let text = (self.decode)(&completion[completion.len().saturating_sub(self.window)..]);
        self.strings.iter().any(|string| text.contains(string))
    }
}

impl fmt::Debug for StopStrings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopStrings").field("strings", &self.strings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SampleKey = SampleKey { seed: 0, step: 0, prompt: 0, sample: 0 };

    /// Adds `tokens` one at a time and checks after how many of them a string ends the completion.
    #[track_caller]
    fn check(strings: &[&str], tokens: &[&[u8]], expected: Option<usize>) {
        let owned: Vec<Vec<u8>> = tokens.iter().map(|&token| token.to_vec()).collect();
        let decode: Decode = Arc::new(move |ids| {
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| owned[id as usize].clone()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let strings: Vec<String> = strings.iter().map(|&string| string.to_owned()).collect();
        let rule = StopStrings::new(&strings, decode).unwrap().unwrap();
        let ids: Vec<u32> = (0..tokens.len() as u32).collect();
        let found = (1..=ids.len()).find(|&count| rule.ends(&ids[..count], &KEY));
        assert_eq!(found, expected, "{strings:?} in {tokens:?}");
    }

    #[test]
    fn a_string_ends_inside_a_token_or_at_its_end() {
        check(&["b"], &[b"a", b"b", b"c"], Some(2));
        check(&["b"], &[b"a", b"abc", b"c"], Some(2));
        check(&["abc"], &[b"abc"], Some(1));
        check(&["d", "c"], &[b"a", b"b", b"c", b"d"], Some(3));
        check(&["ac"], &[b"a", b"b", b"c"], None);
    }

    #[test]
    fn a_string_lies_across_tokens() {
        check(&["bcd"], &[b"ab", b"c", b"de", b"f"], Some(3));
        check(&["\n\n"], &[b"a\n", b"b\n", b"\nc"], Some(3));
        // A partial match does not count.
        check(&["bcd"], &[b"ab", b"c", b"e"], None);
    }

    #[test]
    fn a_character_of_many_tokens_counts_when_it_is_whole() {
        let euro = "€".as_bytes();
        check(&["€"], &[b"1", &euro[..1], &euro[1..2], &euro[2..], b"2"], Some(4));
        // Without its last byte, the character is decoded to a replacement character.
        check(&["1€2"], &[b"1", &euro[..2], &euro[2..], b"2"], Some(4));
    }

    #[test]
    fn only_the_end_of_a_long_completion_is_searched() {
        let mut tokens: Vec<&[u8]> = vec![b"\xe2\x82\xac"; 100];
        tokens.extend([b"x".as_slice(), b"y", b"z"]);
        check(&["xyz"], &tokens, Some(103));
        check(&["xyz", "a string that is longer than the completion"], &tokens[99..], Some(4));
        // Each token is one byte. The string is as long as the window without the margin.
        let text = "0123456789012345678901234567890123456789";
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        check(&[&text[3..]], &bytes, Some(40));
    }

    #[test]
    fn no_strings_are_no_rule_and_an_empty_one_is_refused() {
        let decode: Decode = Arc::new(|_| String::new());
        assert!(StopStrings::new(&[], Arc::clone(&decode)).unwrap().is_none());
        let error = StopStrings::new(&["a".to_owned(), String::new()], decode).unwrap_err();
        assert_eq!(
            error.to_string(),
            "stop string is empty, which would end every completion after its first token; remove it"
        );
    }
}
