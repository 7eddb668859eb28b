use crate::texts::{options, passages, read, sticky, stream};
use grpo_data::TextCodec;
use grpo_infill::{
    Corruption, MASKING, MaskedStream, MaskedText, Masking, MaskingPlan, MaskingPreset,
    PassageUnit, Split,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns `n` texts for a single stage, using windows of `length` characters.
fn texts(masking: Masking, corruption: Corruption, length: usize, n: usize) -> Vec<MaskedText> {
    let plan = MaskingPlan::new(vec![masking], corruption).unwrap();
    stream(&passages(PassageUnit::Window, length), Split::Train, plan).batch(0, n).unwrap()
}

fn pure(masking: Masking, length: usize, n: usize) -> Vec<MaskedText> {
    texts(masking, Corruption::None, length, n)
}

fn count(text: &MaskedText) -> usize {
    text.is_target.iter().filter(|one| **one).count()
}

/// The ID of MASK in [`passages`], which follows a, b, c, d and the line ending.
const MASK: u32 = 5;

#[test]
fn places_of_random_masking_have_the_probability_of_the_ratio() {
    // 400 texts of 100 positions with a probability of 0.3: 12,000 with a standard deviation of 92.
    let random = |min_ratio, max_ratio| Masking::Random { min_ratio, max_ratio };
    let fixed = pure(random(0.3, 0.3), 100, 400);
    let all: usize = fixed.iter().map(count).sum();
    assert!(all.abs_diff(12_000) < 460, "{all}");
    // Across texts, the count has a binomial variance: 100 · 0.3 · 0.7 = 21, ± 1.5.
    let variance =
        fixed.iter().map(|text| (count(text) as f64 - 30.0).powi(2)).sum::<f64>() / 400.0;
    assert!((variance - 21.0).abs() < 7.5, "{variance}");
    // A ratio uniformly distributed in 0.2..0.8 has mean 0.5 and standard deviation 0.173, in
    // addition to √(0.5·0.5/100).
    let drawn = pure(random(0.2, 0.8), 100, 400);
    let mean = drawn.iter().map(|text| text.ratio).sum::<f64>() / 400.0;
    assert!((mean - 0.5).abs() < 0.046, "{mean}");
    let beyond = |low, high| drawn.iter().filter(|text| (low..high).contains(&text.ratio)).count();
    assert!(beyond(0.2, 0.35) > 60 && beyond(0.65, 0.8) > 60 && beyond(0.0, 0.05) == 0);
}

#[test]
fn sticky_places_clump_or_keep_apart() {
    let runs = |text: &MaskedText| {
        let begins = |at: &usize| text.is_target[*at] && (*at == 0 || !text.is_target[at - 1]);
        (0..text.is_target.len()).filter(begins).count()
    };
    let mean_runs = |p1, p2| {
        let texts = pure(sticky(0.3, p1, p2), 100, 100);
        assert!(texts.iter().all(|text| count(text) == 30));
        texts.iter().map(runs).sum::<usize>() as f64 / 100.0
    };
    let (clumps, even, apart) = (mean_runs(0.1, 0.9), mean_runs(0.3, 0.3), mean_runs(0.3, 0.05));
    // With equal weights, 30 of 100 positions form 30 · 71 / 100 = 21.3 runs, with a standard
    // deviation of about 2 per text.
    assert!((even - 21.3).abs() < 1.0, "{even}");
    assert!(clumps < 15.0 && apart > 25.0, "{clumps}, {apart}");
    // If positions next to a selected one have no weight, all positions are isolated as long as
    // possible.
    assert_eq!(mean_runs(0.3, 0.0), 30.0);
    // If all other positions have no weight, there is a single cluster.
    assert_eq!(mean_runs(0.0, 1.0), 1.0);
}

#[test]
fn a_redrawn_sticky_ratio_is_the_larger_of_two() {
    let masking = Masking::Sticky { ratio: 0.8, p1: 0.2, p2: 0.3, redrawn: true };
    let texts = pure(masking, 100, 900);
    // The larger of two uniform numbers below 0.8 has mean 2/3 · 0.8 and standard deviation
    // 0.8/√18. Rounding up adds 0.005.
    let mean = texts.iter().map(|text| text.ratio).sum::<f64>() / 900.0;
    assert!((mean - 0.5383).abs() < 0.0315, "{mean}");
    assert!(texts.iter().all(|text| text.ratio <= 0.8));
    // A quarter of them are below half the ratio.
    let low = texts.iter().filter(|text| text.ratio <= 0.4).count();
    assert!(low.abs_diff(225) < 66, "{low}");
}

#[test]
fn spans_are_masked_whole_whatever_the_corruption() {
    for text in texts(Masking::Span { spans: 3 }, Corruption::Bert, 100, 200) {
        let begins = |at: &usize| text.is_target[*at] && (*at == 0 || !text.is_target[at - 1]);
        assert!((1..=3).contains(&(0..100).filter(begins).count()));
        check_pure(&text);
    }
    // With two positions, both ends coincide in half of the draws, equally often at each position.
    let mut counts = [0i32; 3];
    for text in pure(Masking::Span { spans: 1 }, 2, 4000) {
        counts[usize::from(text.is_target[0]) + 2 * usize::from(text.is_target[1]) - 1] += 1;
    }
    let near = |found: i32, expect: i32| (found - expect).abs() < 160;
    assert!(near(counts[0], 1000) && near(counts[1], 1000) && near(counts[2], 2000), "{counts:?}");
}

#[test]
fn bert_corruption_masks_most_and_leaves_some() {
    for masking in [Masking::Random { min_ratio: 0.5, max_ratio: 0.5 }, sticky(0.5, 0.3, 0.3)] {
        let texts = texts(masking, Corruption::Bert, 100, 200);
        let (mut masked, mut other, mut chosen) = (0, 0, 0);
        for text in &texts {
            for at in 0..100 {
                let (id, truth) = (text.ids[at], text.original[at]);
                if !text.is_target[at] {
                    assert_eq!(id, truth);
                    continue;
                }
                chosen += 1;
                masked += usize::from(id == MASK);
                other += usize::from(id != MASK && id != truth);
                assert!(id <= MASK);
            }
        }
        // Out of about 10,000: 80 % MASK, and those of the 10 % random characters that aren't
        // correct by chance. Letters make up 6 of 7 characters in equal proportions, so 4 of 5
        // random characters are wrong.
        let part = |n: usize| n as f64 / chosen as f64;
        assert!((9_500..10_500).contains(&chosen));
        assert!((part(masked) - 0.8).abs() < 0.02, "{}", part(masked));
        assert!((part(other) - 0.08).abs() < 0.014, "{}", part(other));
    }
}

/// Checks the requirements of GRPO: MASK at each target, and the original characters everywhere
/// else.
fn check_pure(text: &MaskedText) {
    let expect: Vec<u32> = text
        .original
        .iter()
        .zip(&text.is_target)
        .map(|(id, is_target)| if *is_target { MASK } else { *id })
        .collect();
    assert_eq!(text.ids, expect);
    assert_eq!(text.ratio, count(text) as f64 / text.ids.len() as f64);
}

/// Regression test for a bug in the original: the 10 % random and 10 % unchanged characters were
/// also present in the texts used for sampling and judging.
#[test]
fn a_plan_that_is_pure_has_blanks_as_targets_and_the_truth_elsewhere() {
    for preset in [MaskingPreset::Complex, MaskingPreset::Validation] {
        let plan = MaskingPlan::preset(preset, Corruption::None);
        plan.check_pure().unwrap();
        for text in
            stream(&passages(PassageUnit::Lines, 60), Split::Train, plan).batch(3, 60).unwrap()
        {
            check_pure(&text);
        }
    }
    let not = |plan: MaskingPlan, expect: &str| {
        assert_eq!(plan.check_pure().unwrap_err().to_string(), expect);
    };
    not(
        MaskingPlan::preset(MaskingPreset::Complex, Corruption::Bert),
        "completions are only valid at blanks, but `corruption` is \"bert\", so other positions would be wrong or would count; use `corruption` = \"none\"",
    );
    not(
        MaskingPlan::preset(MaskingPreset::SpanAndLines, Corruption::None),
        "completions are only valid at blanks, but `stages[9]` is `line`, so other positions would be wrong or would count; use the stages `random`, `sticky` and `span`",
    );
}

fn line_masking(min_ratio: f64, max_ratio: f64) -> Masking {
    Masking::Line { min_ratio, max_ratio }
}

#[test]
fn lines_are_replaced_by_other_lines_of_the_same_half() {
    let passages = passages(PassageUnit::Lines, 70);
    let plan = MaskingPlan::new(vec![line_masking(0.3, 0.3)], Corruption::None).unwrap();
    let all = crate::texts::letters(1000);
    let lines: Vec<&str> = all.lines().collect();
    for (half, own) in [(Split::Train, &lines[..800]), (Split::Validation, &lines[800..])] {
        let own: BTreeSet<&str> = own.iter().copied().collect();
        for text in stream(&passages, half, plan.clone()).batch(0, 50).unwrap() {
            let decode = |ids: &[u32]| passages.characters().decode(ids);
            let (found, truth) = (decode(&text.ids), decode(&text.original));
            let n = truth.lines().count();
            assert_eq!(found.lines().count(), n);
            let mut replaced = 0;
            for (at, (found, truth)) in found.lines().zip(truth.lines()).enumerate() {
                let is_target = &text.is_target[7 * at..7 * (at + 1)];
                assert!(is_target.iter().all(|one| *one == (found != truth)));
                assert!(own.contains(found));
                replaced += usize::from(found != truth);
            }
            // Three tenths of the lines, but at least one.
            assert_eq!(replaced, (n * 3 / 10).max(1));
            assert_eq!(text.ratio, replaced as f64 / n as f64);
        }
    }
}

#[test]
fn replaces_one_of_few_lines() {
    let plan = MaskingPlan::new(vec![line_masking(0.3, 0.3)], Corruption::None).unwrap();
    for text in stream(&passages(PassageUnit::Lines, 15), Split::Train, plan).batch(0, 30).unwrap()
    {
        assert_eq!(count(&text), 7);
    }
}

#[test]
fn a_text_with_longer_lines_in_it_is_cut_at_the_length_of_a_passage() {
    let text = "ab\nabcdefghijkl\nba\nlkjihgfedcba\ncc\nlast one\n";
    let passages = Arc::new(read(text, &options(PassageUnit::Lines, 16)).unwrap());
    let plan = MaskingPlan::new(vec![line_masking(1.0, 1.0)], Corruption::None).unwrap();
    let texts = stream(&passages, Split::Train, plan).batch(0, 100).unwrap();
    assert!(
        texts.iter().all(|text| text.ids.len() <= 16 && text.is_target.len() == text.ids.len())
    );
    assert!(
        texts
            .iter()
            .any(|text| text.ids.len() == 16
                && text.ids[15] != text.original[text.original.len() - 1])
    );
    assert!(texts.iter().any(|text| text.ids.len() < text.original.len()));
    assert!(texts.iter().all(|text| text.ratio == 1.0));
}

#[test]
fn line_masking_needs_lines() {
    let plan = MaskingPlan::preset(MaskingPreset::SpanAndLines, Corruption::None);
    for (unit, name) in [(PassageUnit::Line, "line"), (PassageUnit::Window, "window")] {
        let passages = passages(unit, 6);
        let error = MaskedStream::new(passages, Split::Train, plan.clone(), 1, MASKING);
        assert_eq!(
            error.unwrap_err().to_string(),
            format!(
                "stage 9 of the masking, `line`, replaces whole lines, but passages with `unit` = \"{name}\" have none; use `unit` = \"lines\", or remove the stage"
            )
        );
    }
    // If all lines are equal, there is no replacement.
    let same = Arc::new(read(&"aaa\n".repeat(30), &options(PassageUnit::Lines, 16)).unwrap());
    let plan = MaskingPlan::new(vec![line_masking(0.5, 0.5)], Corruption::None).unwrap();
    assert_eq!(
        stream(&same, Split::Train, plan).batch(0, 4).unwrap_err().to_string(),
        "stage 0 of the masking, `line`, found no different line in 1000 consecutive passages: all lines of this split are equal; provide a text with different lines, or remove the stage"
    );
}

struct Mixture {
    random: f64,
    mask: f64,
    fragment: f64,
    original_multiplier: f64,
    ratio: f64,
}

impl Mixture {
    fn masking(&self, full_targets: bool) -> Masking {
        Masking::Replacement {
            min_ratio: self.ratio,
            max_ratio: self.ratio,
            random: self.random,
            mask: self.mask,
            fragment: self.fragment,
            original_multiplier: self.original_multiplier,
            full_targets,
        }
    }

    /// Returns the fractions of selected positions that are MASK, the original character, and
    /// another character.
    fn parts(&self, half: Split) -> [f64; 3] {
        let plan = MaskingPlan::new(vec![self.masking(false)], Corruption::None).unwrap();
        let (mut counts, mut all) = ([0.0; 3], 0.0);
        for text in stream(&passages(PassageUnit::Window, 100), half, plan).batch(0, 200).unwrap() {
            for at in 0..100 {
                let (id, truth) = (text.ids[at], text.original[at]);
                if text.is_target[at] {
                    all += 1.0;
                    counts[if id == MASK {
                        0
                    } else if id == truth {
                        1
                    } else {
                        2
                    }] += 1.0;
                } else {
                    assert_eq!(id, truth);
                }
            }
        }
        counts.map(|count| count / all)
    }
}

#[test]
fn replacement_mixes_random_characters_mask_and_fragments() {
    let check = |found: [f64; 3], expect: [f64; 3]| {
        let near = |(a, b): (f64, f64)| (a - b).abs() < 0.03;
        assert!(found.into_iter().zip(expect).all(near), "{found:?}, expected {expect:?}");
    };
    let mixture = |random, mask, fragment, original_multiplier, ratio| Mixture {
        random,
        mask,
        fragment,
        original_multiplier,
        ratio,
    };
    // There are five characters. The correct one has the weight 1, 0 or 6.
    check(mixture(1.0, 0.0, 0.0, 1.0, 0.3).parts(Split::Train), [0.0, 0.2, 0.8]);
    check(mixture(1.0, 0.0, 0.0, 0.0, 0.3).parts(Split::Train), [0.0, 0.0, 1.0]);
    check(mixture(3.0, 1.0, 0.0, 6.0, 0.3).parts(Split::Train), [0.25, 0.45, 0.3]);
    // A fragment's character may be correct by chance. Letters make up 6/7 of the text and there
    // are 4 of them; the line ending makes up 1/7.
    let chance = (6.0f64 / 7.0).powi(2) / 4.0 + (1.0f64 / 7.0).powi(2);
    check(
        mixture(0.0, 0.2, 0.8, 1.0, 0.3).parts(Split::Train),
        [0.2, 0.8 * chance, 0.8 * (1.0 - chance)],
    );
    // Fragments are not used during validation, or if at least half of the positions are selected.
    // The other kinds are used instead.
    check(mixture(0.0, 0.2, 0.8, 1.0, 0.3).parts(Split::Validation), [1.0, 0.0, 0.0]);
    check(mixture(0.0, 0.2, 0.8, 1.0, 0.9).parts(Split::Train), [1.0, 0.0, 0.0]);
}

#[test]
fn a_fragment_is_a_run_of_another_text() {
    let one =
        Mixture { random: 0.0, mask: 1e-9, fragment: 1.0, original_multiplier: 1.0, ratio: 0.4 };
    let plan = MaskingPlan::new(vec![one.masking(false)], Corruption::None).unwrap();
    let passages = passages(PassageUnit::Window, 60);
    let all = crate::texts::letters(1000);
    let mut runs = 0;
    let texts = stream(&passages, Split::Train, plan).batch(0, 40).unwrap();
    for text in texts.iter().filter(|text| text.ratio < 0.5) {
        for run in
            (0..60).collect::<Vec<_>>().chunk_by(|a, b| text.is_target[*a] == text.is_target[*b])
        {
            let found = passages.characters().decode(&text.ids[run[0]..=run[run.len() - 1]]);
            // A run may wrap around from the end of the other passage to its start.
            let around =
                (1..found.len()).any(|at| all.contains(&found[..at]) && all.contains(&found[at..]));
            assert!(all.contains(&found) || around, "{found:?}");
            runs += usize::from(run.len() >= 4 && text.is_target[run[0]]);
        }
    }
    assert!(runs > 20, "{runs} runs tell something");
}

#[test]
fn targets_can_be_all_places() {
    let one =
        Mixture { random: 1.0, mask: 1.0, fragment: 0.0, original_multiplier: 1.0, ratio: 0.3 };
    let (some, all) = (pure(one.masking(false), 50, 20), pure(one.masking(true), 50, 20));
    for (some, all) in some.iter().zip(&all) {
        assert_eq!((&some.ids, some.ratio), (&all.ids, all.ratio));
        assert_eq!(count(all), 50);
        assert!(some.ratio < 1.0 && count(some) < 50);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn sticky_masking_hits_its_ratio(ratio in 0.001f64..=1.0, length in 2usize..90, p1 in 0.0f64..1.0, p2 in 0.0f64..1.0) {
        let expect = ((ratio * length as f64 - 1e-9).ceil() as usize).max(1);
        for text in pure(sticky(ratio, p1, p2), length, 4) {
            prop_assert_eq!(count(&text), expect);
            check_pure(&text);
        }
    }

    /// Regression test for a bug in the original: batches contained texts without any masked
    /// position.
    #[test]
    fn every_text_has_a_target(max_ratio in 0.01f64..=1.0, spans in 1u32..9, length in 2usize..6) {
        let random = Masking::Random { min_ratio: 0.0, max_ratio };
        let passages = passages(PassageUnit::Line, 6);
        let plan = MaskingPlan::new(vec![random, Masking::Span { spans }], Corruption::Bert).unwrap();
        for text in stream(&passages, Split::Validation, plan).batch(length as u64, 8).unwrap() {
            prop_assert!(count(&text) >= 1);
            prop_assert_eq!(text.is_target.len(), text.ids.len());
            for at in 0..text.ids.len() {
                prop_assert!(text.is_target[at] || text.ids[at] == text.original[at]);
                prop_assert!(text.ids[at] as usize <= passages.characters().base_len());
            }
        }
    }
}

#[test]
fn a_ratio_that_masks_nothing_is_an_error_and_no_endless_search() {
    let plan = MaskingPlan::new(
        vec![Masking::Random { min_ratio: 0.0, max_ratio: 1e-12 }],
        Corruption::None,
    )
    .unwrap();
    let error =
        stream(&passages(PassageUnit::Line, 6), Split::Train, plan).batch(0, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stage 0 of the masking, `random`, masked nothing in 1000 consecutive passages; increase its ratio"
    );
}
