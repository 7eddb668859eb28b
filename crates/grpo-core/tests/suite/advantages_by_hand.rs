//! Compares advantages with values calculated by hand, and tests rewards that are rejected.

use grpo_core::{
    AdvantageConfig, AdvantageError, Advantages, Aggregation, Baseline, Deviation, MeanAndStd,
    RewardScale, advantages_against, group_advantages, weighted_group_advantages,
};

use crate::advantages::{Rewards, settings};
use crate::support::{all_close, close};

/// Due to rounding, the mean of eight rewards of 0.95 is not exactly 0.95. A division by a tiny
/// deviation would amplify this error.
#[test]
fn a_constant_group_gets_exactly_zero_and_a_flag() {
    for offset in [0.0, 1e-9, 1e3, 1e6, 1e12, -1e6] {
        let constant = vec![Some(0.95 + offset); 8];
        let rewards = vec![constant.clone(), vec![Some(0.1), Some(0.7)]];
        for config in settings() {
            let got = group_advantages(&rewards, &config).unwrap();
            assert_eq!((got.zero_std, got.zero_std_share), (vec![true, false], 0.8), "{config:?}");
            assert_ne!(got.groups[1][0], 0.0);
            if config.baseline != Baseline::Batch {
                assert_eq!(got.groups[0], [0.0; 8], "{config:?}, offset {offset}");
            }
            let alone = group_advantages(&[constant.clone(), constant.clone()], &config).unwrap();
            assert_eq!(alone.groups, [[0.0; 8]; 2], "{config:?}");
            assert_eq!((alone.zero_std, alone.zero_std_share), (vec![true; 2], 1.0));
            assert_eq!(alone.reward.std, 0.0);
        }
        // Completions that abstained belong to the group and are included in the fraction.
        let abstaining = vec![vec![constant[0], None, constant[0]], rewards[1].clone()];
        let got = group_advantages(&abstaining, &AdvantageConfig::default()).unwrap();
        assert_eq!((&got.groups[0], got.zero_std_share), (&vec![0.0; 3], 3.0 / 5.0));
        // So do those of a group without any reward.
        let missing = vec![vec![None; 3], rewards[1].clone()];
        let got = group_advantages(&missing, &AdvantageConfig::default()).unwrap();
        assert_eq!((&got.groups[0], got.zero_std_share), (&vec![0.0; 3], 3.0 / 5.0));
        let none = group_advantages(&[vec![None; 3], vec![None]], &AdvantageConfig::default());
        assert_eq!(none.unwrap().zero_std_share, 1.0);
    }
}

/// A large offset that is common to all rewards cancels out.
#[test]
fn an_offset_of_a_million_leaves_ten_digits() {
    let near = [[0.1, 0.9, 0.4, 0.3], [0.2, 0.2, 0.7, 0.5]];
    let of = |offset: f64, config: &AdvantageConfig| {
        let rewards: Rewards =
            near.iter().map(|group| group.iter().map(|r| Some(r + offset)).collect()).collect();
        group_advantages(&rewards, config).unwrap().groups
    };
    for config in settings() {
        let expected = of(0.0, &config);
        for offset in [1e6, -1e6] {
            all_close(&of(offset, &config), &expected, 2e-9, &format!("{config:?}"));
        }
    }
}

