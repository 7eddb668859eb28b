//! Components of the heuristic reward that only depend on the text. Lengths are in Unicode
//! characters.

use std::collections::BTreeSet;

use grpo_eval::is_all_capitals;

use super::GenericWords;

/// Returns the value of all components if the reply is too short or too long, otherwise `None`.
pub(super) fn settled(reply: &str) -> Option<f64> {
    match reply.chars().count() {
        0..3 => Some(0.0),
        3..=500 => None,
        _ => Some(0.3),
    }
}

pub(super) fn length(reply: &str) -> f64 {
    match reply.chars().count() {
        0..20 => 0.3,
        20..50 => 0.6,
        50..=150 => 1.0,
        151..=280 => 0.8,
        _ => 0.4,
    }
}

/// Returns the sentiment component for two polarities between −1 and 1.
pub(super) fn sentiment(tweet: f64, reply: f64) -> f64 {
    (1.0 - (tweet - reply).abs() / 2.0).max(0.0)
}

pub(super) fn lexical_diversity(reply: &str) -> f64 {
    let words: Vec<String> = reply.split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() {
        return 0.0;
    }
    let unique = words.iter().collect::<BTreeSet<_>>().len() as f64 / words.len() as f64;
    if unique < 0.5 { unique * 0.7 } else { unique }
}

pub(super) fn punctuation(reply: &str) -> f64 {
    let characters = reply.chars().count();
    if characters == 0 {
        return 0.0;
    }
    let marks = reply.chars().filter(|c| matches!(c, '!' | '?' | '.' | ',')).count();
    let part = marks as f64 / characters as f64;
    if part < 0.01 {
        0.7
    } else if (0.02..=0.08).contains(&part) {
        1.0
    } else if part <= 0.15 {
        0.8
    } else {
        0.3
    }
}

pub(super) fn engagement(reply: &str, generic_words: &GenericWords) -> f64 {
    let characters = reply.chars().count();
    let mut engagement = 1.0_f64;
    if characters < 30 && generic_words.are_in(reply) {
        engagement *= 0.5;
    }
    if reply.contains('?') {
        engagement *= 1.1;
    }
    if reply.chars().filter(|c| matches!(c, '.' | '!' | '?')).count() >= 2 {
        engagement *= 1.05;
    }
    if characters > 10 && is_all_capitals(reply) {
        engagement *= 0.6;
    }
    engagement.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(got: f64, expect: f64) {
        assert!((got - expect).abs() < 1e-12, "{got} and not {expect}");
    }

    #[test]
    fn steps_of_length() {
        for (characters, expect) in [
            (3, 0.3),
            (19, 0.3),
            (20, 0.6),
            (49, 0.6),
            (50, 1.0),
            (150, 1.0),
            (151, 0.8),
            (280, 0.8),
            (281, 0.4),
            (500, 0.4),
        ] {
            // Lengths are in characters, not bytes.
            assert_eq!(length(&"ä".repeat(characters)), expect, "{characters}");
        }
    }

    #[test]
    fn too_short_and_too_long_are_settled() {
        for (characters, expect) in
            [(0, Some(0.0)), (2, Some(0.0)), (3, None), (500, None), (501, Some(0.3))]
        {
            assert_eq!(settled(&"ä".repeat(characters)), expect, "{characters}");
        }
    }

    #[test]
    fn sentiment_is_the_nearness_of_polarities() {
        close(sentiment(0.5, 0.5), 1.0);
        close(sentiment(0.5, -0.25), 0.625);
        close(sentiment(-1.0, 1.0), 0.0);
    }

    #[test]
    fn repeated_words_are_less_diverse() {
        close(lexical_diversity("A train, a garden"), 3.0 / 4.0);
        close(lexical_diversity("Go go"), 0.5);
        close(lexical_diversity("go go GO stop go"), 0.7 * 2.0 / 5.0);
        close(lexical_diversity("  "), 0.0);
    }

    #[test]
    fn steps_of_punctuation() {
        for (marks, characters, expect) in [
            (0, 100, 0.7),
            (9, 1000, 0.7),
            (1, 100, 0.8),
            (19, 1000, 0.8),
            (2, 100, 1.0),
            (8, 100, 1.0),
            (9, 100, 0.8),
            (15, 100, 0.8),
            (16, 100, 0.3),
        ] {
            let reply = "!?.,".chars().cycle().take(marks).collect::<String>();
            let reply = reply + &"a".repeat(characters - marks);
            assert_eq!(punctuation(&reply), expect, "{marks} of {characters}");
        }
        assert_eq!(punctuation(""), 0.0);
        // Other punctuation marks do not count.
        assert_eq!(punctuation(";:-()\"'"), 0.7);
    }

    #[test]
    fn engagement_by_hand() {
        let of = |reply| engagement(reply, &GenericWords::default());
        close(of("Which trains run on Mondays"), 1.0);
        close(of("Thanks for all"), 0.5);
        close(of("Thanks, but for what?"), 0.5 * 1.1);
        close(of("Thanks. What for?"), 0.5 * 1.1 * 1.05);
        close(of("Thanks. Thanks."), 0.5 * 1.05);
        close(of("WHICH TRAINS RUN"), 0.6);
        close(of("AND 2 TRAINS?"), 0.6 * 1.1);
        close(of("THANKS A LOT"), 0.5 * 0.6);
        // A text of ten characters is too short for the capitals penalty. Digits are not capitals.
        close(of("TEN LETTER"), 1.0);
        close(of("1234567890 12"), 1.0);
        // The generic word penalty only applies to replies of fewer than 30 characters.
        close(of("Thanks to you, the train waits"), 1.0);
        close(of("Thanks to you, the train wait"), 0.5);
    }

    /// Regression test: generic words matched inside other words.
    #[test]
    fn ignores_a_generic_word_inside_another() {
        close(engagement("You know the thistle", &GenericWords::default()), 1.0);
    }

    /// Factors above 1 only have an effect after a penalty, because the result is clipped at 1.
    #[test]
    fn boosts_above_one_are_clipped() {
        let of = |reply| engagement(reply, &GenericWords::default());
        close(of("Which trains run on Mondays?"), 1.0);
        close(of("Which trains? On Mondays?"), 1.0);
        assert!(of("Same here?") > of("Same here"));
    }
}
