//! The grammar of tweets and replies: its file, read once into checked templates.
//!
//! A template is a sentence with slots, `{list}`, `{list.part}` where the entries of a list have several parts, `{list2}` for
//! a second entry of the same list, `{list:you}` for what somebody says of themselves, said to them, and `{list:me}` for what
//! somebody is told, said of oneself. A slot of a reply that the tweet has filled has the tweet's entry: that is how a reply takes up a tweet's own words.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// What is drawn from.
pub(super) struct Grammar {
    pub(super) topics: Vec<Topic>,
    pub(super) tweets: Vec<TweetTemplate>,
    pub(super) replies: Vec<ReplyTemplate>,
    /// How often a reply has quality 0, 1, 2, 3, 4.
    pub(super) quality_weights: [u32; 5],
}

/// A topic's entries: `lists[list][entry][part]`, those of `[shared]` among them.
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) lists: Vec<Vec<Vec<String>>>,
}

pub(super) struct TweetTemplate {
    pub(super) kind: String,
    pub(super) text: Template,
}

pub(super) struct ReplyTemplate {
    /// Of tweets of this kind alone; of any where there is none.
    pub(super) kind: Option<String>,
    pub(super) quality: usize,
    /// Drawn from another topic than the tweet's.
    pub(super) off_topic: bool,
    pub(super) text: Template,
}

impl ReplyTemplate {
    pub(super) fn answers(&self, kind: &str) -> bool {
        self.kind.as_deref().is_none_or(|own| own == kind)
    }
}

pub(super) struct Template {
    pub(super) pieces: Vec<Piece>,
    /// Whether sentences begin with a capital, whatever fills their first slot.
    pub(super) capitals: bool,
}

pub(super) enum Piece {
    Text(String),
    Slot(Slot),
}

pub(super) struct Slot {
    pub(super) list: usize,
    /// Which of the different entries that a pair has of the list.
    pub(super) nth: u8,
    pub(super) part: usize,
    pub(super) person: Person,
}

