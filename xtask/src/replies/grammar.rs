//! The grammar of tweets and replies, used to generate a corpus from which a tiny language model
//! learns English.
//!
//! A template is a sentence with slots:
//!
//! - `{list}` inserts an entry of a list.
//! - `{list.part}` inserts one part of an entry, for lists whose entries have several parts.
//! - `{list2}` inserts a second entry of the same list.
//! - `{list:you}` converts an entry from the first person to the second.
//! - `{list:me}` converts an entry from the second person to the first.
//!
//! If a slot occurs in both the tweet and the reply, the reply reuses the tweet's entry, so that
//! replies pick up words from the tweet.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::random::Random;

/// Contents of `data/replies/grammar.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grammar {
    /// Weights of the reply qualities 0 to 4.
    quality_weights: [u32; 5],
    /// Lists of each topic and the names of their parts. A list of plain strings has no parts.
    lists: BTreeMap<String, Vec<String>>,
    /// Lists of plain strings shared by all topics.
    shared: BTreeMap<String, Vec<String>>,
    tweets: Vec<Tweets>,
    replies: Vec<Replies>,
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tweets {
    kind: String,
    texts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replies {
    /// Kind of tweet to which the replies apply. If omitted, they apply to all kinds.
    kind: Option<String>,
    quality: usize,
    /// Whether the reply is about a different topic than the tweet.
    #[serde(default)]
    off_topic: bool,
    /// Whether sentences start in lowercase.
    #[serde(default)]
    raw: bool,
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct Topic {
    #[serde(rename = "name")]
    _name: String,
    #[serde(flatten)]
    lists: BTreeMap<String, Vec<String>>,
}

/// A line of the corpus.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    pub(super) tweet_id: String,
    pub(super) tweet: String,
    pub(super) reply: String,
}

const TWEET_CHARACTERS: std::ops::RangeInclusive<usize> = 30..=220;
/// Length range for replies of quality 3 and 4. The heuristic reward considers these lengths
/// neither short nor long.
const GOOD_REPLY_CHARACTERS: std::ops::RangeInclusive<usize> = 50..=150;

/// Entries used by a pair, by list and slot number.
type Chosen = BTreeMap<(String, String), usize>;

impl Grammar {
    /// Generates `count` pairs. Tweets are distinct, and each has one to three distinct replies.
    ///
    /// # Errors
    /// Returns an error if the grammar is too small, or if a slot refers to an unknown list.
    pub(super) fn pairs(&self, count: usize, seed: u64) -> Result<Vec<Pair>> {
        let tweets: Vec<(&str, &str)> = self
            .tweets
            .iter()
            .flat_map(|group| group.texts.iter().map(|text| (group.kind.as_str(), text.as_str())))
            .collect();
        let mut pairs = Vec::new();
        let mut seen = BTreeSet::new();
        for stream in 0.. {
            if pairs.len() >= count {
                break;
            }
            if stream > 50 * count as u64 + 1_000 {
                bail!(
                    "the grammar produces only {} pairs, not {count}: add words or templates",
                    pairs.len()
                );
            }
            let mut random = Random::new(seed, [0, stream]);
            let topic = random.below(self.topics.len());
            let (kind, template) = tweets[random.below(tweets.len())];
            let mut chosen = Chosen::new();
            let tweet = with_capitals(&self.fill(template, topic, &mut chosen, &mut random)?);
            if !TWEET_CHARACTERS.contains(&tweet.len()) || stutters(&tweet) || seen.contains(&tweet)
            {
                continue;
            }
            let mut replies = BTreeSet::new();
            for _ in 0..1 + random.below(3) {
                let reply = self.reply(topic, kind, &chosen, &mut random)?;
                if let Some(reply) =
                    reply.filter(|reply| pairs.len() < count && replies.insert(reply.clone()))
                {
                    let tweet_id = format!("g{:06}", seen.len() + 1);
                    pairs.push(Pair { tweet_id, tweet: tweet.clone(), reply });
                }
            }
            if !replies.is_empty() {
                seen.insert(tweet);
            }
        }
        Ok(pairs)
    }

    /// Generates a reply to a tweet. Returns `None` if ten attempts had the wrong length or
    /// repeated a word.
    fn reply(
        &self,
        topic: usize,
        kind: &str,
        chosen: &Chosen,
        random: &mut Random,
    ) -> Result<Option<String>> {
        let quality = random.weighted(&self.quality_weights);
        let answers = |group: &&Replies| {
            group.quality == quality && group.kind.as_deref().is_none_or(|own| own == kind)
        };
        let groups = self.replies.iter().filter(answers);
        let fitting: Vec<_> =
            groups.flat_map(|group| group.texts.iter().map(move |text| (group, text))).collect();
        for _ in 0..10 {
            let (group, template) = fitting[random.below(fitting.len())];
            let text = if group.off_topic {
                let other = topic + 1 + random.below(self.topics.len() - 1);
                self.fill(template, other % self.topics.len(), &mut Chosen::new(), random)?
            } else {
                self.fill(template, topic, &mut chosen.clone(), random)?
            };
            let text = if group.raw { text } else { with_capitals(&text) };
            let fits = quality < 3 || GOOD_REPLY_CHARACTERS.contains(&text.len());
            if fits && (group.raw || !stutters(&text)) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Fills the slots of a template. Entries in `chosen` are reused, and new ones are added to it.
    /// The article "a" becomes "an" before a vowel.
    fn fill(
        &self,
        template: &str,
        topic: usize,
        chosen: &mut Chosen,
        random: &mut Random,
    ) -> Result<String> {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            text.push_str(before);
            let (slot, after) = after
                .split_once('}')
                .with_context(|| format!("`{template}`: unterminated slot"))?;
            rest = after;
            let (name, person) = slot.split_once(':').unwrap_or((slot, ""));
            let (name, part) = name.split_once('.').unwrap_or((name, ""));
            let list_name = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = &name[list_name.len()..];
            let list =
                self.topics[topic].lists.get(list_name).or_else(|| self.shared.get(list_name));
            let list = list.with_context(|| format!("`{template}`: unknown list `{list_name}`"))?;
            let key =
                (list_name.to_owned(), if number.is_empty() { "1" } else { number }.to_owned());
            let entry = match chosen.get(&key) {
                Some(entry) => *entry,
                None => {
                    let is_taken = |entry: &usize| {
                        chosen.iter().any(|((list, _), taken)| list == list_name && taken == entry)
                    };
                    let free: Vec<usize> =
                        (0..list.len()).filter(|entry| !is_taken(entry)).collect();
                    let entry = match free.is_empty() {
                        true => random.below(list.len()),
                        false => free[random.below(free.len())],
                    };
                    chosen.insert(key, entry);
                    entry
                }
            };
            let parts = self.lists.get(list_name).map_or(&[][..], Vec::as_slice);
            let index = parts.iter().position(|known| known == part).unwrap_or(0);
            let words = list[entry].split('|').nth(index).unwrap_or_default().trim();
            if takes_an(&text, words) {
                text.insert(text.len() - 1, 'n');
            }
            text += &match person {
                "you" => said_to_you(words),
                "me" => said_of_me(words),
                _ => words.to_owned(),
            };
        }
        Ok(text + rest)
    }
}

/// Returns whether the text ends in an article that has to become "an" before `words`.
fn takes_an(text: &str, words: &str) -> bool {
    text.ends_with(' ')
        && ["a", "A"].contains(&text.rsplit(' ').nth(1).unwrap_or_default())
        && words.starts_with(['a', 'e', 'i', 'o', 'u'])
        && !["uk", "uni", "use", "one"].iter().any(|start| words.starts_with(start))
}

/// Returns whether a word occurs twice in a row, as in "the night before before lunch".
fn stutters(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    words.windows(2).any(|two| two[0] == two[1])
}

/// Converts the first person to the second, e.g. "I lost my keys" to "you lost your keys".
fn said_to_you(text: &str) -> String {
    turned(text, |before, word, _| match word {
        "I" | "me" => "you",
        "am" if matches!(before, "I" | "me" | "you") => "are",
        "was" if matches!(before, "I" | "me" | "you") => "were",
        "my" => "your",
        "mine" => "yours",
        "myself" => "yourself",
        other => other,
    })
}

/// Converts the second person to the first, e.g. "keep a book in your bag" to "keep a book in my
/// bag".
fn said_of_me(text: &str) -> String {
    const BEFORE_ME: [&str; 12] = [
        "to", "for", "with", "of", "at", "behind", "from", "near", "watch", "help", "tell", "after",
    ];
    turned(text, |before, word, is_last| match word {
        "you" if is_last || BEFORE_ME.contains(&before) => "me",
        "you" => "I",
        "are" if before == "you" => "am",
        "your" => "my",
        "yours" => "mine",
        "yourself" => "myself",
        other => other,
    })
}

/// Replaces each word with the result of `turn`, which is called with the previous word, the word
/// itself, and whether it is the last one.
fn turned<'a>(text: &'a str, turn: impl Fn(&str, &'a str, bool) -> &'a str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let before = |i: usize| i.checked_sub(1).map_or("", |i| words[i]);
    let turned =
        words.iter().enumerate().map(|(i, word)| turn(before(i), word, i + 1 == words.len()));
    turned.collect::<Vec<_>>().join(" ")
}

/// Capitalises the first letter of every sentence.
fn with_capitals(text: &str) -> String {
    let (mut begins, mut ended) = (true, false);
    let each = text.chars().map(|c| {
        let capital = if begins { c.to_ascii_uppercase() } else { c };
        begins = (begins || c == ' ' && ended) && !c.is_ascii_alphanumeric();
        ended = matches!(c, '.' | '!' | '?');
        capital
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_are_turned() {
        let check = |turn: fn(&str) -> String, text, expect| assert_eq!(turn(text), expect);
        check(said_to_you, "I lost my keys", "you lost your keys");
        check(said_to_you, "I am late and it was me", "you are late and it was you");
        check(
            said_to_you,
            "I was by myself and amber is mine",
            "you were by yourself and amber is yours",
        );
        check(said_of_me, "keep a book in your bag", "keep a book in my bag");
        check(said_of_me, "let the cat come to you", "let the cat come to me");
        check(said_of_me, "rest when you are sick", "rest when I am sick");
        check(said_of_me, "put a lamp in front of you now", "put a lamp in front of me now");
        check(
            said_of_me,
            "pay yourself before you spend what is yours",
            "pay myself before I spend what is mine",
        );
    }

    #[test]
    fn sentences_begin_with_capitals() {
        let text = with_capitals("one. two! 3 is x? \"four\" e.g.x");
        assert_eq!(text, "One. Two! 3 is x? \"Four\" e.g.x");
    }
}
