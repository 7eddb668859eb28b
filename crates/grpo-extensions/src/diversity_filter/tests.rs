//! Tests of the diversity filter.

use grpo_data::Scored;
use grpo_train::{GrpoConfig, Guards, Metrics};
use proptest::prelude::*;

use super::*;
use crate::similar_texts::tests::Numbers;
use crate::test_groups::group;
use crate::{BucketFn, check_extensions, diversity_bonus};

fn apply(filter: &mut DiversityFilter, groups: &mut [Group]) -> [f64; 3] {
    filter.apply(groups, &Ranks::alone()).unwrap()
}

/// Copies the saved state of a filter.
fn restore(resumed: &mut DiversityFilter, filter: &DiversityFilter) -> Result<(), String> {
    let state = StepExtension::<()>::state(filter);
    StepExtension::<()>::restore(resumed, state)
}

fn config(bucket_size: u32, penalty: BucketPenalty) -> DiversityFilterConfig {
    DiversityFilterConfig {
        bucket: "text".to_owned(),
        min_similarity: None,
        bucket_size,
        min_reward: 0.5,
        penalty,
    }
}

fn groups(samples: &[(&str, f64)]) -> Vec<Group> {
    let scored = |reward: f64| Outcome::Scored(Scored::new(vec![(1.0, reward)], vec![]));
    let mut group = group(samples.iter().map(|(_, reward)| scored(*reward)).collect());
    for (sample, (text, _)) in group.samples.iter_mut().zip(samples) {
        sample.text = (*text).to_owned();
    }
    vec![group]
}

fn changes(groups: &[Group]) -> Vec<Option<f64>> {
    samples(groups).map(|sample| sample.bonus.map(Bonus::total)).collect()
}

#[test]
fn ranks_share_the_buckets() {
    let texts = ["a", "b", "a", "a", "c", "b", "a"];
    let all = groups(&texts.map(|text| (text, 0.9)));
    let build = || config(2, BucketPenalty::Linear).build(Bucketing::TEXT).unwrap();
    let apply = |ranks: Ranks| {
        let (mut filter, mut all) = (build(), all.clone());
        let report = filter.apply(&mut all, &ranks).unwrap();
        (changes(&all), filter.counts.clone(), report)
    };
    let alone = apply(Ranks::alone());
    std::thread::scope(|scope| {
        let ranks = Ranks::in_process(3).into_iter();
        let threads: Vec<_> = ranks.map(|ranks| scope.spawn(|| apply(ranks))).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), alone));
    });
}

#[test]
fn full_buckets_lose_their_reward() {
    let mut filter = config(2, BucketPenalty::Step).build(Bucketing::TEXT).unwrap();
    let mut first = groups(&[("a", 0.9), ("a", 0.8), ("b", 0.4), ("a", 0.7)]);
    let report = apply(&mut filter, &mut first);
    // The reward of `b` is too small to be counted.
    assert_eq!(changes(&first), [Some(0.0), Some(0.0), None, Some(-0.7)]);
    assert_eq!(report, [1.0 / 3.0, 1.0, 1.0]);
    assert_eq!(first[0].samples[3].reward(), Some(0.7));
    let mut second = groups(&[("a", 0.6), ("b", 0.5)]);
    apply(&mut filter, &mut second);
    assert_eq!(changes(&second), [Some(-0.6), Some(0.0)]);
    assert_eq!(
        filter.counts.clone().into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), 4), ("b".to_owned(), 1)]
    );
}

/// Buckets of texts by their first letter. Case does not distinguish them.
const LETTERS: Bucketing = Bucketing {
    name: "letters",
    buckets: |texts| {
        texts.iter().map(|text| Some(text.chars().next()?.to_lowercase().to_string())).collect()
    },
    similarity: None,
    holds_copies: false,
    identify: Some(|texts| {
        texts.iter().map(|text| Identity::Canonical(text.to_lowercase())).collect()
    }),
};