/// Who speaks to whom in what fills a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Person {
    AsItIs,
    ToYou,
    OfMe,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrammarFile {
    quality_weights: [u32; 5],
    /// The lists of each topic, with the names of their parts; none for a list of plain texts.
    lists: BTreeMap<String, Vec<String>>,
    /// Lists of plain texts that all topics have.
    shared: BTreeMap<String, Vec<String>>,
    tweets: Vec<TweetGroup>,
    replies: Vec<ReplyGroup>,
    topics: Vec<TopicFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TweetGroup {
    kind: String,
    texts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyGroup {
    kind: Option<String>,
    quality: usize,
    #[serde(default)]
    off_topic: bool,
    /// Left as it is: no capitals at the beginning of sentences.
    #[serde(default)]
    raw: bool,
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct TopicFile {
    name: String,
    #[serde(flatten)]
    lists: BTreeMap<String, Vec<String>>,
}

impl Grammar {
    /// # Errors
    /// Where a list is unknown, missing, empty or used by no template, an entry has another number of parts than its list,
    /// or a kind of tweet has no reply of some quality.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let file: GrammarFile = toml::from_str(text)?;
        let names = Names::of(&file)?;
        let topics = topics(&file, &names)?;

        let mut tweets = Vec::new();
        for group in &file.tweets {
            ensure!(!group.texts.is_empty(), "a group of tweets of kind `{}` is empty", group.kind);
            for text in &group.texts {
                let text = names.template(text, true)?;
                tweets.push(TweetTemplate { kind: group.kind.clone(), text });
            }
        }
        let mut replies = Vec::new();
        for group in &file.replies {
            let ReplyGroup { kind, quality, off_topic, raw, texts } = group;
            ensure!(*quality <= 4, "replies of quality {quality}: it is 0, 1, 2, 3 or 4");
            ensure!(!texts.is_empty(), "a group of replies of quality {quality} is empty");
            for text in texts {
                let text = names.template(text, !raw)?;
                let (kind, quality, off_topic) = (kind.clone(), *quality, *off_topic);
                replies.push(ReplyTemplate { kind, quality, off_topic, text });
            }
        }
        let grammar = Self { topics, tweets, replies, quality_weights: file.quality_weights };
        grammar.all_is_used(&names)?;
        grammar.all_is_answered()?;
        Ok(grammar)
    }

    fn all_is_used(&self, names: &Names) -> Result<()> {
        let tweets = self.tweets.iter().map(|tweet| &tweet.text);
        let templates = tweets.chain(self.replies.iter().map(|reply| &reply.text));
        let used: BTreeSet<_> =
            templates.flat_map(Template::slots).map(|s| (s.list, s.part)).collect();
        for (list, (name, parts)) in names.0.iter().enumerate() {
            for part in 0..parts.len().max(1) {
                let slot = match parts.get(part) {
                    Some(part) => format!("{name}.{part}"),
                    None => name.clone(),
                };
                ensure!(used.contains(&(list, part)), "no template has the slot {{{slot}}}");
            }
        }
        Ok(())
    }

    /// Every kind of tweet has replies of every quality, and every reply has tweets.
    fn all_is_answered(&self) -> Result<()> {
        let kinds: BTreeSet<&str> = self.tweets.iter().map(|tweet| tweet.kind.as_str()).collect();
        for reply in &self.replies {
            if let Some(kind) = &reply.kind {
                ensure!(
                    kinds.contains(kind.as_str()),
                    "there are replies to tweets of kind `{kind}`, but no such tweet"
                );
            }
        }
        for quality in 0..5 {
            for kind in &kinds {
                let some = self.replies.iter().any(|r| r.quality == quality && r.answers(kind));
                ensure!(some, "tweets of kind `{kind}` have no reply of quality {quality}");
            }
            ensure!(self.quality_weights[quality] > 0, "quality {quality} has weight 0");
        }
        ensure!(self.topics.len() > 1, "one topic alone: replies that are off topic need another");
        Ok(())
    }
}

impl Template {
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Slot(slot) => Some(slot),
            Piece::Text(_) => None,
        })
    }
}

/// The lists by their place: a name and the names of the parts.
struct Names(Vec<(String, Vec<String>)>);

impl Names {
    fn of(file: &GrammarFile) -> Result<Self> {
        let mut names: Vec<_> =
            file.lists.iter().map(|(name, parts)| (name.clone(), parts.clone())).collect();
        for name in file.shared.keys() {
            ensure!(
                !file.lists.contains_key(name),
                "`{name}` is both a shared list and one of the topics'"
            );
            names.push((name.clone(), Vec::new()));
        }
        for (name, _) in &names {
            let plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            ensure!(plain && !name.is_empty(), "`{name}` cannot name a list: small letters only");
        }
        Ok(Self(names))
    }

    fn template(&self, text: &str, capitals: bool) -> Result<Template> {
        plain(text)?;
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (slot, after) = after
                .split_once('}')
                .with_context(|| format!("a slot of \"{text}\" has no end"))?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let slot = self.slot(slot).with_context(|| format!("in the template \"{text}\""))?;
            pieces.push(Piece::Slot(slot));
            rest = after;
        }
        ensure!(!rest.contains('}'), "a slot of \"{text}\" has no beginning");
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template { pieces, capitals })
    }

    fn slot(&self, slot: &str) -> Result<Slot> {
        let (name, person) = match slot.split_once(':') {
            Some((name, "you")) => (name, Person::ToYou),
            Some((name, "me")) => (name, Person::OfMe),
            Some((_, way)) => bail!("{{{slot}}}: a slot is said to `you` or of `me`, not `{way}`"),
            None => (slot, Person::AsItIs),
        };
        let (name, part) = match name.split_once('.') {
            Some((name, part)) => (name, Some(part)),
            None => (name, None),
        };
        let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let nth = match &name[bare.len()..] {
            "" => 1,
            digits => digits.parse().with_context(|| format!("{{{slot}}}: no such number"))?,
        };
        let list = self.0.iter().position(|(known, _)| known == bare);
        let list = list.with_context(|| format!("{{{slot}}}: there is no list `{bare}`"))?;
        let parts = &self.0[list].1;
        let part = match part {
            Some(part) => parts.iter().position(|known| known == part),
            None => parts.is_empty().then_some(0),
        };
        let part = part.with_context(|| match parts.is_empty() {
            true => format!("{{{slot}}}: the list `{bare}` has no parts"),
            false => format!("{{{slot}}}: say which part of `{bare}`: {}", parts.join(", ")),
        })?;
        Ok(Slot { list, nth, part, person })
    }
}

