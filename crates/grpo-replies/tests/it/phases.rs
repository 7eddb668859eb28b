//! Tests for splitting pairs into phases and parts.

use std::collections::{BTreeMap, BTreeSet};

use grpo_data::statistics::Spread;
use grpo_data::{Quartiles, SplitFractions};
use grpo_replies::{PairFile, PairRecord, PhaseStatistics, split_by_tweet, split_phases};
use proptest::prelude::*;
use serde_json::json;

use crate::pairs::read;

/// Expected values from `numpy.percentile` for 3, 1, 4, 1, 5, 9, 2, 6.
#[test]
fn quartiles_are_interpolated_and_a_value_on_a_boundary_is_below_it() {
    let quartiles = Quartiles::new(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]);
    assert_eq!(quartiles.boundaries, [1.75, 3.5, 5.25]);
    let strata = [1.75, 1.76, 3.5, 5.25, 5.26].map(|value| quartiles.stratum(value));
    assert_eq!(strata, [0, 1, 1, 2, 3]);
}

#[test]
fn equal_edges_are_merged_where_asked() {
    let mostly_zero = vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0];
    assert_eq!(Quartiles::new(&mostly_zero).boundaries, [0.0, 0.0, 1.0]);
    // `pandas.qcut(…, 4, duplicates="drop")` also creates two classes, up to 1 and above 1.
    assert_eq!(Quartiles::merged(&mostly_zero).boundaries, [1.0]);
    assert_eq!(Quartiles::merged(&[2.0; 5]).strata(), 1);
}

/// Generates tweets with 2 to 5 replies each. Many replies have the same number of likes.
fn pairs(tweets: usize, seed: u64) -> Vec<PairRecord> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let mut pairs = Vec::new();
    for tweet in 0..tweets {
        let tweet_likes = 100 + next(20) * 50;
        for reply in 0..2 + next(4) {
            pairs.push(PairRecord {
                tweet_id: format!("t{tweet}"),
                tweet: format!("tweet {tweet}"),
                reply: format!("{tweet} {reply}{}", ".".repeat(next(80) as usize)),
                reply_likes: Some([0, 0, 5, 5, 5, 10, 20, 20, 50, 400][next(10) as usize]),
                reply_author: Some(format!("a{}", next(50))),
                tweet_likes: Some(tweet_likes),
                line: pairs.len() as u64 + 1,
                ..PairRecord::default()
            });
        }
    }
    pairs
}

/// Returns the tweets of the pairs at these indices.
fn tweets<'a>(pairs: &'a [PairRecord], places: &[usize]) -> BTreeSet<&'a str> {
    places.iter().map(|place| pairs[*place].tweet_id.as_str()).collect()
}

/// Returns the fraction of each class among these indices.
fn shares(classes: &[usize], places: &[usize]) -> BTreeMap<usize, f64> {
    let mut shares = BTreeMap::new();
    for place in places {
        *shares.entry(classes[*place]).or_insert(0.0) += 1.0 / places.len() as f64;
    }
    shares
}

/// Returns the maximum difference between the class fractions in a subset and in the complete set.
fn most_apart(classes: &[usize], places: &[usize]) -> f64 {
    let all: Vec<usize> = (0..classes.len()).collect();
    let (all, some) = (shares(classes, &all), shares(classes, places));
    all.iter().map(|(class, all)| (all - some.get(class).unwrap_or(&0.0)).abs()).fold(0.0, f64::max)
}

/// A reference implementation of the quartile classes. A value equal to a boundary belongs to the
/// class below it.
fn classes(values: &[f64]) -> Vec<usize> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let boundary = |quarter: usize| {
        let place = quarter as f64 * 0.25 * (sorted.len() as f64 - 1.0);
        let (low, part) = (place as usize, place.fract());
        sorted[low] * (1.0 - part) + sorted[(low + 1).min(sorted.len() - 1)] * part
    };
    let boundaries = [1, 2, 3].map(boundary);
    values.iter().map(|value| boundaries.iter().filter(|edge| value > edge).count()).collect()
}

/// Checks the requirements of the original issue on data similar to the bundled file.
#[test]
fn phases_have_whole_tweets_and_the_shares_of_all() {
    for (seed, ratio) in [(1, 0.5), (2, 0.5), (3, 0.7), (4, 0.25)] {
        let pairs = pairs(420, seed);
        let split = split_phases(&pairs, ratio, 0.0, 42).unwrap();
        let [one, other] = [&split.phase1, &split.phase2].map(|places| tweets(&pairs, places));
        assert!(one.is_disjoint(&other));
        assert_eq!(split.phase1.len() + split.phase2.len(), pairs.len());
        let share = split.phase1.len() as f64 / pairs.len() as f64;
        assert!((share - ratio).abs() < 0.01, "{share} {ratio}");
        let scores: Vec<f64> = pairs.iter().map(PairRecord::engagement).collect();
        let classes = classes(&scores);
        for places in [&split.phase1, &split.phase2] {
            assert!(most_apart(&classes, places) < 0.02, "{}", most_apart(&classes, places));
        }
    }
}

