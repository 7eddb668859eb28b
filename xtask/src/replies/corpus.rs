//! Pairs from the grammar: what a tiny language model learns its English from.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde::Serialize;

use super::grammar::{Grammar, Person, Piece, Template, Topic};
use super::random::Random;

/// A line of the corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Pair {
    pub(super) tweet_id: String,
    pub(super) tweet: String,
    pub(super) reply: String,
    /// Which templates made it.
    #[serde(skip)]
    pub(super) made_by: (usize, usize),
}

/// `count` pairs: all tweets differ, and the replies to a tweet do; a tweet has one reply, two or three.
///
/// # Errors
/// Where the grammar is too small for so many.
pub(super) fn pairs(grammar: &Grammar, count: usize, seed: u64) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    let mut tweets = BTreeSet::new();
    for stream in 0.. {
        if pairs.len() >= count {
            break;
        }
        if stream > 50 * count as u64 + 1_000 {
            let made = pairs.len();
            bail!(
                "the grammar makes about {made} different pairs with seed {seed}, not {count}: add words or templates to it"
            );
        }
        let mut random = Random::new(seed, [0, stream]);
        let topic = random.below(grammar.topics.len());
        let template = random.below(grammar.tweets.len());
        let mut chosen = Chosen::new();
        let tweet = &grammar.tweets[template];
        let text = fill(&tweet.text, &grammar.topics[topic], &mut chosen, &mut random);
        if !TWEET_CHARACTERS.contains(&text.len()) || stutters(&text) || tweets.contains(&text) {
            continue;
        }
        let mut replies = BTreeSet::new();
        for _ in 0..1 + random.below(3) {
            let drawn = reply(grammar, topic, &tweet.kind, &chosen, &mut random);
            if let Some((reply, by)) = drawn
                && pairs.len() < count
                && replies.insert(reply.clone())
            {
                let tweet_id = format!("g{:06}", tweets.len() + 1);
                pairs.push(Pair { tweet_id, tweet: text.clone(), reply, made_by: (template, by) });
            }
        }
        if !replies.is_empty() {
            tweets.insert(text);
        }
    }
    Ok(pairs)
}

/// How many fillings the templates have, counted without filling one: different pairs are at most as many.
pub(super) fn fillings(grammar: &Grammar) -> f64 {
    let ways = |topic: &Topic, slots: &BTreeSet<(usize, u8)>| -> f64 {
        let mut taken = BTreeMap::<usize, usize>::new();
        let each = slots.iter().map(|(list, _)| {
            let taken = taken.entry(*list).or_default();
            *taken += 1;
            (topic.lists[*list].len() + 1).saturating_sub(*taken) as f64
        });
        each.product()
    };
    let mut sum = 0.0;
    for (place, topic) in grammar.topics.iter().enumerate() {
        for tweet in &grammar.tweets {
            let slots =
                |template: &Template| template.slots().map(|slot| (slot.list, slot.nth)).collect();
            let of_tweet: BTreeSet<_> = slots(&tweet.text);
            for reply in grammar.replies.iter().filter(|reply| reply.answers(&tweet.kind)) {
                let of_reply: BTreeSet<_> = slots(&reply.text);
                sum += match reply.off_topic {
                    false => ways(topic, &of_tweet.union(&of_reply).copied().collect()),
                    true => {
                        let others =
                            grammar.topics.iter().enumerate().filter(|(other, _)| *other != place);
                        ways(topic, &of_tweet)
                            * others.map(|(_, other)| ways(other, &of_reply)).sum::<f64>()
                    }
                };
            }
        }
    }
    sum
}

const TWEET_CHARACTERS: std::ops::RangeInclusive<usize> = 30..=220;
/// Of replies of quality 3 and 4: what the heuristic reward takes for neither short nor long.
const GOOD_REPLY_CHARACTERS: std::ops::RangeInclusive<usize> = 50..=150;