#[test]
fn copies_are_not_paid_and_fill_no_bucket() {
    for penalty in [BucketPenalty::Step, BucketPenalty::Linear] {
        let mut filter = config(2, penalty).build(LETTERS).unwrap();
        // `ab` counts once its reward is large enough, so its first occurrence is not paid twice.
        let mut first = groups(&[("ab", 0.4), ("AB", 0.9), ("ab", 0.8), ("b", 0.9), ("B", 0.6)]);
        let report = apply(&mut filter, &mut first);
        assert_eq!(changes(&first), [None, Some(0.0), Some(-0.8), Some(0.0), Some(-0.6)]);
        assert_eq!(report, [0.5, 2.0, 0.0]);
        // A resumed run remembers them.
        let mut resumed = config(2, penalty).build(LETTERS).unwrap();
        restore(&mut resumed, &filter).unwrap();
        for filter in [&mut filter, &mut resumed] {
            let mut second = groups(&[("aB", 1.0), ("ac", 1.0), ("ad", 1.0)]);
            apply(filter, &mut second);
            let factor = penalty.factor(1, 2) - 1.0;
            assert_eq!(changes(&second), [Some(-1.0), Some(factor), Some(-1.0)]);
            assert_eq!(filter.counts["a"], 3);
        }
    }
}

/// `bucket_size` would have no effect if copies were never paid.
#[test]
fn copies_fill_buckets_that_only_they_are_in() {
    let same = Bucketing { holds_copies: true, similarity: Some(Numbers::empty), ..LETTERS };
    let penalties = |min_similarity: Option<f64>| {
        let config = DiversityFilterConfig { min_similarity, ..config(2, BucketPenalty::Step) };
        let mut filter = config.build(same).unwrap();
        let mut all = groups(&[("a", 1.0), ("a", 1.0), ("a", 1.0)]);
        apply(&mut filter, &mut all);
        changes(&all)
    };
    assert_eq!(penalties(None), [Some(0.0), Some(0.0), Some(-1.0)]);
    assert_eq!(penalties(Some(0.9)), [Some(0.0), Some(-1.0), Some(-1.0)]);
}

#[test]
fn restored_counts_continue() {
    let mut whole = config(3, BucketPenalty::Linear).build(Bucketing::TEXT).unwrap();
    let steps = [groups(&[("a", 1.0), ("b", 1.0)]), groups(&[("a", 1.0), ("a", 1.0)])];
    let [mut one, mut two] = steps.clone();
    apply(&mut whole, &mut one);
    let mut resumed = config(3, BucketPenalty::Linear).build(Bucketing::TEXT).unwrap();
    restore(&mut resumed, &whole).unwrap();
    apply(&mut whole, &mut two);
    let [_, mut again] = steps;
    apply(&mut resumed, &mut again);
    assert_eq!(changes(&again), changes(&two));
    assert_eq!(changes(&two), [Some(1.0 - 1.0 / 3.0 - 1.0), Some(1.0 - 2.0 / 3.0 - 1.0)]);
    assert_eq!(resumed.counts, whole.counts);
}

#[test]
fn completions_without_a_bucket_or_score_are_kept() {
    let buckets: BucketFn = |texts| vec![None; texts.len()];
    let none = Bucketing { name: "none", buckets, ..Bucketing::TEXT };
    let mut filter = config(1, BucketPenalty::Step).build(none).unwrap();
    let mut all = groups(&[("a", 1.0), ("a", 1.0)]);
    assert_eq!(apply(&mut filter, &mut all)[0], 0.0);
    assert_eq!(changes(&all), [None, None]);
    let mut filter = config(1, BucketPenalty::Step).build(Bucketing::TEXT).unwrap();
    let mut all = groups(&[("a", 1.0), ("a", 1.0)]);
    all[0].samples[0].outcome = Some(Outcome::abstained());
    apply(&mut filter, &mut all);
    assert_eq!(changes(&all), [None, Some(0.0)]);
}

