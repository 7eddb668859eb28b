//! Generic words in replies.

use grpo_eval::words;

/// Words or phrases that make up generic replies: thanks, agreement, praise, yes, no and laughter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericWords(Vec<Vec<String>>);

/// The default list of generic words.
pub const DEFAULT_GENERIC_WORDS: [&str; 17] = [
    "thanks", "thx", "agreed", "agree", "exactly", "true", "same", "this", "great", "nice", "cool",
    "wow", "yes", "yeah", "no", "lol", "haha",
];

impl GenericWords {
    /// Creates a list of words and phrases.
    ///
    /// # Errors
    /// Returns the first entry that does not contain a word.
    pub fn new<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<Self, String> {
        let entries = entries.into_iter().map(|entry| {
            let own: Vec<String> = words(entry.as_ref()).collect();
            if own.is_empty() { Err(entry.as_ref().to_owned()) } else { Ok(own) }
        });
        entries.collect::<Result<_, _>>().map(Self)
    }

    /// Returns `true` if the text contains one of the entries, matching whole words only.
    pub fn are_in(&self, text: &str) -> bool {
        let words: Vec<String> = words(text).collect();
        self.0.iter().any(|entry| words.windows(entry.len()).any(|run| run == entry.as_slice()))
    }
}

impl Default for GenericWords {
    fn default() -> Self {
        Self::new(DEFAULT_GENERIC_WORDS).expect("every default entry contains a word")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: "no" matched "know", and "this" matched any word that contains it.
    #[test]
    fn words_are_whole() {
        let words = GenericWords::default();
        for text in ["Thanks!", "so TRUE", "'No'", "is this it?", "lol, ok"] {
            assert!(words.are_in(text), "{text}");
        }
        for text in ["I know him", "a thistle", "disagreed", "greatest", "truest", "lollipop", ""] {
            assert!(!words.are_in(text), "{text}");
        }
    }

    #[test]
    fn a_list_of_ones_own_may_have_runs_of_words() {
        let words = GenericWords::new(["thank you", "+1"]).unwrap();
        assert!(words.are_in("Well, thank YOU, Ann"));
        assert!(words.are_in("+1"));
        assert!(!words.are_in("I thank all of you"));
        assert_eq!(GenericWords::new(["fine", " - "]).unwrap_err(), " - ");
    }
}