#[test]
fn a_split_depends_on_its_seed_and_not_on_chance() {
    let pairs = pairs(60, 5);
    let split = |seed| split_phases(&pairs, 0.5, 0.0, seed).unwrap();
    assert_eq!(split(1), split(1));
    let distinct: BTreeSet<Vec<usize>> = (0..5).map(|seed| split(seed).phase1).collect();
    assert_eq!(distinct.len(), 5);
}

#[test]
fn the_same_tweet_under_two_ids_stays_on_one_side() {
    let mut pairs = pairs(40, 6);
    for pair in &mut pairs {
        let number: usize = pair.tweet_id[1..].parse().unwrap();
        pair.tweet = format!("text {}", number / 2);
    }
    let split = split_phases(&pairs, 0.5, 0.0, 42).unwrap();
    let texts = |places: &[usize]| -> BTreeSet<String> {
        places.iter().map(|place| pairs[*place].tweet.clone()).collect()
    };
    assert!(texts(&split.phase1).is_disjoint(&texts(&split.phase2)));
}

#[test]
fn test_pairs_share_no_tweet_with_a_phase() {
    let pairs = pairs(60, 6);
    let split = split_phases(&pairs, 0.5, 0.2, 42).unwrap();
    let [phase1, phase2, test] = [&split.phase1, &split.phase2, &split.test];
    assert_eq!(phase1.len() + phase2.len() + test.len(), pairs.len());
    for (one, other) in [(phase1, phase2), (phase1, test), (phase2, test)] {
        assert!(tweets(&pairs, one).is_disjoint(&tweets(&pairs, other)));
    }
    let share = |places: &[usize]| places.len() as f64 / pairs.len() as f64;
    for (places, expected) in [(phase1, 0.4), (phase2, 0.4), (test, 0.2)] {
        assert!((share(places) - expected).abs() < 0.05, "{} and not {expected}", share(places));
    }
    // Holding out nothing changes nothing.
    assert!(split_phases(&pairs, 0.5, 0.0, 42).unwrap().test.is_empty());
    for wrong in [-0.1, 1.0, f64::NAN] {
        let error = split_phases(&pairs, 0.5, wrong, 1).unwrap_err().to_string();
        assert!(error.starts_with("`test-fraction` is "), "{error}");
    }
}

#[test]
fn refuses_an_impossible_split() {
    let two = pairs(2, 1);
    let split = split_phases(&two, 0.999, 0.0, 1).unwrap();
    assert!(!split.phase1.is_empty() && !split.phase2.is_empty());
    // Tweets with different ids but the same text are considered equal.
    let mut one = pairs(2, 1);
    one.iter_mut().for_each(|pair| pair.tweet = "the same".to_owned());
    let expected = "cannot split 1 distinct tweet into 2 parts, because all replies to a tweet stay together; use at least 2 tweets";
    assert_eq!(split_phases(&one, 0.5, 0.0, 1).unwrap_err().to_string(), expected);
    let none = split_phases(&[], 0.5, 0.0, 1).unwrap_err().to_string();
    assert!(none.starts_with("cannot split 0 distinct tweets into 2 parts"));
    let none = split_by_tweet(&[], &SplitFractions::default(), 1).unwrap_err().to_string();
    assert!(none.starts_with("cannot split 0 distinct tweets into 3 parts"));
    for ratio in [0.0, 1.0, -1.0, f64::NAN] {
        let error = split_phases(&two, ratio, 0.0, 1).unwrap_err().to_string();
        assert!(error.starts_with("`split-ratio` is "), "{error}");
    }
}

/// Regression test: the original implementation computed quartiles for each phase separately, so
/// each phase always had a quarter of its pairs in every quartile and the check could not fail.
#[test]
fn phases_that_differ_are_seen_to_differ() {
    let mut pairs = pairs(100, 7);
    pairs.sort_by(|a, b| a.engagement().total_cmp(&b.engagement()));
    let (low, high) = pairs.split_at(pairs.len() / 2);
    let refs = |pairs: &'static [PairRecord]| pairs.iter().collect::<Vec<_>>();
    let low: &'static [PairRecord] = Box::leak(low.to_vec().into());
    let high: &'static [PairRecord] = Box::leak(high.to_vec().into());
    let found = PhaseStatistics::new(&refs(low), &refs(high), &[]);
    assert!(!found.quartiles.alike && found.quartiles.max_difference > 0.2);
    assert!(found.chi_square.unwrap().p_value < 1e-6);
    assert!(found.kolmogorov_smirnov.unwrap().p_value < 1e-6);
    let even: Vec<&PairRecord> = pairs.iter().step_by(2).collect();
    let odd: Vec<&PairRecord> = pairs.iter().skip(1).step_by(2).collect();
    let found = PhaseStatistics::new(&even, &odd, &[]);
    assert!(found.quartiles.alike);
    assert!(found.chi_square.unwrap().p_value > 0.5);
    assert!(found.kolmogorov_smirnov.unwrap().p_value > 0.5);
}

