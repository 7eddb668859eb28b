//! Compares sampling with independent loops that follow the definition of the distribution.

use burn::tensor::{Tensor, TensorData};
use grpo_data::TokenSet;
use grpo_logprob::SamplingSettings;
use grpo_logprob::{Draw, NotFinite, draw, draw_rows};
use proptest::prelude::*;

use crate::device;

/// Returns the probability of each id according to the definition. Returns `None` if a threshold is
/// met up to rounding, in which case both results are acceptable.
fn oracle(logits: &[f32], seen: &[u32], settings: &SamplingSettings) -> Option<Vec<f64>> {
    let ids = 0..logits.len();
    let mut z: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
    if let Some(penalty) = settings.repetition_penalty {
        for id in ids.clone().filter(|&id| seen.contains(&(id as u32))) {
            let factor = if z[id] > 0.0 { 1.0 / f64::from(penalty) } else { f64::from(penalty) };
            z[id] *= factor;
        }
    }
    let forbidden = |id: usize| settings.forbidden.contains(&(id as u32));
    let mut p: Vec<f64> = ids
        .clone()
        .map(|id| if forbidden(id) { 0.0 } else { (z[id] / f64::from(settings.temperature)).exp() })
        .collect();
    // Probabilities of the ids that rank before an id.
    let ahead = |p: &[f64], id: usize| -> Vec<f64> {
        let wins = |other: usize| p[other] > p[id] || (p[other] == p[id] && other < id);
        ids.clone().filter(|&other| p[other] > 0.0 && wins(other)).map(|other| p[other]).collect()
    };
    if let Some(k) = settings.top_k {
        let cut = |id: usize| ahead(&p, id).len() >= k;
        p = ids.clone().map(|id| if cut(id) { 0.0 } else { p[id] }).collect();
    }
    let normalise = |p: &mut Vec<f64>| {
        let total: f64 = p.iter().sum();
        p.iter_mut().for_each(|p| *p /= total);
    };
    normalise(&mut p);
    let mut borderline = false;
    let mut reaches = |value: f64, bound: f64| {
        borderline |= (value - bound).abs() < 1e-9;
        value >= bound
    };
    if let Some(top_p) = settings.top_p.filter(|&top_p| top_p < 1.0) {
        let sums: Vec<f64> = ids.clone().map(|id| ahead(&p, id).iter().sum()).collect();
        for id in ids.clone() {
            if reaches(sums[id], f64::from(top_p)) {
                p[id] = 0.0;
            }
        }
    }
    normalise(&mut p);
    if let Some(min_p) = settings.min_p {
        let largest = p.iter().copied().fold(0.0, f64::max);
        for id in ids {
            if p[id] > 0.0 && !reaches(p[id], f64::from(min_p) * largest) {
                p[id] = 0.0;
            }
        }
    }
    normalise(&mut p);
    (!borderline).then_some(p)
}

fn drawn(logits: &[f32], seen: &[u32], settings: &SamplingSettings, uniform: f64) -> Draw {
    let distribution = settings.clone().checked(logits.len()).unwrap();
    draw(logits, seen, &distribution, uniform).unwrap()
}

fn set(ids: &[u32], vocabulary: usize) -> TokenSet {
    TokenSet::from_sorted(ids, vocabulary).unwrap()
}

/// Checks that each id covers an interval of [0, 1) as long as its probability, and that the kept
/// set contains exactly the ids with nonzero probability.
#[track_caller]
fn check(logits: &[f32], seen: &[u32], settings: &SamplingSettings, probabilities: &[f64]) {
    let possible: Vec<u32> =
        (0..logits.len() as u32).filter(|&id| probabilities[id as usize] > 0.0).collect();
    let distribution = settings.clone().checked(logits.len()).unwrap();
    let kept = distribution.is_truncated().then(|| set(&possible, logits.len()));
    let mut cumulative = 0.0;
    for id in possible {
        let probability = probabilities[id as usize];
        for inside in [1e-3, 0.5, 1.0 - 1e-3] {
            // Intervals smaller than the rounding error cannot be tested.
            if probability > 1e-10 {
                let uniform = cumulative + inside * probability;
                let drawn = draw(logits, seen, &distribution, uniform).unwrap();
                assert_eq!(drawn.id, id, "at {uniform} for {settings:?}");
                assert_eq!(drawn.kept, kept, "for {settings:?}");
                let (found, expected) = (f64::from(drawn.logprob), probability.ln());
                let difference = (found - expected).abs();
                assert!(difference < 1e-6 * (1.0 - expected), "{found} for {expected}");
            }
        }
        cumulative += probability;
    }
    assert!((cumulative - 1.0).abs() < 1e-9);
}

