use std::collections::BTreeMap;

use grpo_eval::{Embedder, HashedNgrams, cosine};
use grpo_replies::{
    CleanedPairs, CleaningPlan, CleaningRules, CollectionFilter, PairRecord, ValidationRules,
    clean_reply, quality,
};
use serde_json::json;

/// A pair that satisfies all rules.
fn good() -> PairRecord {
    PairRecord {
        tweet_id: "t".into(),
        tweet: "What is the best thing that you have grown in your garden this year?".into(),
        reply:
            "The tomatoes on my balcony, which survived three storms and one curious neighbour cat."
                .into(),
        reply_likes: Some(40),
        reply_author: Some("ann".into()),
        tweet_likes: Some(500),
        tweet_retweets: Some(60),
        reply_retweets: Some(4),
        reply_author_followers: Some(2000),
        reply_time_diff_seconds: Some(900.0),
        line: 1,
        ..PairRecord::default()
    }
}

fn with(change: impl FnOnce(&mut PairRecord)) -> PairRecord {
    let mut pair = good();
    change(&mut pair);
    pair
}

fn run(plan: &CleaningPlan, pairs: Vec<PairRecord>) -> CleanedPairs {
    plan.run(pairs, &HashedNgrams::new(384)).unwrap()
}

fn filter() -> CleaningPlan {
    CleaningPlan { filter: Some(CollectionFilter::default()), ..CleaningPlan::default() }
}

fn validation() -> CleaningPlan {
    CleaningPlan { validation: Some(ValidationRules::default()), ..CleaningPlan::default() }
}

fn cleaning() -> CleaningPlan {
    CleaningPlan { cleaning: Some(CleaningRules::default()), ..CleaningPlan::default() }
}

/// Checks which rules a pair violates after `change`.
#[track_caller]
fn check(plan: &CleaningPlan, change: impl FnOnce(&mut PairRecord), expected: &[&str]) {
    let found = run(plan, vec![with(change)]);
    let reasons = found.rejected.iter().flat_map(|rejected| &rejected.reasons);
    let rules: Vec<&str> = reasons.map(|reason| reason.rule.as_str()).collect();
    assert_eq!(rules, expected);
}

#[test]
fn a_pair_is_collected_within_the_ranges() {
    let plan = filter();
    check(&plan, |_| {}, &[]);
    check(&plan, |pair| pair.tweet_likes = Some(99), &["tweet_likes"]);
    check(&plan, |pair| pair.tweet_likes = Some(100), &[]);
    check(&plan, |pair| pair.tweet_likes = Some(2000), &[]);
    check(&plan, |pair| pair.tweet_likes = Some(2001), &["tweet_likes"]);
    check(&plan, |pair| pair.reply_time_diff_seconds = Some(604_800.0), &[]);
    check(&plan, |pair| pair.tweet_retweets = Some(501), &["tweet_retweets"]);
    check(&plan, |pair| pair.reply_likes = Some(4), &["reply_likes"]);
    check(&plan, |pair| pair.reply_retweets = Some(51), &["reply_retweets"]);
    check(&plan, |pair| pair.reply_author_followers = Some(199), &["author_followers"]);
    check(&plan, |pair| pair.reply_time_diff_seconds = Some(299.0), &["seconds_after_tweet"]);
    check(&plan, |pair| pair.reply_time_diff_seconds = Some(604_801.0), &["seconds_after_tweet"]);
    check(&plan, |pair| pair.reply = "That is the one.".into(), &["length"]);
    check(&plan, |pair| pair.reply += " https://x.y", &["url"]);
    check(&plan, |pair| pair.tweet.insert_str(0, "RT @bob: "), &["retweet"]);
    check(&plan, |pair| drop(pair.fields.insert("is_quote".into(), true.into())), &["retweet"]);
    check(&plan, |pair| drop(pair.fields.insert("media".into(), json!(["a.png"]))), &["media"]);
    check(&plan, |pair| drop(pair.fields.insert("media".into(), json!([]))), &[]);
    check(&plan, |pair| pair.tweet = "Der Garten ist endlich wieder grün".into(), &["english"]);
}