#[test]
fn statistics_are_those_of_plain_loops() {
    let pair = |likes, reply: &str| PairRecord {
        tweet_id: format!("t{likes}"),
        reply: reply.to_owned(),
        reply_likes: Some(likes),
        tweet_likes: Some(10),
        ..PairRecord::default()
    };
    let (one, other) = ([pair(1, "é!"), pair(2, "abc"), pair(6, "abcdef")], [pair(2, "x")]);
    let refs = |pairs: &'static [PairRecord]| pairs.iter().collect::<Vec<_>>();
    let found = PhaseStatistics::new(
        &refs(Box::leak(one.to_vec().into())),
        &refs(Box::leak(other.to_vec().into())),
        &[],
    );
    // For 0.1, 0.2, 0.6, the mean is 0.3 and the variance is (0.04 + 0.01 + 0.09) / 3.
    let Spread { mean, std, median, min, max } = found.phase1.engagement;
    assert!((mean - 0.3).abs() < 1e-15 && (std - (0.14_f64 / 3.0).sqrt()).abs() < 1e-15);
    assert_eq!((median, min, max), (0.2, 0.1, 0.6));
    assert_eq!(
        found.phase1.length,
        Spread { std: found.phase1.length.std, mean: 11.0 / 3.0, median: 3.0, min: 2.0, max: 6.0 }
    );
    assert_eq!((found.phase1.count, found.phase2.count, found.phase1.tweets), (3, 1, 3));
    // The scores are 0.1, 0.2, 0.2, 0.6. Because of the tie, one of the quartiles is empty.
    assert_eq!(found.quartiles.counts, [1, 2, 0, 1]);
    // Boundaries are computed from all scores, not from the scores of one phase.
    let boundaries = found.quartiles.boundaries.iter().zip([0.175, 0.2, 0.3]);
    assert!(boundaries.into_iter().all(|(found, expected)| (found - expected).abs() < 1e-12));
}

/// If no reply has likes, all scores are equal. There is only one quartile and no chi-square test.
#[test]
fn scores_that_are_all_equal_are_one_quartile() {
    let mut pairs = pairs(60, 9);
    pairs.iter_mut().for_each(|pair| pair.reply_likes = Some(0));
    let split = split_phases(&pairs, 0.5, 0.0, 1).unwrap();
    let of = |places: &[usize]| places.iter().map(|at| &pairs[*at]).collect::<Vec<_>>();
    let found = PhaseStatistics::new(&of(&split.phase1), &of(&split.phase2), &[]);
    let all = pairs.len() as u64;
    assert_eq!(found.quartiles.boundaries, [0.0; 3]);
    assert_eq!(found.quartiles.counts, [all, 0, 0, 0]);
    assert!(found.quartiles.alike && found.chi_square.is_none());
    assert!((split.phase1.len() as f64 / all as f64 - 0.5).abs() < 0.02);
    assert!(tweets(&pairs, &split.phase1).is_disjoint(&tweets(&pairs, &split.phase2)));

    // Most scores are equal: three of the four boundaries are the same, and both phases have
    // replies with likes.
    for pair in pairs.iter_mut().step_by(8) {
        pair.reply_likes = Some(100);
    }
    let liked = pairs.iter().filter(|pair| pair.reply_likes() > 0).count() as u64;
    let split = split_phases(&pairs, 0.5, 0.0, 1).unwrap();
    let of = |places: &[usize]| places.iter().map(|at| &pairs[*at]).collect::<Vec<_>>();
    let found = PhaseStatistics::new(&of(&split.phase1), &of(&split.phase2), &[]);
    assert_eq!(found.quartiles.counts, [all - liked, 0, 0, liked]);
    assert!(found.quartiles.alike && found.chi_square.is_some());
}