#[test]
fn by_hand() {
    let rewards = vec![vec![Some(1.0), Some(3.0)], vec![Some(0.0), None, Some(8.0)]];
    let check = |baseline, scale, deviation, expect: [[f64; 2]; 2]| {
        let config =
            AdvantageConfig { baseline, scale, deviation, epsilon: 0.5, ..Default::default() };
        let got = group_advantages(&rewards, &config).unwrap();
        let [first, second] = expect;
        let expect = vec![first.to_vec(), vec![second[0], 0.0, second[1]]];
        all_close(&got.groups, &expect, 4.0 * f64::EPSILON, &format!("{config:?}"));
        let statistics = MeanAndStd { mean: 3.0, std: (38.0_f64 / 3.0).sqrt() };
        assert_eq!((got.reward, got.objective), (statistics, statistics));
        assert_eq!((got.zero_std, got.zero_std_share), (vec![false; 2], 0.0));
    };
    use Deviation::{Population, Sample};
    let of = |divisors: [f64; 2], [[a, b], [c, d]]: [[f64; 2]; 2]| {
        [[a / divisors[0], b / divisors[0]], [c / divisors[1], d / divisors[1]]]
    };
    let own = [[-1.0, 1.0], [-4.0, 4.0]];
    let others = [[-2.0, 2.0], [-8.0, 8.0]];
    let all = [[-2.0, 0.0], [-3.0, 5.0]];
    let groups = |kind| match kind {
        Sample => [2_f64.sqrt() + 0.5, 32_f64.sqrt() + 0.5],
        Population => [1.5, 4.5],
    };
    let batch = |kind| match kind {
        Sample => [(38.0_f64 / 3.0).sqrt() + 0.5; 2],
        Population => [(38.0_f64 / 4.0).sqrt() + 0.5; 2],
    };
    for kind in [Sample, Population] {
        check(Baseline::Group, RewardScale::Group, kind, of(groups(kind), own));
        check(Baseline::Group, RewardScale::Batch, kind, of(batch(kind), own));
        check(Baseline::Group, RewardScale::None, kind, own);
        check(Baseline::LeaveOneOut, RewardScale::Group, kind, of(groups(kind), others));
        check(Baseline::LeaveOneOut, RewardScale::Batch, kind, of(batch(kind), others));
        check(Baseline::LeaveOneOut, RewardScale::None, kind, others);
        check(Baseline::Batch, RewardScale::Batch, kind, of(batch(kind), all));
        check(Baseline::Batch, RewardScale::None, kind, all);
        check(Baseline::None, RewardScale::None, kind, [[1.0, 3.0], [0.0, 8.0]]);
        // The level is 0.4, which the smaller of two rewards reaches.
        let smaller = [[0.0, 2.0], [0.0, 8.0]];
        check(Baseline::Quantile, RewardScale::Group, kind, of(groups(kind), smaller));
        check(Baseline::Quantile, RewardScale::Batch, kind, of(batch(kind), smaller));
        check(Baseline::Quantile, RewardScale::None, kind, smaller);
    }
    let clip = Some(2.0);
    let config = AdvantageConfig { clip, scale: RewardScale::None, ..Default::default() };
    let got = group_advantages(&rewards, &config).unwrap();
    assert_eq!(got.groups, [vec![-1.0, 1.0], vec![-2.0, 0.0, 2.0]]);
}