const LOGITS: [f32; 5] = [0.3, -1.0, 2.0, 0.3, 1.1];

fn cold() -> SamplingSettings {
    SamplingSettings { temperature: 0.7, ..SamplingSettings::default() }
}

/// Checks which ids can be sampled from `logits`.
#[track_caller]
fn check_kept(logits: &[f32], settings: SamplingSettings, expected: &[u32]) {
    let kept = drawn(logits, &[], &settings, 0.5).kept.unwrap();
    assert_eq!(kept.iter().collect::<Vec<u32>>(), expected, "for {settings:?}");
    assert_eq!(kept.vocabulary(), logits.len());
}

#[test]
fn each_token_owns_its_share_of_the_unit_interval() {
    for settings in [
        cold(),
        SamplingSettings { forbidden: vec![2, 0], ..cold() },
        SamplingSettings { top_k: Some(3), ..cold() },
        SamplingSettings { top_k: Some(2), forbidden: vec![2], ..cold() },
        SamplingSettings { top_p: Some(0.9), ..cold() },
        SamplingSettings { min_p: Some(0.1), ..cold() },
        SamplingSettings { repetition_penalty: Some(1.3), ..cold() },
    ] {
        let seen = [1, 4, 4];
        check(&LOGITS, &seen, &settings, &oracle(&LOGITS, &seen, &settings).unwrap());
    }
}

#[test]
fn top_k_keeps_the_lower_of_equal_ids() {
    let top_k = |k| SamplingSettings { top_k: Some(k), ..cold() };
    check_kept(&LOGITS, top_k(1), &[2]);
    check_kept(&LOGITS, top_k(3), &[0, 2, 4]);
    check_kept(&[0.0, -0.0, 0.0, -0.0], top_k(2), &[0, 1]);
    check_kept(&[-0.0, 0.0, -1.0, 0.0], top_k(2), &[0, 1]);
    let forbidden = SamplingSettings { forbidden: vec![2], ..top_k(2) };
    check_kept(&LOGITS, forbidden, &[0, 4]);
    // k exceeds the number of ids.
    let three = SamplingSettings { forbidden: vec![2, 3], ..top_k(4) };
    check_kept(&LOGITS, three, &[0, 1, 4]);
}

#[test]
fn top_p_keeps_the_lower_of_equal_ids_and_as_few_as_reach_it() {
    let top_p = |p| SamplingSettings { top_p: Some(p), ..SamplingSettings::default() };
    // The probabilities are quarters, so all sums are exact. Reaching p is sufficient.
    check_kept(&[1.0; 4], top_p(0.5), &[0, 1]);
    check_kept(&[1.0; 4], top_p(0.500_001), &[0, 1, 2]);
    check_kept(&[1.0; 4], top_p(0.999_999), &[0, 1, 2, 3]);
    // At least one id is kept, no matter how small p is.
    check_kept(&[1.0; 4], top_p(1e-30), &[0]);
    check_kept(&[1.0, 1.0, 1.0, 60.0], top_p(0.999), &[3]);
    // The probabilities are relative to the two ids kept by top-k.
    check_kept(&[0.0, 1.0, 1.0, 0.0], SamplingSettings { top_k: Some(2), ..top_p(0.5) }, &[1]);
    // Forbidden ids are excluded first.
    check_kept(&[9.0, 1.0, 1.0], SamplingSettings { forbidden: vec![0], ..top_p(0.5) }, &[1]);
}