/// Most replies have no likes, so quartiles cannot have equal sizes. The actual sizes are reported.
#[test]
fn tied_scores_share_a_quartile_of_reported_size() {
    let statistics = |liked: u64| {
        let record = |place: u64| {
            let likes = if place < liked { 1 + place } else { 0 };
            json!({"tweet_id": place, "tweet": format!("x{place}"), "reply": "y", "tweet_likes": 1000, "reply_likes": likes})
        };
        let lines: String = (0..100).map(|place| format!("{}\n", record(place))).collect();
        let PairFile { pairs, .. } = read(lines);
        let split = split_phases(&pairs, 0.5, 0.0, 1).unwrap();
        let of = |places: &[usize]| places.iter().map(|place| &pairs[*place]).collect::<Vec<_>>();
        PhaseStatistics::new(&of(&split.phase1), &of(&split.phase2), &[])
    };
    let most = statistics(20);
    assert_eq!(most.quartiles.boundaries, [0.0; 3]);
    assert_eq!(most.quartiles.counts, [80, 0, 0, 20]);
    assert_eq!(most.phase1.quartiles, [40, 0, 0, 10]);
    assert_eq!(most.phase2.quartiles, [40, 0, 0, 10]);
    assert!(most.chi_square.is_some() && most.quartiles.alike);

    let all = statistics(0);
    assert_eq!(all.quartiles.counts, [100, 0, 0, 0]);
    assert_eq!((all.phase1.count, all.phase2.count), (50, 50));
    // A single class cannot be tested.
    assert_eq!(all.chi_square, None);
    assert!(all.quartiles.alike);
}

#[test]
fn three_parts_share_no_tweet_and_are_alike() {
    let pairs = pairs(420, 8);
    let split = split_by_tweet(&pairs, &SplitFractions::default(), 42).unwrap();
    let parts = [&split.train, &split.validation, &split.test];
    let ids = parts.map(|places| tweets(&pairs, places));
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(ids[one].is_disjoint(&ids[other]));
    }
    let all: BTreeSet<usize> = parts.iter().flat_map(|places| places.iter().copied()).collect();
    assert_eq!(all.len(), pairs.len());
    let likes: Vec<f64> = pairs.iter().map(|pair| pair.reply_likes() as f64).collect();
    let classes = classes(&likes);
    for (places, fraction) in parts.into_iter().zip([0.8, 0.1, 0.1]) {
        assert!((places.len() as f64 / pairs.len() as f64 - fraction).abs() < 0.01);
        assert!(most_apart(&classes, places) < 0.02);
    }
    let none = SplitFractions { train: 0.9, validation: 0.1, test: 0.0 };
    assert!(split_by_tweet(&pairs, &none, 42).unwrap().test.is_empty());
}

#[test]
fn fractions_make_up_the_whole() {
    let check = |train, validation, test, expected: Option<&str>| {
        let fractions = SplitFractions { train, validation, test };
        let found = fractions.check().err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), expected);
    };
    check(0.9, 0.1, 0.0, None);
    check(0.9, 0.1, 5e-7, None);
    check(0.9, 0.1, 1e-5, Some("`train + validation + test` is 1.00001; expected 1"));
    check(1.2, -0.2, 0.0, Some("`train` is 1.2; expected a fraction from 0 to 1"));
    check(0.0, 0.5, 0.5, Some("`train` is 0; expected above 0, because training requires records"));
    check(f64::NAN, 0.5, 0.5, Some("`train` is NaN; expected a fraction from 0 to 1"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_pair_is_in_one_part_and_no_tweet_in_two(
        tweets in prop::collection::vec((0_usize..12, 0_u64..4), 3..40), seed: u64, part in 0.05..0.9,
    ) {
        let pair = |(place, (tweet, likes)): (usize, &(usize, u64))| PairRecord {
            tweet_id: tweet.to_string(),
            tweet: format!("tweet {tweet}"),
            reply: place.to_string(),
            reply_likes: Some(*likes),
            ..PairRecord::default()
        };
        let pairs: Vec<PairRecord> = tweets.iter().enumerate().map(pair).collect();
        let ids: BTreeSet<_> = tweets.iter().map(|(tweet, _)| *tweet).collect();
        let rest = 1.0 - part;
        let fractions = SplitFractions { train: part, validation: 0.5 * rest, test: 0.5 * rest };
        let split = split_by_tweet(&pairs, &fractions, seed);
        if ids.len() < 3 {
            prop_assert!(split.is_err());
            return Ok(());
        }
        let split = split.unwrap();
        let parts = [&split.train, &split.validation, &split.test];
        let mut all: Vec<usize> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..pairs.len()).collect::<Vec<_>>());
        let found: Vec<BTreeSet<&str>> = parts.iter().map(|part| self::tweets(&pairs, part)).collect();
        prop_assert!(found.iter().all(|ids| !ids.is_empty()));
        prop_assert_eq!(found.iter().map(BTreeSet::len).sum::<usize>(), ids.len());
    }
}