#[test]
fn what_a_record_does_not_say_is_counted_and_not_held_against_it() {
    let bare = |pair: &mut PairRecord| {
        pair.tweet_retweets = None;
        pair.reply_retweets = None;
        pair.reply_author_followers = None;
        pair.reply_time_diff_seconds = None;
        pair.reply_author = None;
        (pair.reply_likes, pair.tweet_likes) = (None, None);
    };
    let unnamed = |pair: &mut PairRecord| {
        bare(pair);
        pair.reply_author = Some("unknown".into());
    };
    let found = run(&filter(), vec![with(bare), with(unnamed)]);
    assert_eq!(found.pairs, [with(bare), with(unnamed)]);
    let rules = [
        "author_followers",
        "replies_of_author",
        "reply_likes",
        "reply_retweets",
        "seconds_after_tweet",
        "tweet_likes",
        "tweet_retweets",
    ];
    assert_eq!(found.not_judged, rules.map(|rule| (rule, 2)).into());
    let found = run(&validation(), vec![with(bare)]);
    assert_eq!((found.pairs.len(), found.not_judged), (1, [("likes", 1), ("toxicity", 1)].into()));
}

/// Tables store true as 1. A value that cannot be interpreted is not treated as false.
#[test]
fn a_key_of_the_wrong_kind_speaks_against_a_pair() {
    let set = |key: &'static str, value: serde_json::Value| {
        move |pair: &mut PairRecord| drop(pair.fields.insert(key.into(), value))
    };
    let plan = filter();
    for (key, rule) in [("is_retweet", "retweet"), ("is_quote", "retweet"), ("has_media", "media")]
    {
        check(&plan, set(key, json!(1)), &[rule]);
        check(&plan, set(key, json!(0.0)), &[]);
        check(&plan, set(key, json!(null)), &[]);
        check(&plan, set(key, json!("true")), &["wrong_value"]);
        check(&plan, set(key, json!(2)), &["wrong_value"]);
    }
    check(&plan, set("media", json!("a.png")), &["wrong_value"]);
    check(&plan, set("lang", json!(1)), &["wrong_value"]);
    check(&validation(), set("lang", json!(1)), &["wrong_value"]);
    check(&validation(), set("lang", json!("de")), &["english"]);
    for toxicity in [json!("0.9"), json!(true), json!(1.5), json!(-1)] {
        check(&validation(), set("toxicity", toxicity), &["wrong_value"]);
    }
    let found = run(&validation(), vec![with(set("toxicity", json!("0.9")))]);
    let expected = "wrong_value (`toxicity` is the string \"0.9\"; expected a number from 0 to 1)";
    assert_eq!(found.rejected[0].reasons[0].to_string(), expected);
    assert!(found.not_judged.is_empty());
    // Keys that no rule uses can have any value.
    let mut all = filter();
    let rules = all.filter.as_mut().unwrap();
    (rules.english, rules.no_retweets, rules.no_media) = (false, false, false);
    check(&all, set("lang", json!(1)), &[]);
    check(&all, set("is_quote", json!("?")), &[]);
}

#[test]
fn an_author_has_ten_replies_of_those_that_are_collected() {
    let mut pairs: Vec<PairRecord> = (0..12).map(|_| good()).collect();
    pairs[0].reply_likes = Some(0);
    let found = run(&filter(), pairs);
    assert_eq!(found.pairs.len(), 10);
    let report = found.report();
    assert_eq!((report.total, report.valid, report.invalid), (12, 10, 2));
    assert!((report.valid_percentage - 1000.0 / 12.0).abs() < 1e-12);
    let expected = [("replies_of_author", 1), ("reply_likes", 1)];
    let expected: BTreeMap<String, u64> = expected.map(|(rule, n)| (rule.to_owned(), n)).into();
    assert_eq!(report.rejection_reasons, expected);
}