#[test]
fn min_p_is_a_part_of_the_largest() {
    let min_p = |p| SamplingSettings { min_p: Some(p), ..SamplingSettings::default() };
    let logits = [0.5_f64, 0.3, 0.15, 0.05].map(|p| p.ln() as f32);
    check_kept(&logits, min_p(0.61), &[0]);
    check_kept(&logits, min_p(0.59), &[0, 1]);
    check_kept(&logits, min_p(0.11), &[0, 1, 2]);
    check_kept(&logits, min_p(1e-6), &[0, 1, 2, 3]);
    // Ids with equal probability are all kept.
    check_kept(&[2.0, 2.0, 0.0], min_p(0.999_999), &[0, 1]);
    // The threshold applies after the temperature.
    check_kept(&logits, SamplingSettings { temperature: 3.0, ..min_p(0.61) }, &[0, 1, 2]);
}

#[test]
fn a_seen_token_is_penalised_once_and_by_its_sign() {
    let settings = SamplingSettings { repetition_penalty: Some(2.0), ..Default::default() };
    let (logits, seen) = ([2.0, -2.0, 0.0, 2.0, -2.0], [1, 0, 1, 0, 2, 1]);
    let alone = SamplingSettings::default();
    let expected = oracle(&[1.0, -4.0, 0.0, 2.0, -2.0], &[], &alone).unwrap();
    check(&logits, &seen, &settings, &expected);
    // Without a penalty, the previous tokens have no effect.
    assert_eq!(drawn(&logits, &seen, &alone, 0.4), drawn(&logits, &[], &alone, 0.4));
    // Ids are ranked after the penalty is applied.
    let first = SamplingSettings { top_k: Some(2), ..settings };
    let kept = drawn(&[2.0, -2.0, 0.0, 1.5, 1.2], &[0], &first, 0.5).kept;
    assert_eq!(kept, Some(set(&[3, 4], 5)));
}

#[test]
fn the_end_of_the_interval_is_the_last_possible_token() {
    let below_one = 1.0 - f64::EPSILON / 2.0;
    let logits = [0.0, 0.0, f32::NEG_INFINITY];
    let plain = SamplingSettings::default();
    assert_eq!(drawn(&logits, &[], &plain, below_one).id, 1);
    // Rounding past the end of the distribution must never select a token whose weight is 0 in f64.
    for i in 0..1000 {
        let other = |factor: f32| (factor * i as f32).sin();
        let logits = [other(0.7), other(1.3), other(2.9), other(3.1), -800.0];
        assert_eq!(drawn(&logits, &[], &plain, below_one).id, 3, "{logits:?}");
    }
}

#[test]
fn what_has_no_probability_is_never_kept() {
    let logits = [f32::NEG_INFINITY, 0.5, f32::NEG_INFINITY, -0.5];
    let penalty = SamplingSettings { repetition_penalty: Some(5.0), ..Default::default() };
    for settings in [
        SamplingSettings { top_k: Some(3), ..Default::default() },
        SamplingSettings { top_p: Some(0.999_999), ..penalty.clone() },
        SamplingSettings { min_p: Some(1e-30), ..penalty },
    ] {
        let drawn = drawn(&logits, &[0, 2], &settings, 0.0);
        assert_eq!(drawn.id, 1);
        assert_eq!(drawn.kept, Some(set(&[1, 3], 4)), "for {settings:?}");
    }
}