/// The baseline is the smallest reward with at least the fraction K of all rewards at or below it.
#[test]
fn quantiles_by_hand() {
    let advantages = |rewards: &[f64], quantile| {
        let (baseline, scale) = (Baseline::Quantile, RewardScale::None);
        let config = AdvantageConfig { baseline, quantile, scale, ..Default::default() };
        let rewards: Vec<Option<f64>> = rewards.iter().map(|&reward| Some(reward)).collect();
        let own =
            group_advantages(std::slice::from_ref(&rewards), &config).unwrap().groups.remove(0);
        let outside = vec![vec![Some(10.0)]];
        (own, advantages_against(&rewards, &outside, &[1.0], &config).unwrap()[0])
    };
    let ten: Vec<f64> = (1..=10).map(|rank| 11.0 - f64::from(rank)).collect();
    // 0.3 · 10 is rounded to 3, and 0.7 · 10 to 7. In f64, 0.1 · 3 is more than 0.3.
    for (level, expected) in [
        (1e-9, 1.0),
        (0.1, 1.0),
        (0.101, 2.0),
        (0.3, 3.0),
        (0.1 * 3.0, 4.0),
        (0.7, 7.0),
        (0.95, 10.0),
        (1.0, 10.0),
    ] {
        let (own, outside) = advantages(&ten, level);
        assert_eq!((own[0], own[9], outside), (10.0 - expected, 1.0 - expected, 10.0 - expected));
    }
    // Wu et al. 2025: with rewards of 0 and 1, the baseline is 1 if more than the fraction 1 − K is correct.
    assert_eq!(advantages(&[0.0, 0.0, 0.0, 1.0, 1.0], 0.4).0, [0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(advantages(&[0.0, 1.0, 1.0, 1.0, 1.0], 0.4).0, [-1.0, 0.0, 0.0, 0.0, 0.0]);
    let (own, outside) = advantages(&[], 0.4);
    assert_eq!((own, outside), (vec![], 0.0));
}

/// Reward functions abstain independently of each other.
#[test]
fn several_functions_by_hand() {
    let rewards = vec![
        vec![vec![Some(1.0), Some(4.0)], vec![Some(3.0), None], vec![None, None]],
        vec![vec![None, Some(1.0)], vec![Some(2.0), Some(3.0)]],
    ];
    let of = |config: &AdvantageConfig| {
        weighted_group_advantages(&rewards, &[2.0, 0.5], config).unwrap()
    };
    let summed = AdvantageConfig { scale: RewardScale::None, ..Default::default() };
    // Weighted sums: 4, 6, none | ½, 5½.
    let got = of(&summed);
    assert_eq!(got.groups, [vec![-1.0, 1.0, 0.0], vec![-2.5, 2.5]]);
    assert_eq!((got.reward.mean, got.objective.mean), (4.0, 4.0));
    let parts = AdvantageConfig {
        aggregation: Aggregation::NormalizeThenSum,
        deviation: Deviation::Population,
        epsilon: 0.0,
        ..Default::default()
    };
    // z for the first function: −1, 1, – | –, 0. For the second function: 0, –, – | −1, 1.
    let got = of(&parts);
    // Objectives: −2, 2, – | −½, ½, with mean 0 and mean square 17/8.
    let divisor = (17.0_f64 / 8.0).sqrt();
    let expected = [vec![-2.0, 2.0, 0.0], vec![-0.5, 0.5]];
    let expected = expected.map(|group| group.iter().map(|a| a / divisor).collect()).to_vec();
    all_close(&got.groups, &expected, 4.0 * f64::EPSILON, "GDPO");
    assert_eq!((got.reward.mean, got.objective.mean), (4.0, 0.0));
    close(got.objective.std, (8.5_f64 / 3.0).sqrt(), 1e-15, "sample deviation of the objective");
    assert_eq!((got.zero_std, got.zero_std_share), (vec![false; 2], 0.0));
    // Clipping applies to the final result, and the configured scale is ignored.
    let clipped = AdvantageConfig { clip: Some(0.5), scale: RewardScale::None, ..parts };
    let got = of(&clipped).groups;
    let small = 0.5 / divisor;
    all_close(
        &got,
        &vec![vec![-0.5, 0.5, 0.0], vec![-small, small]],
        4.0 * f64::EPSILON,
        "clipped GDPO",
    );
}

#[test]
fn constant_functions_of_gdpo_teach_nothing_and_flag_their_group() {
    let parts =
        AdvantageConfig { aggregation: Aggregation::NormalizeThenSum, ..Default::default() };
    let rewards = vec![vec![vec![Some(0.95)]; 8], vec![vec![Some(7.0)]; 4]];
    let got = weighted_group_advantages(&rewards, &[1.0], &parts).unwrap();
    assert_eq!(got.groups, [vec![0.0; 8], vec![0.0; 4]]);
    assert_eq!((got.zero_std, got.zero_std_share), (vec![true; 2], 1.0));
    assert!(got.reward.std > 0.0);
    assert_eq!(got.objective, MeanAndStd { mean: 0.0, std: 0.0 });
    // The flag is set per group: a group with equal rewards has it even if another group varies.
    let two = |a: f64, b: f64| vec![vec![Some(a)], vec![Some(b)]];
    let got = weighted_group_advantages(&[two(1.0, 1.0), two(0.0, 1.0)], &[1.0], &parts).unwrap();
    assert_eq!((got.zero_std, got.zero_std_share), (vec![true, false], 0.5));
}

/// A reward that cannot be compared with others results in neither an advantage nor a flag. Only groups
/// without any reward are counted as groups without a difference.
#[test]
fn fewer_than_two_rewards_give_zero() {
    #[track_caller]
    fn nothing(got: &Advantages, rewards: &Rewards, mean: f64) {
        for (advantages, rewards) in got.groups.iter().zip(rewards) {
            assert_eq!(*advantages, vec![0.0; rewards.len()]);
        }
        assert_eq!(got.zero_std, vec![false; rewards.len()]);
        let counts = rewards.iter().map(|group| (group.len(), group.iter().all(Option::is_none)));
        let unrewarded: usize = counts.filter(|(_, has_none)| *has_none).map(|(len, _)| len).sum();
        let all: usize = rewards.iter().map(Vec::len).sum();
        assert_eq!(got.zero_std_share, unrewarded as f64 / all.max(1) as f64);
        close(got.reward.mean, mean, 0.0, "mean");
        assert!(got.reward.std.is_nan());
    }
    for config in settings() {
        for (rewards, mean) in [
            (vec![vec![Some(0.4)]], 0.4),
            (vec![vec![None, Some(0.4), None]], 0.4),
            (vec![vec![None, None]], f64::NAN),
            (vec![vec![], vec![Some(0.4)]], 0.4),
            (vec![vec![]], f64::NAN),
            (vec![], f64::NAN),
        ] {
            nothing(&group_advantages(&rewards, &config).unwrap(), &rewards, mean);
        }
    }
    // With a batch baseline, a group of one is compared with the entire batch.
    let rewards = vec![vec![Some(1.0)], vec![Some(2.0), Some(6.0)]];
    let config = AdvantageConfig {
        baseline: Baseline::Batch,
        scale: RewardScale::None,
        ..Default::default()
    };
    let got = group_advantages(&rewards, &config).unwrap();
    assert_eq!(got.groups, [vec![-2.0], vec![-1.0, 3.0]]);
}

#[test]
fn a_deviation_is_exact_where_squares_would_vanish() {
    let rewards = [vec![Some(0.0), Some(1e-200)], vec![Some(0.0), Some(2e100 / 2.0)]];
    let config = AdvantageConfig { epsilon: 0.0, ..Default::default() };
    let got = group_advantages(&rewards, &config).unwrap();
    let half = 0.5_f64.sqrt();
    all_close(&got.groups, &vec![vec![-half, half]; 2], 1e-15, "advantage");
}

#[test]
fn reports_the_position_of_a_non_finite_reward() {
    let check = |reward: f64, name: &str| {
        let rewards = vec![vec![Some(1.0), Some(2.0)], vec![None, Some(1.0), Some(reward)]];
        let error = group_advantages(&rewards, &AdvantageConfig::default()).unwrap_err();
        assert!(matches!(error, AdvantageError::NotFinite { group: 1, sample: 2, .. }));
        assert_eq!(
            error.to_string(),
            format!(
                "the reward of completion 2 of group 1 is {name}, but only finite rewards up to 1e100 in magnitude can be compared; correct the reward in the [reward] section or its program"
            )
        );
    };
    check(f64::NAN, "NaN");
    check(1e300, "1e300");
    check(f64::INFINITY, "inf");
    check(f64::NEG_INFINITY, "-inf");
    check(-2e100, "-2e100");
    for largest in [1e100, -1e100] {
        let rewards = vec![vec![Some(largest), Some(0.0)]];
        let got = group_advantages(&rewards, &AdvantageConfig::default()).unwrap();
        close(got.groups[0][0], largest.signum() * 0.5_f64.sqrt(), 1e-15, "largest reward");
    }
}

#[test]
fn weights_are_as_many_as_functions_and_finite() {
    let of = |rewards: Vec<Option<f64>>, weights: &[f64]| {
        let rewards = vec![vec![vec![Some(1.0); weights.len()], rewards]];
        let got = weighted_group_advantages(&rewards, weights, &AdvantageConfig::default());
        got.map_err(|error| error.to_string())
    };
    let ragged = |found: usize| {
        format!(
            "completion 1 of group 0 has {found} rewards, but there are 2 weights; provide one reward per reward function ('abstained' if there is none)"
        )
    };
    assert_eq!(of(vec![None], &[1.0, 2.0]), Err(ragged(1)));
    assert_eq!(of(vec![None; 3], &[1.0, 2.0]), Err(ragged(3)));
    for weight in [f64::NAN, f64::INFINITY, -2e100] {
        let message = format!(
            "the weight of reward function 1 is {weight:e}; a weight must be finite and at most 1e100 in magnitude"
        );
        assert_eq!(of(vec![None; 2], &[1.0, weight]), Err(message));
    }
    assert!(of(vec![None; 2], &[1e100, -1e100]).is_ok());
    // Group sizes may differ.
    let rewards = vec![vec![vec![Some(1.0)]; 2], vec![vec![Some(2.0)]; 5], vec![]];
    assert!(weighted_group_advantages(&rewards, &[1.0], &AdvantageConfig::default()).is_ok());
    // Without reward functions, no completion is scored.
    let got = weighted_group_advantages(&[vec![vec![]; 2]], &[], &AdvantageConfig::default());
    assert_eq!(got.unwrap().groups, [[0.0; 2]]);
}

/// The objectives are weighted sums; a group that is compared with itself has the advantages of a group.
#[test]
fn compared_with_a_group() {
    let group = [Some(0.1), Some(0.7), None, Some(0.4), Some(0.4)];
    let rewards: Vec<Vec<Option<f64>>> = group.iter().map(|reward| vec![*reward]).collect();
    for config in settings() {
        let got = advantages_against(&group, &rewards, &[1.0], &config);
        if config.aggregation == Aggregation::NormalizeThenSum {
            assert!(matches!(got, Err(AdvantageError::Config(_))), "{config:?}");
            continue;
        }
        let own = group_advantages(&[group.to_vec()], &config).unwrap();
        assert_eq!(own.objectives, [group]);
        let others = if config.baseline == Baseline::LeaveOneOut { 3.0 / 4.0 } else { 1.0 };
        // With a clip, the factor cannot be undone.
        if config.clip.is_none() || others == 1.0 {
            let own: Vec<f64> = own.groups[0].iter().map(|advantage| others * advantage).collect();
            all_close(&vec![got.unwrap()], &vec![own], 1e-15, &format!("{config:?}"));
        }
    }
    // The mean is 2, the standard deviation 1. The weighted sums of the rewards are 5 and 0.
    let config = |baseline, scale, clip| AdvantageConfig {
        baseline,
        scale,
        clip,
        deviation: Deviation::Population,
        epsilon: 0.5,
        ..AdvantageConfig::default()
    };
    let (group, weights) = ([Some(1.0), None, Some(3.0)], [1.0, -2.0]);
    let rewards = [vec![Some(7.0), Some(1.0)], vec![None, None], vec![Some(0.0), None]];
    let against = |group: &[Option<f64>], config: &AdvantageConfig| {
        advantages_against(group, &rewards, &weights, config).unwrap()
    };
    for (baseline, scale, clip, expected) in [
        (Baseline::Group, RewardScale::None, None, [3.0, 0.0, -2.0]),
        (Baseline::LeaveOneOut, RewardScale::None, None, [3.0, 0.0, -2.0]),
        (Baseline::None, RewardScale::None, None, [5.0, 0.0, 0.0]),
        (Baseline::Group, RewardScale::Group, None, [2.0, 0.0, -4.0 / 3.0]),
        (Baseline::Batch, RewardScale::Batch, Some(1.5), [1.5, 0.0, -4.0 / 3.0]),
    ] {
        let got = against(&group, &config(baseline, scale, clip));
        all_close(&vec![got], &vec![expected.to_vec()], 1e-15, &format!("{baseline:?} {scale:?}"));
    }
    // Nothing to divide by, or nothing to compare with.
    let scaled = config(Baseline::Group, RewardScale::Group, None);
    let unscaled = config(Baseline::Group, RewardScale::None, None);
    assert_eq!(against(&[Some(1.0), Some(1.0)], &scaled), [0.0; 3]);
    assert_eq!(against(&[None], &scaled), [0.0; 3]);
    assert_eq!(against(&[None], &unscaled), [0.0; 3]);
    let bad = advantages_against(&group, &[vec![Some(f64::NAN)]], &[1.0], &scaled);
    assert!(matches!(bad, Err(AdvantageError::NotFinite { group: 0, sample: 0, .. })));
    let bad = advantages_against(&group, &[vec![Some(1.0)]], &[], &scaled);
    assert!(matches!(bad, Err(AdvantageError::Weights(_))));
}