/// The entries that a pair has taken, by list and number.
type Chosen = BTreeMap<(usize, u8), usize>;

/// A reply and its template; none where ten draws all had the wrong length, or a word twice in a row.
fn reply(
    grammar: &Grammar,
    topic: usize,
    kind: &str,
    chosen: &Chosen,
    random: &mut Random,
) -> Option<(String, usize)> {
    let quality = random.weighted(&grammar.quality_weights);
    let replies = grammar.replies.iter().enumerate();
    let fitting: Vec<_> =
        replies.filter(|(_, reply)| reply.quality == quality && reply.answers(kind)).collect();
    for _ in 0..10 {
        let (place, reply) = fitting[random.below(fitting.len())];
        let text = match reply.off_topic {
            false => fill(&reply.text, &grammar.topics[topic], &mut chosen.clone(), random),
            true => {
                let other = 1 + random.below(grammar.topics.len() - 1);
                let other = &grammar.topics[(topic + other) % grammar.topics.len()];
                fill(&reply.text, other, &mut Chosen::new(), random)
            }
        };
        let long_enough = quality < 3 || GOOD_REPLY_CHARACTERS.contains(&text.len());
        if long_enough && !(reply.text.capitals && stutters(&text)) {
            return Some((text, place));
        }
    }
    None
}

/// The template with its slots filled: with the entries of `chosen`, and new ones that go there. What follows "a" may begin
/// with a vowel: then that is "an".
fn fill(template: &Template, topic: &Topic, chosen: &mut Chosen, random: &mut Random) -> String {
    let mut text = String::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Slot(slot) => {
                let list = &topic.lists[slot.list];
                let entry = match chosen.get(&(slot.list, slot.nth)) {
                    Some(entry) => *entry,
                    None => {
                        let taken: BTreeSet<usize> = chosen
                            .iter()
                            .filter(|((list, _), _)| *list == slot.list)
                            .map(|(_, entry)| *entry)
                            .collect();
                        let free: Vec<usize> =
                            (0..list.len()).filter(|entry| !taken.contains(entry)).collect();
                        let entry = match free.is_empty() {
                            true => random.below(list.len()),
                            false => free[random.below(free.len())],
                        };
                        chosen.insert((slot.list, slot.nth), entry);
                        entry
                    }
                };
                let words = &list[entry][slot.part];
                if ["a", "A"].contains(&text.rsplit(' ').nth(1).unwrap_or_default())
                    && text.ends_with(' ')
                    && words.starts_with(['a', 'e', 'i', 'o', 'u'])
                    && !["uk", "uni", "use", "one"].iter().any(|start| words.starts_with(start))
                {
                    text.truncate(text.len() - 1);
                    text.push_str("n ");
                }
                match slot.person {
                    Person::AsItIs => text.push_str(words),
                    Person::ToYou => text.push_str(&said_to_you(words)),
                    Person::OfMe => text.push_str(&said_of_me(words)),
                }
            }
        }
    }
    if template.capitals { with_capitals(&text) } else { text }
}

/// Whether a word is there twice in a row, as where "the night before" comes before "before lunch".
fn stutters(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    words.windows(2).any(|two| two[0] == two[1])
}

/// What somebody says of themselves, as another says it to them: "I lost my keys" is "you lost your keys".
fn said_to_you(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(' ') {
        let after_i = words.last() == Some(&"you");
        words.push(match word {
            "I" => "you",
            "am" if after_i => "are",
            "was" if after_i => "were",
            "my" => "your",
            "me" => "you",
            "mine" => "yours",
            "myself" => "yourself",
            other => other,
        });
    }
    words.join(" ")
}