fn topics(file: &GrammarFile, names: &Names) -> Result<Vec<Topic>> {
    let mut topics = Vec::new();
    for TopicFile { name: topic, lists } in &file.topics {
        if let Some(list) = lists.keys().find(|list| !file.lists.contains_key(*list)) {
            bail!("topic `{topic}` has a list `{list}`, which [lists] does not name");
        }
        ensure!(topics.iter().all(|t: &Topic| t.name != *topic), "there are two topics `{topic}`");
        let lists = names.0.iter().map(|(name, parts)| {
            let list = lists.get(name).or_else(|| file.shared.get(name));
            let list = list.with_context(|| format!("topic `{topic}` has no list `{name}`"))?;
            entries(list, parts.len().max(1))
                .with_context(|| format!("list `{name}` of topic `{topic}`"))
        });
        topics.push(Topic { name: topic.clone(), lists: lists.collect::<Result<_>>()? });
    }
    Ok(topics)
}

/// The entries of a list, each as its parts.
fn entries(list: &[String], parts: usize) -> Result<Vec<Vec<String>>> {
    ensure!(!list.is_empty(), "it is empty");
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for entry in list {
        plain(entry)?;
        ensure!(seen.insert(entry), "\"{entry}\" is there twice");
        ensure!(!entry.contains(['{', '}']), "\"{entry}\" has a slot: only templates can");
        let found: Vec<String> = entry.split('|').map(|part| part.trim().to_owned()).collect();
        let count = found.len();
        ensure!(
            count == parts,
            "\"{entry}\" has {count} parts, divided by |, where {parts} are expected"
        );
        ensure!(found.iter().all(|part| !part.is_empty()), "\"{entry}\" has an empty part");
        entries.push(found);
    }
    Ok(entries)
}

fn plain(text: &str) -> Result<()> {
    ensure!(text.is_ascii(), "\"{text}\" is not plain ASCII");
    ensure!(!text.contains("  ") && text.trim() == text, "\"{text}\" has blanks too many");
    ensure!(!text.is_empty(), "a text is empty");
    Ok(())
}