#[test]
fn a_reply_is_held_against_every_rule() {
    let plan = validation();
    check(&plan, |_| {}, &[]);
    check(&plan, |pair| pair.reply_likes = Some(2), &["likes"]);
    check(&plan, |pair| pair.reply += " #a #b #c", &[]);
    check(&plan, |pair| pair.reply += " #a #b #c #d", &["hashtags"]);
    check(&plan, |pair| pair.reply += " www.example.org", &["url"]);
    check(&plan, |pair| pair.reply = pair.reply.to_uppercase(), &["spam"]);
    check(&plan, |pair| pair.reply += "!?!?!?!?!?", &["spam"]);
    check(&plan, |pair| pair.reply += " 🎉🎉🎉🎉🍅", &[]);
    check(&plan, |pair| pair.reply += " 🎉🎉🎉🎉🍅🍅", &["spam"]);
    check(&plan, |pair| pair.reply += " sooooo", &["spam"]);
    check(&plan, |pair| pair.reply += " soooo", &[]);
    check(&plan, |pair| drop(pair.fields.insert("toxicity".into(), 0.31.into())), &["toxicity"]);
    check(&plan, |pair| drop(pair.fields.insert("toxicity".into(), 0.3.into())), &[]);
    check(
        &plan,
        |pair| pair.reply = "The one that the cat and the dog were in".into(),
        &["content_words"],
    );
    check(&plan, |pair| pair.reply += " I agree", &["generic"]);
    // One generic phrase in more than 200 characters: 1 / 2.01 does not exceed 0.5.
    let long = "with green leaves and quiet bees over old walls near small rivers behind tall houses under late summer clouds";
    check(&plan, |pair| pair.reply = format!("{} {long} I agree", pair.reply), &[]);
    check(&plan, |pair| pair.reply = "ok".into(), &["length", "content_words"]);
    let found = run(&plan, vec![good()]);
    assert_eq!(found.not_judged, [("toxicity", 1)].into());
}

/// Regression test: the original implementation matched substrings, e.g. "gm" in "segment", "eth"
/// in "method" and "token" in "tokens".
#[test]
fn unwanted_words_are_whole_words() {
    let plan = validation();
    check(&plan, |pair| pair.reply += " A segment of the method by Seth.", &[]);
    check(&plan, |pair| pair.reply += " GM!", &["unwanted_word"]);
    check(&plan, |pair| pair.reply += " Buy eth now", &["unwanted_word"]);
    check(&plan, |pair| pair.reply += " #Bitcoin", &["unwanted_word"]);
}

#[test]
fn replies_are_cleaned() {
    for (reply, expected) in [
        ("sooo good!!!", "soo good!!"),
        ("  two\n\nlines \t here ", "two lines here"),
        ("1000 and 22222", "1000 and 22222"),
        ("#SoftRain today", "Soft Rain today"),
        ("(#AISafetyNow).", "(AI Safety Now)."),
        ("#rain #RAIN c#Sharp", "#rain #RAIN c#Sharp"),
        ("#one#TwoThree", "#one#TwoThree"),
        ("é#", "é#"),
        ("", ""),
    ] {
        assert_eq!(clean_reply(reply), expected);
        assert_eq!(clean_reply(expected), expected, "once is enough");
    }
}

/// Expected values from 0.6 (likes + 2 retweets) + 20 min(followers / 10,000, 1) + 10 timing.
#[test]
fn the_quality_is_the_formula() {
    let check = |seconds: Option<f64>, followers: Option<u64>, expected: f64| {
        let found = quality(&with(|pair| {
            (pair.reply_time_diff_seconds, pair.reply_author_followers) = (seconds, followers);
        }));
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    };
    let likes = 0.6 * 48.0;
    check(Some(300.0), Some(2000), likes + 4.0 + 10.0);
    check(Some(7200.0), Some(50_000), likes + 20.0 + 10.0);
    check(Some(299.0), Some(0), likes + 5.0);
    check(Some(7201.0), None, likes + 7.0);
    check(None, None, likes);
}

#[test]
fn keeps_the_best_liked_duplicate_and_sorts_by_quality() {
    let pair = |line, likes, reply: &str| {
        with(|pair| {
            (pair.line, pair.reply_likes) = (line, Some(likes));
            pair.reply = reply.to_owned();
        })
    };
    let pairs = vec![
        pair(1, 3, "My tomatoes survived the storm last night, against all odds"),
        pair(2, 9, "A   quiet morning with coffee beats every alarm clock"),
        pair(3, 9, "A quiet morning  with coffee beats every alarm clock"),
        pair(4, 30, "My tomatoes survived the storm last night, against all odds!!!!"),
        pair(5, 5, "My tomatoes survived the storm last night against all the odds"),
        pair(6, 8, "Which train do you take to the office on Mondays then"),
    ];
    let found = run(&cleaning(), pairs.clone());
    let lines: Vec<u64> = found.pairs.iter().map(|pair| pair.line).collect();
    assert_eq!(lines, [4, 2, 6]);
    assert_eq!(found.pairs[1].reply, "A quiet morning with coffee beats every alarm clock");
    let gone: BTreeMap<u64, (&str, &str)> = found
        .rejected
        .iter()
        .map(|gone| {
            (gone.pair.line, (gone.reasons[0].rule.as_str(), gone.reasons[0].found.as_str()))
        })
        .collect();
    assert_eq!(gone[&3], ("duplicate", ":2"));
    assert_eq!(gone[&1], ("semantic_duplicate", ":4, cosine 1.000"));
    assert_eq!(gone[&5].0, "semantic_duplicate");
    assert_eq!(gone.len(), 3);
    let repeated = found.rejected.iter().find(|gone| gone.pair.line == 3).unwrap();
    assert_eq!(repeated.pair, pairs[2], "a dropped pair is kept as it was read");

    let rules = CleaningRules { max_cosine: 1.0, sort: false, texts: false };
    let plan = CleaningPlan { cleaning: Some(rules), ..CleaningPlan::default() };
    let found = run(&plan, pairs.clone());
    assert_eq!(found.pairs, pairs, "nothing but equal texts go, and there are none");
}

