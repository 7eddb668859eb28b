//! Detection of URLs, hashtags, emoji and English text.

use std::collections::BTreeSet;

use grpo_eval::words;

use super::lists::ENGLISH_WORDS;

/// Returns `true` if a text contains a URL.
pub(super) fn has_url(text: &str) -> bool {
    let lower = text.to_lowercase();
    ["http://", "https://", "www.", "t.co/", "pic.twitter.com"].iter().any(|begin| {
        // Without this check, `robot.co/` would match `t.co/`.
        lower.match_indices(begin).any(|(at, _)| {
            !lower[..at].chars().next_back().is_some_and(|before| before.is_alphanumeric())
        })
    })
}

/// Returns the number of words that begin with `#`.
pub(super) fn hashtags(text: &str) -> usize {
    let mut before = None;
    let mut count = 0;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let begins = !before.is_some_and(|before: char| before.is_alphanumeric());
        if character == '#'
            && begins
            && characters.peek().is_some_and(|next| next.is_alphanumeric())
        {
            count += 1;
        }
        before = Some(character);
    }
    count
}

/// Returns the number of emoji. Flags and emoji with a skin tone modifier count as two.
pub(super) fn emoji(text: &str) -> usize {
    text.chars().filter(|c| is_emoji(*c)).count()
}

fn is_emoji(c: char) -> bool {
    matches!(u32::from(c), 0x1F000..=0x1FAFF | 0x2600..=0x27BF | 0x2B50 | 0x2B55 | 0x231A | 0x231B | 0x23E9..=0x23F3)
}

/// Returns the length of the longest run of a single non-whitespace character.
pub(super) fn longest_run(text: &str) -> usize {
    let (mut longest, mut run, mut before) = (0, 0, None);
    for character in text.chars() {
        run = if before == Some(character) { run + 1 } else { 1 };
        before = Some(character);
        if !character.is_whitespace() {
            longest = longest.max(run);
        }
    }
    longest
}

/// Returns `true` if a text is in English.
///
/// If `lang` is missing, a heuristic is used: at least 90% of the letters must be unaccented Latin
/// letters, and at least one word in eight must be a common English word. Texts of at most four
/// words, such as "Congrats!", rarely contain one. They only must not contain a common word of
/// another language.
pub(super) fn is_english(lang: Option<&str>, text: &str) -> bool {
    match lang {
        Some(lang) => lang == "en" || lang.starts_with("en-") || lang.starts_with("en_"),
        None => looks_english(text),
    }
}

pub(super) fn looks_english(text: &str) -> bool {
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let latin = text.chars().filter(char::is_ascii_alphabetic).count();
    let words: Vec<String> = words(text).collect();
    let common = words.iter().filter(|word| ENGLISH_WORDS.contains(&word.as_str())).count();
    let has_evidence = match words.len() {
        0..=4 => !words.iter().any(|word| FOREIGN_WORDS.contains(&word.as_str())),
        count => common > 0 && common * 8 >= count,
    };
    letters > 0 && latin * 10 >= letters * 9 && has_evidence
}

/// Words of other languages that are common in short replies.
const FOREIGN_WORDS: [&str; 40] = [
    "merci",
    "beaucoup",
    "bravo",
    "oui",
    "c'est",
    "très",
    "danke",
    "nein",
    "ja",
    "ich",
    "das",
    "ist",
    "schön",
    "gut",
    "gracias",
    "hola",
    "sí",
    "muy",
    "bien",
    "que",
    "es",
    "está",
    "obrigado",
    "obrigada",
    "não",
    "muito",
    "sim",
    "grazie",
    "ciao",
    "molto",
    "sono",
    "tak",
    "nie",
    "dank",
    "bedankt",
    "mooi",
    "teşekkürler",
    "evet",
    "terima",
    "kasih",
];

/// Returns `true` if a phrase occurs in a text, matching whole words only.
pub(super) fn has_phrase(words: &[String], phrase: &str) -> bool {
    let phrase: Vec<String> = grpo_eval::words(phrase).collect();
    !phrase.is_empty() && words.windows(phrase.len()).any(|window| window == phrase)
}

/// Returns the distinct words that are neither stop words nor shorter than three characters.
pub(super) fn content_words<'a>(words: &'a [String], stop_words: &[String]) -> BTreeSet<&'a str> {
    let says = |word: &&String| word.chars().count() > 2 && !stop_words.contains(word);
    words.iter().filter(says).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use grpo_eval::is_all_capitals;

    use super::*;

    #[test]
    fn addresses_are_found_and_words_that_end_like_them_are_not() {
        for text in
            ["see https://a.b", "HTTP://X", "(www.example.org)", "t.co/abc", "pic.twitter.com/x"]
        {
            assert!(has_url(text), "{text}");
        }
        for text in ["robot.co/", "a www", "see it.", "wwww.", "https"] {
            assert!(!has_url(text), "{text}");
        }
    }

    #[test]
    fn hashtags_emoji_and_runs_are_counted() {
        assert_eq!(hashtags("#one #two, c# no#three # four (#5)"), 3);
        assert_eq!(emoji("fine 🎉🎉 ☀ café → ❤"), 4);
        assert_eq!(longest_run("aab     bbbbc"), 4);
        assert_eq!(longest_run(""), 0);
        assert!(is_all_capitals("NO WAY 3!") && !is_all_capitals("123!") && !is_all_capitals("No"));
    }

    #[test]
    fn detects_english_by_letters_and_common_words() {
        for text in [
            "The garden is finally green.",
            "I can't believe you did that with one hand",
            "Congrats!",
            "lol same",
            "Great news, congratulations",
        ] {
            assert!(looks_english(text), "{text}");
        }
        for text in [
            "Der Garten ist endlich wieder schön grün geworden",
            "le jardin est enfin vert, merci beaucoup",
            "for le jardin est enfin vert et les tomates arrivent",
            "сад наконец зелёный and the",
            "garden green yesterday tomatoes sunshine weekend gloves",
            "Merci beaucoup!",
            "muy bien",
            "🎉 123",
            "",
        ] {
            assert!(!looks_english(text), "{text}");
        }
        assert!(!is_english(Some("de"), "The garden is finally green."));
        assert!(is_english(Some("en-GB"), "Der Garten") && !is_english(Some("eng"), "the"));
    }

    #[test]
    fn phrases_are_whole_words() {
        let words: Vec<String> = words("I agree with the segment").collect();
        assert!(has_phrase(&words, "i agree") && has_phrase(&words, "Segment"));
        assert!(
            !has_phrase(&words, "gm")
                && !has_phrase(&words, "agree the")
                && !has_phrase(&words, "")
        );
    }
}
