//! Ends of completions besides the end ids.

use std::fmt;
use std::sync::Arc;

use grpo_data::SampleKey;

/// Turns ids into text.
pub type Decode = Arc<dyn Fn(&[u32]) -> String + Send + Sync>;

/// Says after each token whether a completion ends with it.
pub trait StopRule: Send + Sync {
    /// Whether `completion`, the ids behind the prompt, ends here.
    fn ends(&self, completion: &[u32], key: &SampleKey) -> bool;
}

/// Ends a completion with the token that completes one of some strings; the token stays part of it.
#[derive(Clone)]
pub struct StopStrings {
    strings: Arc<[String]>,
    decode: Decode,
    /// Tokens from the end that can hold a string.
    window: usize,
}

/// Tokens in front of those of a string that are decoded with it: what a decoder does at the beginning of a text,
/// such as leaving a space out, then happens to them.
const MARGIN: usize = 16;

impl StopStrings {
    /// Takes what turns ids into text. `None` where there are no strings.
    pub fn new(strings: &[String], decode: Decode) -> Option<Self> {
        let longest = strings.iter().map(String::len).max()?;
        // A token is at least a byte.
        Some(Self { strings: strings.into(), decode, window: longest + MARGIN })
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