/// Draws on the device equal those on the host, up to rounding. A GPU draws itself, searches for
/// candidates, finds too many of them, or leaves the draws to the host. On the CPU, both sides are the
/// same code.
#[test]
fn rows_are_drawn_on_the_device_as_on_the_host() {
    let plain = SamplingSettings { repetition_penalty: Some(1.5), ..cold() };
    for settings in [
        cold(),
        plain.clone(),
        SamplingSettings { top_k: Some(20), ..plain.clone() },
        SamplingSettings { top_p: Some(0.9), ..plain.clone() },
        SamplingSettings { top_p: Some(0.99), temperature: 9.0, ..plain.clone() },
        SamplingSettings { min_p: Some(0.1), ..plain.clone() },
        SamplingSettings { forbidden: (0..17).collect(), ..plain },
    ] {
        for vocabulary in [50, 3000] {
            let rows = 6;
            let number = |i: usize| ((i * 7919) % 20_011) as f32 / 2001.0 - 5.0;
            let logits: Vec<f32> = (0..rows * vocabulary).map(number).collect();
            // The most probable ids of each row, one of them twice, and the least probable one.
            let seen: Vec<Vec<u32>> = logits
                .chunks(vocabulary)
                .map(|logits| {
                    let mut order: Vec<u32> = (0..vocabulary as u32).collect();
                    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
                    [&order[..4], &order[1..2], &order[vocabulary - 1..]].concat()
                })
                .collect();
            let seen: Vec<&[u32]> = seen.iter().map(Vec::as_slice).collect();
            let uniforms: Vec<f64> = (0..rows).map(|row| row as f64 / 6.0 + 0.05).collect();
            let distribution = settings.clone().checked(vocabulary).unwrap();
            let data = TensorData::new(logits.clone(), [rows, vocabulary]);
            let input = Tensor::<2>::from_data(data, &device());
            let drawn = draw_rows(input, &seen, &distribution, &uniforms).unwrap();
            for (row, drawn) in drawn.into_iter().enumerate() {
                let logits = &logits[row * vocabulary..][..vocabulary];
                let expected = draw(logits, seen[row], &distribution, uniforms[row]).unwrap();
                assert_eq!((drawn.id, &drawn.kept), (expected.id, &expected.kept), "{settings:?}");
                assert!((drawn.logprob - expected.logprob).abs() < 5e-6, "{settings:?}");
                if settings.repetition_penalty.is_some() {
                    let without = draw(logits, &[], &distribution, uniforms[row]).unwrap();
                    assert_ne!(without, expected, "the penalty has no effect on row {row}");
                }
            }
        }
    }
}

#[test]
fn a_row_that_is_not_finite_is_refused_on_the_device() {
    let settings = SamplingSettings { repetition_penalty: Some(1.5), ..cold() };
    for settings in [settings.clone(), SamplingSettings { top_p: Some(0.9), ..settings }] {
        let distribution = settings.checked(3000).unwrap();
        let mut logits = vec![1.0; 2 * 3000];
        logits[4000] = f32::NAN;
        let input = Tensor::<2>::from_data(TensorData::new(logits, [2, 3000]), &device());
        // Whether or not the id has been seen.
        for seen in [&[3][..], &[1000]] {
            let drawn = draw_rows(input.clone(), &[seen, seen], &distribution, &[0.5, 0.5]);
            assert_eq!(drawn, Err(NotFinite));
        }
    }
}

#[test]
fn all_but_one_forbidden() {
    let forbidden = SamplingSettings { forbidden: vec![0, 1, 3, 4], ..cold() };
    for uniform in [0.0, 0.5, 0.999] {
        let one = SamplingSettings { top_p: Some(0.3), min_p: Some(0.9), ..forbidden.clone() };
        let expected = Draw { id: 2, logprob: 0.0, kept: Some(set(&[2], 5)) };
        assert_eq!(drawn(&LOGITS, &[2], &one, uniform), expected);
        let all = Draw { kept: None, ..expected };
        assert_eq!(drawn(&LOGITS, &[2], &forbidden, uniform), all);
    }
}