#[test]
fn similar_buckets_are_merged() {
    let numbers = Bucketing { similarity: Some(Numbers::empty), ..Bucketing::TEXT };
    let merging = |min_similarity| DiversityFilterConfig {
        min_similarity: Some(min_similarity),
        ..config(2, BucketPenalty::Step)
    };
    let mut filter = merging(0.75).build(numbers).unwrap();
    // 0.5 is equally similar to 0.25 and 0.75. `x` cannot be compared.
    let mut first = groups(&[("0.75", 1.0), ("0.25", 1.0), ("0.5", 1.0), ("x", 1.0)]);
    apply(&mut filter, &mut first);
    let counts = [("0.25", 2), ("0.75", 1), ("x", 1)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(filter.counts, BTreeMap::from(counts));

    let mut resumed = merging(0.75).build(numbers).unwrap();
    restore(&mut resumed, &filter).unwrap();
    let last = groups(&[("0.5", 1.0), ("0.7", 1.0), ("2", 1.0), ("x", 1.0)]);
    let found = [&mut filter, &mut resumed].map(|filter| {
        let mut last = last.clone();
        apply(filter, &mut last);
        (changes(&last), filter.counts.clone())
    });
    assert_eq!(found[0].0, [Some(-1.0), Some(0.0), Some(0.0), Some(0.0)]);
    assert_eq!(found[0], found[1]);

    let fault = merging(0.75).build(Bucketing::TEXT).unwrap_err().to_string();
    assert_eq!(
        fault,
        "diversity_filter.min_similarity has no effect: buckets of type \"text\" cannot be compared; remove it, or use another bucket"
    );
    assert!(merging(0.0).check().is_err());
}

#[test]
fn what_a_filter_cannot_be_used_with() {
    let parse = |text: &str| {
        let keys = toml::from_str(text).unwrap();
        (kind::<()>().parse)(keys, &[Bucketing::TEXT])
    };
    let mut config: GrpoConfig = toml::from_str(
        "[train]\nsteps = 1\nprompts_per_step = 1\ngroup_size = 2\n[sampling]\nmax_new_tokens = 4\n[optimizer]\nlearning_rate = 1e-3",
    )
    .unwrap();
    let filter = parse("[diversity_filter]\nbucket = \"text\"").unwrap().unwrap();
    let check = |config: &GrpoConfig, used: &[&Arc<dyn ExtensionConfig<()>>]| {
        let used: Vec<_> = used.iter().map(|of| Arc::clone(of)).collect();
        check_extensions(&used, config, false)
    };
    check(&config, &[&filter]).unwrap();
    let bonus = toml::from_str("[diversity_bonus]\nweight = 0.1\nmeasure = \"bleu\"").unwrap();
    let bonus = (diversity_bonus::kind::<()>().parse)(bonus, &[]).unwrap().unwrap();
    assert_eq!(
        check(&config, &[&bonus, &filter]).unwrap_err().to_string(),
        "diversity_bonus and diversity_filter cannot be combined; remove one of them"
    );
    config.advantage.aggregation = Aggregation::NormalizeThenSum;
    let error = check(&config, &[&filter]).unwrap_err().to_string();
    assert!(error.contains("does not compute"), "{error}");
    let unknown = parse("[diversity_filter]\nbucket = \"scafold\"").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "diversity_filter.bucket = \"scafold\" is unknown; expected \"text\""
    );
    assert_eq!(unknown.key, "diversity_filter.bucket");
    assert!(parse("diversity_filter = 3").unwrap_err().to_string().contains("expected a table"));
}

/// The guard says what the metric of the filter means.
#[test]
fn its_default_guard_explains_itself() {
    let config = config(2, BucketPenalty::Step);
    let filter = ConfiguredFilter { config, bucketing: Bucketing::TEXT };
    let guards = ExtensionConfig::<()>::guards(&filter);
    let mut guards = Guards::new(&guards);
    let penalized = METRICS.iter().find(|metric| metric.name == "diversity_filter/penalized");
    let mut metrics = Metrics::default();
    metrics.push_declared(penalized.unwrap(), 0.75);
    let triggers = (1..=5).flat_map(|step| guards.observe(step, &metrics));
    assert_eq!(
        triggers.map(|trigger| trigger.message).collect::<Vec<_>>(),
        [
            "step 5: diversity_filter/penalized was 0.75, above 0.5, 5 steps in a row: mode collapse: most rewarded completions fall into diversity filter buckets that are filling up"
        ]
    );
}

/// Values of `1 − 1/(1 + e^(−(2n/L − 1)/0.15))`, computed with another program.
#[test]
fn penalties_have_their_published_values() {
    for (count, expected) in
        [(0, 0.998_728_983_7), (5, 0.965_554_804_3), (10, 0.5), (20, 0.001_271_016_3)]
    {
        let found = BucketPenalty::Sigmoid.factor(count, 20);
        assert!((found - expected).abs() < 1e-9, "{count}: {found}");
    }
    assert_eq!(BucketPenalty::Linear.factor(5, 20), 0.75);
    assert_eq!(BucketPenalty::Linear.factor(21, 20), 0.0);
}

proptest! {
    #[test]
    fn penalties_never_increase(count in 0u32..2000, bucket_size in 1u32..1000) {
        for penalty in [BucketPenalty::Step, BucketPenalty::Linear, BucketPenalty::Sigmoid] {
            let [now, next] = [count, count + 1].map(|n| penalty.factor(n, bucket_size));
            prop_assert!((0.0..=1.0).contains(&now) && next <= now);
        }
    }
}
