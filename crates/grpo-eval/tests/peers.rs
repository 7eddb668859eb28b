//! Compares measures with NLTK, rouge-score, SciPy and scikit-learn. `tests/peers/eval` has the
//! program that writes the fixtures.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

use std::path::PathBuf;

use grpo_eval::stats::{
    Alternative, Bootstrap, IntervalMethod, KappaWeights, TestResult, benjamini_hochberg,
    cliffs_delta, cohens_d, cohens_kappa, holm, mann_whitney_u, paired_t_test, pearson_test,
    sign_test, spearman_test, wasserstein_distance, wilcoxon_signed_rank,
};
use grpo_eval::{
    GroupDiversity, LowRankUpdate, MeasureError, NgramDiversity, PromptPasses, Rouge, Vocabulary,
    calibration_curve, mean_cosine_distance, porter_stem,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads a fixture from the folder in `GRPO_EVAL_FIXTURES`, or from the repository.
fn fixture<T: DeserializeOwned>(name: &str) -> T {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/eval");
    let folder = std::env::var_os("GRPO_EVAL_FIXTURES").map_or(default.into(), PathBuf::from);
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Relative for large numbers, absolute for small ones.
#[track_caller]
fn close(found: f64, expected: f64, what: impl std::fmt::Debug) {
    let tolerance = 1e-11 * expected.abs().max(1.0);
    assert!((found - expected).abs() <= tolerance, "{found}, not {expected}: {what:?}");
}

#[derive(Deserialize)]
struct Texts {
    groups: Vec<Group>,
    pooled: NgramDiversity,
    vocabulary: Vocabulary,
}

#[derive(Deserialize)]
struct Group {
    completions: Vec<String>,
    reference: String,
    diversity: NgramDiversity,
    rouge: Vec<[[f64; 3]; 3]>,
    rouge_stemmed: Vec<[[f64; 3]; 3]>,
}

impl Group {
    fn texts(&self) -> Vec<&str> {
        self.completions.iter().map(String::as_str).collect()
    }
}

#[track_caller]
fn equal_diversity(found: NgramDiversity, expected: NgramDiversity, what: &[&str]) {
    let all = |of: NgramDiversity| [of.distinct_1, of.distinct_2, of.distinct_3, of.self_bleu];
    for (found, expected) in all(found).into_iter().zip(all(expected)) {
        assert_eq!(found.is_some(), expected.is_some(), "{found:?} {expected:?} {what:?}");
        close(found.unwrap_or(0.0), expected.unwrap_or(0.0), what);
    }
}

#[test]
fn texts_are_measured_as_by_nltk_and_rouge_score() {
    let Texts { groups, pooled, vocabulary } = fixture("texts.json");
    for group in &groups {
        let texts = group.texts();
        let found = GroupDiversity::new(std::slice::from_ref(&texts)).unwrap();
        equal_diversity(found.pooled, group.diversity, &texts);
        equal_diversity(found.per_prompt, group.diversity, &texts);
        for (stem, scores) in [(false, &group.rouge), (true, &group.rouge_stemmed)] {
            for (text, expected) in texts.iter().zip(scores) {
                let found = Rouge::new(&group.reference, text, stem);
                let found = [found.rouge_1, found.rouge_2, found.rouge_l];
                for (found, expected) in found.iter().zip(expected) {
                    let found = [found.precision, found.recall, found.f];
                    for (found, expected) in found.into_iter().zip(expected) {
                        close(found, *expected, (stem, text, &group.reference));
                    }
                }
            }
        }
    }
    let all: Vec<Vec<&str>> = groups.iter().map(Group::texts).collect();
    equal_diversity(GroupDiversity::new(&all).unwrap().pooled, pooled, &[]);
    let found = Vocabulary::new(&all.concat());
    let counts = |of: Vocabulary| (of.unique_words, of.total_words);
    assert_eq!(counts(found), counts(vocabulary));
    close(found.type_token_ratio, vocabulary.type_token_ratio, "type-token ratio");
    close(found.avg_word_length, vocabulary.avg_word_length, "word length");
}

#[derive(Deserialize)]
struct Stems {
    words: String,
    stems: String,
}

#[test]
fn stems_are_nltks() {
    let Stems { words, stems } = fixture("stems.json");
    let (words, stems) = (words.split(' '), stems.split(' '));
    let differing: Vec<_> = words
        .zip(stems)
        .map(|(word, stem)| (word, porter_stem(word), stem))
        .filter(|(_, found, stem)| found != stem)
        .collect();
    assert!(differing.is_empty(), "{} stems: {:?}", differing.len(), differing.first());
}

/// Results of SciPy for the alternatives two-sided, greater and less: statistic and p-value.
type Results = Option<[[f64; 2]; 3]>;

#[derive(Deserialize)]
struct Tests {
    x: Vec<f64>,
    y: Vec<f64>,
    wasserstein: f64,
    cliffs_delta: f64,
    cohens_d: f64,
    mann_whitney: Results,
    wilcoxon: Results,
    paired_t: Results,
    pearson: Option<[f64; 2]>,
    spearman: Option<[f64; 2]>,
}

#[derive(Deserialize)]
struct Draws {
    values: Vec<f64>,
    draws: usize,
    seed: u64,
    percentile: [f64; 2],
    bca: [f64; 2],
}

#[derive(Deserialize)]
struct Statistics {
    tests: Vec<Tests>,
    bootstrap: Vec<Draws>,
    p_values: Vec<f64>,
    holm: Vec<f64>,
    benjamini_hochberg: Vec<f64>,
    ratings: [Vec<u8>; 2],
    kappa: [f64; 3],
    probabilities: Vec<f64>,
    outcomes: Vec<bool>,
    observed: Vec<f64>,
    predicted: Vec<f64>,
    vectors: Vec<Vec<f32>>,
    cosine_distance: f64,
    pass_at_k: Vec<(usize, usize, usize, f64)>,
    sign_tests: Vec<(usize, usize, [f64; 3])>,
}

type Test = fn(&[f64], &[f64], Alternative) -> Result<TestResult, MeasureError>;

#[test]
fn tests_and_effects_are_scipys() {
    for case in fixture::<Statistics>("statistics.json").tests {
        let (x, y) = (case.x.as_slice(), case.y.as_slice());
        let sizes = (x.len(), y.len());
        close(wasserstein_distance(x, y).unwrap(), case.wasserstein, sizes);
        close(cliffs_delta(x, y).unwrap(), case.cliffs_delta, sizes);
        close(cohens_d(x, y).unwrap(), case.cohens_d, sizes);
        let tests: [(&str, Test, Results); 3] = [
            ("Mann-Whitney", mann_whitney_u, case.mann_whitney),
            ("Wilcoxon", wilcoxon_signed_rank, case.wilcoxon),
            ("t", paired_t_test, case.paired_t),
        ];
        for (name, test, expected) in tests {
            let alternatives = [Alternative::TwoSided, Alternative::Greater, Alternative::Less];
            for (alternative, [statistic, p_value]) in
                alternatives.into_iter().zip(expected.unwrap_or_default())
            {
                let found = test(x, y, alternative);
                if expected.is_some() {
                    let found = found.unwrap();
                    close(found.statistic, statistic, (name, alternative, sizes));
                    close(found.p_value, p_value, (name, alternative, sizes));
                }
            }
        }
        for (found, expected) in
            [(pearson_test(x, y), case.pearson), (spearman_test(x, y), case.spearman)]
        {
            if let Some([statistic, p_value]) = expected {
                let found = found.unwrap();
                close(found.statistic, statistic, sizes);
                close(found.p_value, p_value, sizes);
            }
        }
    }
}

#[test]
fn intervals_are_scipys_for_the_same_draws() {
    for case in fixture::<Statistics>("statistics.json").bootstrap {
        let expected =
            [(IntervalMethod::Percentile, case.percentile), (IntervalMethod::Bca, case.bca)];
        for (method, [low, high]) in expected {
            let bootstrap = Bootstrap { draws: case.draws, level: 0.9, method, seed: case.seed };
            let found = bootstrap.mean(&case.values).unwrap();
            close(found.low, low, method);
            close(found.high, high, method);
        }
    }
}

#[track_caller]
fn all_close(found: impl IntoIterator<Item = f64>, expected: &[f64]) {
    let found: Vec<f64> = found.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        close(*found, *expected, "list");
    }
}

#[test]
fn other_statistics_are_those_of_the_references() {
    let case: Statistics = fixture("statistics.json");
    all_close(holm(&case.p_values).unwrap(), &case.holm);
    all_close(benjamini_hochberg(&case.p_values).unwrap(), &case.benjamini_hochberg);
    let weights = [KappaWeights::None, KappaWeights::Linear, KappaWeights::Quadratic];
    let [one, other] = &case.ratings;
    all_close(weights.map(|weights| cohens_kappa(one, other, weights).unwrap()), &case.kappa);
    let curve = calibration_curve(&case.probabilities, &case.outcomes, 10).unwrap();
    all_close(curve.iter().map(|bin| bin.observed), &case.observed);
    all_close(curve.iter().map(|bin| bin.predicted), &case.predicted);
    let vectors: Vec<&[f32]> = case.vectors.iter().map(Vec::as_slice).collect();
    close(mean_cosine_distance(&vectors).unwrap(), case.cosine_distance, "cosine distance");
    for (samples, passed, k, expected) in case.pass_at_k {
        let found = PromptPasses { samples, passed }.pass_at_k(k, 0).unwrap();
        close(found, expected, (samples, passed, k));
    }
    for (wins, losses, expected) in case.sign_tests {
        let alternatives = [Alternative::TwoSided, Alternative::Greater, Alternative::Less];
        for (alternative, expected) in alternatives.into_iter().zip(expected) {
            let found = sign_test(wins, losses, alternative).unwrap().p_value;
            close(found / expected, 1.0, (wins, losses, alternative));
        }
    }
}

#[derive(Deserialize)]
struct LowRank {
    cases: Vec<LowRankCase>,
}

#[derive(Deserialize)]
struct LowRankCase {
    rank: usize,
    scale: f64,
    a: Vec<f64>,
    b: Vec<f64>,
    norms: [f64; 3],
    effective_rank: f64,
    singular_values: Vec<f64>,
}

#[test]
fn sizes_of_updates_equal_those_of_numpy() {
    for case in fixture::<LowRank>("low_rank.json").cases {
        let LowRankCase { rank, scale, a, b, .. } = case;
        let found = LowRankUpdate { a, b, rank, scale }.size().unwrap();
        for (found, expected) in [found.norm_a, found.norm_b, found.norm].iter().zip(case.norms) {
            close(*found, expected, rank);
        }
        close(found.effective_rank, case.effective_rank, rank);
        for (found, expected) in found.singular_values.iter().zip(&case.singular_values) {
            // Relative to the largest one.
            close(found / case.singular_values[0], expected / case.singular_values[0], rank);
        }
    }
}
