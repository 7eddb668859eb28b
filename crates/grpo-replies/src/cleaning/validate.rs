//! Validation rules for replies.

use grpo_eval::{is_all_capitals, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filter::length;
use super::keys;
use super::lists::{CRYPTO_WORDS, GENERIC_PHRASES, STOP_WORDS};
use super::looks::{content_words, emoji, has_phrase, has_url, hashtags, is_english, longest_run};
use super::outcome::{Reason, Unknown, check_range};
use crate::PairRecord;
use grpo_data::DataError;

/// Validation rules for replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationRules {
    /// Range of the reply's length in characters.
    pub characters: [usize; 2],
    /// Drop a reply that is not English, as in `[filter]`.
    pub english: bool,
    /// Drop a reply with a URL.
    pub no_urls: bool,
    /// Most hashtags.
    pub max_hashtags: usize,
    /// Drop a reply of all capitals with more characters than this.
    pub capitals_from: usize,
    /// Largest fraction of `!`, `?` and `.`.
    pub max_punctuation: f64,
    /// Most emoji.
    pub max_emoji: usize,
    /// Drop a reply with this many equal characters in a row.
    pub repeated_from: usize,
    /// Drop a reply that contains one of these as a whole word (`gm` does not match `segment`).
    pub unwanted_words: Vec<String>,
    /// Fewest distinct words of 3 or more letters that are not stop words.
    pub min_content_words: usize,
    /// Words that are not counted as content.
    pub stop_words: Vec<String>,
    /// Phrases without content, for `max_generic`.
    pub generic_phrases: Vec<String>,
    /// Largest min(1, phrases / max(1, characters / 100)).
    pub max_generic: f64,
    /// Largest `toxicity` of the record; the program has no toxicity model.
    pub max_toxicity: f64,
    /// Fewest likes.
    pub min_likes: u64,
}

impl Default for ValidationRules {
    fn default() -> Self {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            characters: [30, 280],
            english: true,
            no_urls: true,
            max_hashtags: 3,
            capitals_from: 20,
            max_punctuation: 0.1,
            max_emoji: 5,
            repeated_from: 5,
            unwanted_words: list(&CRYPTO_WORDS),
            min_content_words: 8,
            stop_words: list(&STOP_WORDS),
            generic_phrases: list(&GENERIC_PHRASES),
            max_generic: 0.5,
            max_toxicity: 0.3,
            min_likes: 3,
        }
    }
}

impl ValidationRules {
    pub(super) fn check(&self) -> Result<(), DataError> {
        check_range("validation.characters", self.characters)?;
        for (key, found) in [
            ("validation.max_punctuation", self.max_punctuation),
            ("validation.max_generic", self.max_generic),
            ("validation.max_toxicity", self.max_toxicity),
        ] {
            if !(0.0..=1.0).contains(&found) {
                return Err(DataError::setting(key, found, "0 to 1"));
            }
        }
        if self.repeated_from < 2 {
            let expected = "2 or more";
            let found = self.repeated_from;
            return Err(DataError::setting("validation.repeated_from", found, expected));
        }
        Ok(())
    }

    /// Returns all rules that the reply violates.
    pub(super) fn faults(&self, pair: &PairRecord, unknown: Unknown<'_>) -> Vec<Reason> {
        let reply = &pair.reply;
        let words: Vec<String> = words(reply).collect();
        let mut faults: Vec<Reason> = length(reply, self.characters).into_iter().collect();
        let (lang, toxicity) = (keys::lang(pair), keys::toxicity(pair));
        let lang_fault = lang.as_ref().err().filter(|_| self.english);
        faults.extend(lang_fault.into_iter().chain(toxicity.as_ref().err()).cloned());
        let mut broken = |is_broken: bool, rule, found: String| {
            if is_broken {
                faults.push(Reason::new(rule, found));
            }
        };
        let english = lang.map_or(true, |lang| is_english(lang, reply));
        broken(self.english && !english, "english", "another language or no words".to_owned());
        broken(self.no_urls && has_url(reply), "url", "an address".to_owned());
        let found = hashtags(reply);
        broken(found > self.max_hashtags, "hashtags", format!("{found}"));
        for found in self.spam(reply) {
            broken(true, "spam", found);
        }
        let unwanted = self.unwanted_words.iter().find(|word| has_phrase(&words, word));
        broken(unwanted.is_some(), "unwanted_word", unwanted.cloned().unwrap_or_default());
        let found = content_words(&words, &self.stop_words).len();
        broken(found < self.min_content_words, "content_words", format!("{found}"));
        let found = self.generic(reply, &words);
        broken(found > self.max_generic, "generic", format!("{found:.2}"));
        match toxicity {
            Ok(Some(found)) => broken(found > self.max_toxicity, "toxicity", format!("{found}")),
            Ok(None) => unknown("toxicity"),
            Err(_) => {}
        }
        match pair.reply_likes {
            Some(likes) => broken(likes < self.min_likes, "likes", format!("{likes}")),
            None => unknown("likes"),
        }
        faults
    }

    fn spam(&self, reply: &str) -> Vec<String> {
        let characters = reply.chars().count();
        let marks = reply.chars().filter(|c| matches!(c, '!' | '?' | '.')).count();
        let (emoji, run) = (emoji(reply), longest_run(reply));
        let found = [
            (
                characters > self.capitals_from && is_all_capitals(reply),
                "only capital letters".to_owned(),
            ),
            (
                marks as f64 > self.max_punctuation * characters as f64,
                format!("{marks} punctuation marks in {characters} characters"),
            ),
            (emoji > self.max_emoji, format!("{emoji} emoji")),
            (run >= self.repeated_from, format!("a character repeated {run} times")),
        ];
        found.into_iter().filter_map(|(is_there, found)| is_there.then_some(found)).collect()
    }

    /// Returns a score between 0 and 1 for how generic a reply is.
    fn generic(&self, reply: &str, words: &[String]) -> f64 {
        let hits = self.generic_phrases.iter().filter(|phrase| has_phrase(words, phrase)).count();
        let hundreds = (reply.chars().count() as f64 / 100.0).max(1.0);
        (hits as f64 / hundreds).min(1.0)
    }
}