#[test]
fn a_diverged_model_is_not_sampled() {
    for settings in [
        cold(),
        SamplingSettings { top_k: Some(1), ..cold() },
        SamplingSettings { top_p: Some(0.1), ..cold() },
        SamplingSettings { min_p: Some(0.9), ..cold() },
        SamplingSettings { repetition_penalty: Some(2.0), ..cold() },
    ] {
        let distribution = settings.checked(5).unwrap();
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
            let drawn = draw(&[9.0, bad, 0.0, 0.0, 0.0], &[1], &distribution, 0.5);
            assert_eq!(drawn, Err(NotFinite));
        }
        let nothing = [f32::NEG_INFINITY; 5];
        assert_eq!(draw(&nothing, &[], &distribution, 0.5), Err(NotFinite));
    }
    // Logits of forbidden ids are ignored.
    let without = SamplingSettings { forbidden: vec![1], ..cold() }.checked(3).unwrap();
    assert_eq!(draw(&[0.0, f32::NAN, f32::NEG_INFINITY], &[], &without, 0.5).unwrap().id, 0);
}

#[test]
#[should_panic(expected = "expected one logit per id of the vocabulary")]
fn a_row_of_another_vocabulary() {
    let _ = draw(&LOGITS, &[], &cold().checked(6).unwrap(), 0.5);
}

/// Generates logits that may be distinct, tied or −∞.
fn logits(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        6 => -6.0_f32..6.0,
        3 => (-2_i8..3).prop_map(f32::from),
        1 => Just(f32::NEG_INFINITY),
    ];
    prop::collection::vec(logit, length)
}

prop_compose! {
    /// Generates arbitrary combinations of settings.
    fn settings()(
        temperature in prop_oneof![Just(1.0_f32), 0.3_f32..3.0],
        top_k in prop::option::of(1_usize..30),
        top_p in prop::option::of(0.01_f32..=1.0),
        min_p in prop::option::of(0.0_f32..0.9),
        repetition_penalty in prop::option::of(0.3_f32..3.0),
        forbidden in prop::collection::vec(0_u32..5, 0..3),
    ) -> SamplingSettings {
        SamplingSettings { temperature, top_k, top_p, min_p, repetition_penalty, forbidden }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn equals_the_definition(
        logits in logits(5..25),
        seen in prop::collection::vec(0_u32..5, 0..6),
        settings in settings(),
    ) {
        let possible = |id: usize| {
            logits[id].is_finite() && !settings.forbidden.contains(&(id as u32))
        };
        prop_assume!((0..logits.len()).any(possible));
        let probabilities = oracle(&logits, &seen, &settings);
        prop_assume!(probabilities.is_some());
        check(&logits, &seen, &settings, &probabilities.unwrap());
    }

    /// The kept ids reach p, but would not without the least probable of them.
    #[test]
    fn a_nucleus_is_minimal(logits in logits(1..40), top_p in 0.01_f32..0.999) {
        prop_assume!(logits.iter().any(|logit| logit.is_finite()));
        let plain = oracle(&logits, &[], &SamplingSettings::default()).unwrap();
        let settings = SamplingSettings { top_p: Some(top_p), ..Default::default() };
        let kept = drawn(&logits, &[], &settings, 0.5).kept.unwrap();
        let kept: Vec<f64> = kept.iter().map(|id| plain[id as usize]).collect();
        let sum: f64 = kept.iter().sum();
        let least = kept.iter().copied().fold(1.0, f64::min);
        prop_assert!(sum >= f64::from(top_p) - 1e-12, "{} of {}", sum, top_p);
        prop_assert!(sum - least < f64::from(top_p) + 1e-12, "{} − {} of {}", sum, least, top_p);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Uses a flat distribution, so that a nucleus consists of hundreds of ids and requires several
    /// rounds of selection.
    #[test]
    fn wide_distributions_equal_the_definition(
        logits in prop::collection::vec(-0.5_f32..0.5, 500..700),
        settings in settings(),
        top_p in prop::option::of(0.05_f32..1.0),
    ) {
        let settings = SamplingSettings { top_k: settings.top_k.map(|k| 20 * k), top_p, ..settings };
        let probabilities = oracle(&logits, &[3, 1], &settings);
        prop_assume!(probabilities.is_some());
        check(&logits, &[3, 1], &settings, &probabilities.unwrap());
    }
}