/// What somebody is told, as they say it of themselves: "keep a book in your bag" is "keep a book in my bag".
fn said_of_me(text: &str) -> String {
    const BEFORE_ME: [&str; 12] = [
        "to", "for", "with", "of", "at", "behind", "from", "near", "watch", "help", "tell", "after",
    ];
    let told: Vec<&str> = text.split(' ').collect();
    let words = told.iter().enumerate().map(|(place, word)| {
        let before = place.checked_sub(1).map(|place| told[place]);
        match *word {
            "you" if place + 1 == told.len() || before.is_some_and(|b| BEFORE_ME.contains(&b)) => {
                "me"
            }
            "you" => "I",
            "are" if before == Some("you") => "am",
            "your" => "my",
            "yours" => "mine",
            "yourself" => "myself",
            other => other,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Every sentence begins with a capital.
fn with_capitals(text: &str) -> String {
    let mut begins = true;
    let mut ended = false;
    let each = text.chars().map(|c| {
        let c = if begins && c.is_ascii_alphabetic() { c.to_ascii_uppercase() } else { c };
        if c.is_ascii_alphanumeric() {
            begins = false;
        } else if c == ' ' && ended {
            begins = true;
        }
        ended = matches!(c, '.' | '!' | '?');
        c
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::super::grammar::SMALL;
    use super::*;

    fn bundled() -> Grammar {
        let path = crate::workspace::root().join("data/replies/grammar.toml");
        Grammar::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn pairs_are_a_function_of_the_seed() {
        let grammar = Grammar::parse(SMALL).unwrap();
        let some = |count, seed| pairs(&grammar, count, seed).unwrap();
        assert_eq!(some(12, 1), some(12, 1));
        assert_eq!(some(12, 1)[..5], some(5, 1));
        assert_ne!(some(12, 1), some(12, 2));
    }

    #[test]
    fn replies_take_up_the_words_of_the_tweet() {
        let grammar = Grammar::parse(SMALL).unwrap();
        let mut seen = 0;
        for pair in (0..9).flat_map(|seed| pairs(&grammar, 20, seed).unwrap()) {
            let Some((thing, _)) = ["soup", "rice", "ball", "shoe"].iter().find_map(|thing| {
                pair.tweet.contains(&format!("my {thing}")).then_some((thing, ()))
            }) else {
                panic!("{}", pair.tweet);
            };
            if pair.reply.contains("is fun") {
                seen += 1;
                assert!(pair.reply.contains(&format!("your {thing} goes")), "{pair:?}");
                assert!(!pair.reply.contains(&format!("with {thing}")), "{pair:?}");
            }
            if let Some(eaten) = pair.reply.strip_prefix("eat ") {
                let food = |thing: &str| ["soup", "rice"].contains(&thing);
                assert_ne!(food(eaten), food(thing), "{pair:?}");
            }
        }
        assert!(seen > 2);
    }

    #[test]
    fn a_grammar_that_is_too_small_says_so() {
        let grammar = Grammar::parse(SMALL).unwrap();
        let error = pairs(&grammar, 1_000, 3).unwrap_err().to_string();
        assert!(error.contains("not 1000: add words or templates to it"), "{error}");
    }

    #[test]
    fn fillings_are_counted() {
        // A topic: 2 actions, 2 things, 2 times make 8 tweets. Replies: one other thing is left, so 1; one other action is
        // left, so 1; 1; 1; and 2 of the other topic.
        assert_eq!(
            fillings(&Grammar::parse(SMALL).unwrap()),
            2.0 * 8.0 * (1 + 1 + 1 + 1 + 2) as f64
        );
    }

    #[test]
    fn articles_follow_what_is_filled_in() {
        let text = SMALL.replace("soup", "olive").replace("eat {thing}", "eat a {thing}");
        let made = pairs(&Grammar::parse(&text).unwrap(), 20, 1).unwrap();
        let some = |reply: &str| made.iter().any(|pair| pair.reply == reply);
        assert!(some("eat an olive") && some("eat a rice") && some("eat a ball"), "{made:?}");
        assert!(made.iter().all(|pair| !pair.reply.contains("a olive")));
    }

    #[test]
    fn said_to_you_turns_the_persons() {
        let check = |text, expect| assert_eq!(said_to_you(text), expect);
        check("I lost my keys", "you lost your keys");
        check("I am late and it was me", "you are late and it was you");
        check("I was by myself", "you were by yourself");
        check("amber is mine", "amber is yours");
    }

    #[test]
    fn said_of_me_turns_them_back() {
        let check = |text, expect| assert_eq!(said_of_me(text), expect);
        check("keep a book in your bag", "keep a book in my bag");
        check("let the cat come to you", "let the cat come to me");
        check("rest when you are sick", "rest when I am sick");
        check("put a lamp in front of you now", "put a lamp in front of me now");
        check(
            "pay yourself before you spend what is yours",
            "pay myself before I spend what is mine",
        );
    }

    #[test]
    fn sentences_begin_with_capitals() {
        assert_eq!(
            with_capitals("one. two! 3 is x? \"four\" e.g.x"),
            "One. Two! 3 is x? \"Four\" e.g.x"
        );
    }

    #[test]
    fn the_bundled_grammar_makes_tidy_distinct_pairs() {
        let grammar = bundled();
        let made = pairs(&grammar, 60_000, 42).unwrap();
        assert_eq!(made.len(), 60_000);
        let distinct: BTreeSet<_> = made.iter().map(|pair| (&pair.tweet, &pair.reply)).collect();
        assert_eq!(distinct.len(), made.len());
        for pair in &made {
            let raw = !grammar.replies[pair.made_by.1].text.capitals;
            for text in [&pair.tweet, &pair.reply] {
                for bad in
                    ["  ", " ,", " .", " ?", " !", "{", "}", "|", "..", ",.", "the the ", "my my "]
                {
                    assert!(!text.contains(bad), "{bad:?} in {text}");
                }
                assert_eq!(text.trim(), text);
                for sentence in text.split_inclusive(". ") {
                    let small = sentence.starts_with(|c: char| c.is_ascii_lowercase());
                    assert!(!small || *text == pair.reply && raw, "{text}");
                }
                let words: Vec<&str> = text.split(' ').collect();
                let twice = words.windows(2).find(|two| two[0] == two[1]);
                assert!(twice.is_none() || *text == pair.reply && raw, "{twice:?} in {text}");
                articles_agree(text);
            }
        }
    }

    #[track_caller]
    fn articles_agree(text: &str) {
        let words: Vec<&str> = text.split([' ', '.', ',', '!', '?']).collect();
        for pair in words.windows(2) {
            let vowel = pair[1].starts_with(['a', 'e', 'i', 'o', 'u']);
            let sounds = ["one", "once", "use", "used", "useful", "usual", "uniform", "ukulele"];
            let vowel = match pair[1] {
                "hour" | "hours" | "honest" | "AI" => true,
                word if sounds.contains(&word) || word.starts_with("one-") => false,
                _ => vowel,
            };
            match pair[0] {
                "a" | "A" if !pair[1].is_empty() => {
                    assert!(!vowel, "\"{} {}\" in {text}", pair[0], pair[1])
                }
                "an" | "An" => assert!(vowel, "\"{} {}\" in {text}", pair[0], pair[1]),
                _ => {}
            }
        }
    }

    #[test]
    fn every_template_of_the_bundled_grammar_is_reached() {
        let grammar = bundled();
        let made = pairs(&grammar, 20_000, 1).unwrap();
        let (tweets, replies): (BTreeSet<_>, BTreeSet<_>) = made.iter().map(|p| p.made_by).unzip();
        let missing = |count, made: &BTreeSet<usize>| {
            (0..count).filter(|i| !made.contains(i)).collect::<Vec<_>>()
        };
        assert_eq!(missing(grammar.tweets.len(), &tweets), [0; 0]);
        assert_eq!(missing(grammar.replies.len(), &replies), [0; 0]);
    }
}