#[cfg(test)]
pub(super) const SMALL: &str = r#"
    quality_weights = [1, 1, 1, 1, 1]
    [lists]
    thing = []
    action = ["do", "doing"]
    [shared]
    when = ["today", "last night"]
    [[tweets]]
    kind = "plain"
    texts = ["I like {action.doing}, and my {thing} {when}."]
    [[replies]]
    kind = "plain"
    quality = 4
    texts = ["{action.doing} is fun, and your {thing} goes very well with {thing2}, I think."]
    [[replies]]
    quality = 3
    texts = ["i would {action.do} with {thing} and never look back, believe me. {action2.do}!"]
    [[replies]]
    quality = 2
    texts = ["fine."]
    [[replies]]
    quality = 1
    texts = ["ok"]
    [[replies]]
    quality = 0
    off_topic = true
    raw = true
    texts = ["eat {thing}"]
    [[topics]]
    name = "food"
    thing = ["soup", "rice"]
    action = ["cook | cooking", "bake | baking"]
    [[topics]]
    name = "sport"
    thing = ["ball", "shoe"]
    action = ["run | running", "swim | swimming"]
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(old: &str, new: &str, expect: &str) {
        assert!(SMALL.contains(old), "{old}");
        let text = SMALL.replacen(old, new, 1);
        let error = Grammar::parse(&text).err().map(|error| format!("{error:#}"));
        assert_eq!(error.as_deref(), Some(expect));
    }

    #[test]
    fn a_good_grammar_is_read() {
        let grammar = Grammar::parse(SMALL).unwrap();
        assert_eq!((grammar.topics.len(), grammar.tweets.len(), grammar.replies.len()), (2, 1, 5));
    }

    #[test]
    fn lists_are_known_used_and_full() {
        refuses(
            "my {thing}",
            "my {thong}",
            "in the template \"I like {action.doing}, and my {thong} {when}.\": {thong}: there is no list `thong`",
        );
        refuses("thing = []", "thing = []\nplace = []", "topic `food` has no list `place`");
        refuses("when = [", "never = [\"never\"]\nwhen = [", "no template has the slot {never}");
        refuses("{when}.", "today.", "no template has the slot {when}");
        refuses(
            "[\"do\", \"doing\"]",
            "[\"do\", \"doing\", \"did\"]",
            "list `action` of topic `food`: \"cook | cooking\" has 2 parts, divided by |, where 3 are expected",
        );
        refuses("[\"soup\", \"rice\"]", "[]", "list `thing` of topic `food`: it is empty");
        refuses(
            "[\"soup\", ",
            "[\"rice\", ",
            "list `thing` of topic `food`: \"rice\" is there twice",
        );
        refuses(
            "[\"ball\", \"shoe\"]",
            "[\"ball\"]\nbat = [\"bat\"]",
            "topic `sport` has a list `bat`, which [lists] does not name",
        );
        refuses("name = \"sport\"", "name = \"food\"", "there are two topics `food`");
        refuses(
            "when = [",
            "thing = [\"x\"]\nwhen = [",
            "`thing` is both a shared list and one of the topics'",
        );
        refuses(
            "soup",
            "so{u}p",
            "list `thing` of topic `food`: \"so{u}p\" has a slot: only templates can",
        );
        refuses(
            "soup",
            "so\u{fc}p",
            "list `thing` of topic `food`: \"so\u{fc}p\" is not plain ASCII",
        );
        refuses(
            "cook | cooking",
            "cook |",
            "list `action` of topic `food`: \"cook |\" has an empty part",
        );
    }

    #[test]
    fn slots_are_whole_and_say_what_they_want() {
        refuses("eat {thing}", "eat {thing", "a slot of \"eat {thing\" has no end");
        refuses("eat {thing}", "eat thing}", "a slot of \"eat thing}\" has no beginning");
        refuses(
            "eat {thing}",
            "eat {thing.x}",
            "in the template \"eat {thing.x}\": {thing.x}: the list `thing` has no parts",
        );
        refuses(
            "eat {thing}",
            "eat {action}",
            "in the template \"eat {action}\": {action}: say which part of `action`: do, doing",
        );
        refuses(
            "eat {thing}",
            "eat {thing:us}",
            "in the template \"eat {thing:us}\": {thing:us}: a slot is said to `you` or of `me`, not `us`",
        );
        refuses("eat {thing}", "eat  it", "\"eat  it\" has blanks too many");
    }

    #[test]
    fn every_kind_is_answered_in_every_quality() {
        refuses("quality = 2", "quality = 3", "tweets of kind `plain` have no reply of quality 2");
        refuses("quality = 2", "quality = 5", "replies of quality 5: it is 0, 1, 2, 3 or 4");
        refuses(
            "quality = 2",
            "kind = \"x\"\nquality = 2",
            "there are replies to tweets of kind `x`, but no such tweet",
        );
        refuses("[1, 1, 1, 1, 1]", "[1, 1, 0, 1, 1]", "quality 2 has weight 0");
        refuses("texts = [\"ok\"]", "texts = []", "a group of replies of quality 1 is empty");
    }
}