/// Compares the result with a brute-force search over all pairs.
#[test]
fn near_replies_are_those_of_plain_loops() {
    let words = ["rain", "coffee", "train", "garden", "quiet", "window", "neighbour", "bread"];
    let mut state = 11_usize;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let mut pair = |line: u64| {
        let reply: Vec<&str> = (0..3 + next(3)).map(|_| words[next(words.len())]).collect();
        with(|pair| {
            pair.reply = format!("{} {}", reply.join(" "), line % 5);
            (pair.line, pair.reply_likes) = (line, Some(next(20) as u64));
        })
    };
    let pairs: Vec<PairRecord> = (0..150).map(&mut pair).collect();
    let embedder = HashedNgrams::new(384);
    for max_cosine in [0.6, 0.8, 0.9] {
        let mut order: Vec<&PairRecord> = pairs.iter().collect();
        order.sort_by_key(|pair| std::cmp::Reverse(pair.reply_likes));
        let mut kept: Vec<(&str, Vec<f32>)> = Vec::new();
        let mut lines = Vec::new();
        for pair in order {
            let vector = embedder.embed(&[&pair.reply]).unwrap().remove(0);
            let near = |(reply, other): &(&str, Vec<f32>)| {
                *reply == pair.reply || cosine(&vector, other) > max_cosine
            };
            if !kept.iter().any(near) {
                kept.push((&pair.reply, vector));
                lines.push(pair.line);
            }
        }
        lines.sort_unstable();
        assert!(lines.len() > 5 && lines.len() < 140, "{}", lines.len());
        let rules = CleaningRules { max_cosine, sort: false, texts: false };
        let plan = CleaningPlan { cleaning: Some(rules), ..CleaningPlan::default() };
        let found = plan.run(pairs.clone(), &embedder).unwrap();
        let found: Vec<u64> = found.pairs.iter().map(|pair| pair.line).collect();
        assert_eq!(found, lines, "{max_cosine}");
    }
}

#[test]
fn all_steps_one_after_another_lose_nothing() {
    let pairs = vec![
        good(),
        with(|pair| pair.tweet_likes = Some(1)),
        with(|pair| pair.reply += " gm"),
        good(),
    ];
    let found = run(&CleaningPlan::all(), pairs);
    let steps: Vec<&str> = found.rejected.iter().map(|gone| gone.step).collect();
    assert_eq!(steps, ["filter", "validation", "cleaning"]);
    assert_eq!(found.pairs.len(), 1);
}

#[test]
fn settings_out_of_range_are_refused() {
    let check = |plan: CleaningPlan, expected: &str| {
        assert_eq!(plan.check().unwrap_err().to_string(), expected);
    };
    let mut plan = CleaningPlan::all();
    plan.filter.as_mut().unwrap().tweet_likes = [5, 4];
    check(plan, "`filter.tweet_likes` is [5, 4]; expected the minimum before the maximum");
    let mut plan = CleaningPlan::all();
    plan.validation.as_mut().unwrap().max_toxicity = 1.5;
    check(plan, "`validation.max_toxicity` is 1.5; expected 0 to 1");
    let mut plan = CleaningPlan::all();
    plan.validation.as_mut().unwrap().repeated_from = 1;
    check(plan, "`validation.repeated_from` is 1; expected 2 or more");
    let mut plan = CleaningPlan::all();
    plan.cleaning.as_mut().unwrap().max_cosine = f64::NAN;
    check(plan, "`cleaning.max_cosine` is NaN; expected a number above 0 and at most 1");
}
