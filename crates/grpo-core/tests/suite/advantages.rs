//! Property tests for advantages.

use grpo_core::{
    AdvantageConfig, Advantages, Aggregation, Baseline, Deviation, RewardScale, group_advantages,
    weighted_group_advantages,
};
use grpo_oracle as oracle;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{cases, close, largest};

pub(crate) type Rewards = Vec<Vec<Option<f64>>>;

/// Returns all valid combinations of baseline, scale and deviation.
pub(crate) fn settings() -> Vec<AdvantageConfig> {
    let baselines = [Baseline::Group, Baseline::Batch, Baseline::LeaveOneOut];
    let scales = [RewardScale::Group, RewardScale::Batch, RewardScale::None];
    let mut all = Vec::new();
    for baseline in baselines {
        for scale in scales {
            for deviation in [Deviation::Sample, Deviation::Population] {
                let config =
                    AdvantageConfig { baseline, scale, deviation, ..AdvantageConfig::default() };
                all.extend(config.checked());
            }
        }
    }
    assert_eq!(all.len(), 16, "all but a batch baseline over a group's deviation");
    all
}

/// Generates 1 to 4 groups with 1 to 8 completions each. About 15 % of the rewards are missing.
fn rewards() -> impl Strategy<Value = Rewards> {
    let reward = prop::option::weighted(0.85, -10.0..10.0_f64);
    prop::collection::vec(prop::collection::vec(reward, 1..=8), 1..=4)
}

fn of(rewards: &Rewards, config: &AdvantageConfig) -> Advantages {
    group_advantages(rewards, config).expect("finite rewards")
}

fn mapped(rewards: &Rewards, map: impl Fn(f64) -> f64) -> Rewards {
    rewards.iter().map(|group| group.iter().map(|r| r.map(&map)).collect()).collect()
}

fn scored(rewards: &[Option<f64>]) -> Vec<f64> {
    rewards.iter().copied().flatten().collect()
}

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

/// Returns an upper bound for the rounding error of a group's advantages: the rounding error of the
/// rewards divided by the divisor. An error in the divisor itself is proportional to the advantage.
fn rounding(rewards: &Rewards, group: usize, config: &AdvantageConfig) -> f64 {
    let all = scored(&rewards.concat());
    // The population deviation is smaller by at most a factor of √2.
    let divisor = match config.scale {
        RewardScale::Group => deviation(&scored(&rewards[group])) / 1.5 + 1e-4,
        RewardScale::Batch => deviation(&all) / 1.5 + 1e-4,
        RewardScale::None => 1.0,
    };
    let rounding = 32.0 * f64::EPSILON * largest(&all);
    // With fewer than two rewards, the advantages are exactly 0.
    if divisor.is_nan() { 0.0 } else { rounding * (1.0 + 2.0 * largest(&all) / divisor) / divisor }
}

#[track_caller]
fn same(got: &[Vec<f64>], expected: &[Vec<f64>], tolerance: impl Fn(usize) -> f64) {
    assert_eq!(got.len(), expected.len());
    for (g, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            close(*got, *expected, tolerance(g), &format!("advantage in group {g}"));
        }
    }
}

/// Generates rewards from `k` functions for each completion, along with weights and settings that
/// include a clip.
fn several() -> impl Strategy<Value = (Vec<Rewards>, Vec<f64>, AdvantageConfig)> {
    let config = (select(settings()), any::<bool>(), prop::option::of(0.1..2.0_f64));
    let config = config.prop_map(|(config, parts, clip)| {
        let aggregation =
            if parts { Aggregation::NormalizeThenSum } else { Aggregation::SumThenNormalize };
        AdvantageConfig { aggregation, clip, ..config }
    });
    let config = config.prop_filter_map("allowed", |config| config.checked().ok());
    (1..=3_usize, config).prop_flat_map(|(k, config)| {
        // Few distinct values, so that some groups are constant.
        let values = prop_oneof![-5.0..5.0_f64, select(vec![0.0, 0.95])];
        let scores = prop::collection::vec(prop::option::weighted(0.8, values), k);
        let groups = prop::collection::vec(prop::collection::vec(scores, 1..=5), 1..=3);
        (groups, prop::collection::vec(-2.0..2.0_f64, k), Just(config))
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn advantages_equal_the_loops((rewards, weights, config) in several()) {
        let got = weighted_group_advantages(&rewards, &weights, &config).unwrap();
        let expected = oracle::advantages(&rewards, &weights, &config);
        // Rounding error of the rewards divided by the smallest possible divisor.
        let tolerance = 64.0 * f64::EPSILON * 5.0 / 1e-4;
        same(&got.groups, &expected, |_| tolerance);
        if let Some(clip) = config.clip {
            prop_assert!(got.groups.iter().flatten().all(|a| a.abs() <= clip));
        }
    }

    #[test]
    fn advantages_add_up_to_zero(rewards in rewards()) {
        for config in settings() {
            let groups = of(&rewards, &config).groups;
            let sums: Vec<f64> = groups.iter().map(|group| group.iter().sum()).collect();
            let tolerance = |g: usize| groups[g].len() as f64 * rounding(&rewards, g, &config);
            if config.baseline == Baseline::Batch {
                let tolerance: f64 = (0..groups.len()).map(tolerance).sum();
                close(sums.iter().sum(), 0.0, tolerance, "sum over the batch");
            } else {
                for (g, sum) in sums.into_iter().enumerate() {
                    close(sum, 0.0, tolerance(g), "sum over the group");
                }
            }
        }
    }

    #[test]
    fn a_shift_of_all_rewards_changes_nothing(rewards in rewards(), shift in -1e4..1e4_f64) {
        let shifted = mapped(&rewards, |r| r + shift);
        for config in settings() {
            same(&of(&shifted, &config).groups, &of(&rewards, &config).groups, |g| {
                rounding(&shifted, g, &config)
            });
        }
    }

    /// Multiplication by a power of two is exact, so no tolerance is needed.
    #[test]
    fn a_positive_factor_changes_nothing_but_the_part_of_epsilon(
        rewards in rewards(),
        power in -20..20_i32,
    ) {
        let factor = f64::from(power).exp2();
        let scaled = mapped(&rewards, |r| r * factor);
        for config in settings() {
            let expected = of(&rewards, &config).groups;
            if config.scale == RewardScale::None {
                let linear: Vec<Vec<f64>> =
                    expected.iter().map(|group| group.iter().map(|a| a * factor).collect()).collect();
                prop_assert_eq!(of(&scaled, &config).groups, linear);
            } else {
                let config = AdvantageConfig { epsilon: 1e-4 * factor, ..config };
                prop_assert_eq!(of(&scaled, &config).groups, expected);
            }
        }
    }

    /// `A(k r) / A(r) = (s + ε) / (s + ε / k)` for constant ε.
    #[test]
    fn epsilon_damps_small_rewards(rewards in rewards(), factor in 1e-6..1.0_f64) {
        let config = AdvantageConfig::default();
        let got = of(&mapped(&rewards, |r| r * factor), &config).groups;
        let expected = of(&rewards, &config).groups.into_iter().zip(&rewards);
        let expected: Vec<Vec<f64>> = expected
            .map(|(advantages, rewards)| {
                let s = deviation(&scored(rewards));
                let damping = (s + 1e-4) / (s + 1e-4 / factor);
                advantages.iter().map(|a| if *a == 0.0 { 0.0 } else { a * damping }).collect()
            })
            .collect();
        same(&got, &expected, |g| 4.0 * rounding(&rewards, g, &config));
    }

    #[test]
    fn the_order_in_a_group_and_of_groups_does_not_matter(
        (rewards, order) in rewards().prop_flat_map(|rewards| {
            let order: Vec<Vec<usize>> =
                rewards.iter().map(|group| (0..group.len()).collect()).collect();
            let order = order.into_iter().map(|o| Just(o).prop_shuffle()).collect::<Vec<_>>();
            (Just(rewards), order)
        }),
        rotation in 0..4_usize,
    ) {
        fn permuted<T: Copy>(values: &[Vec<T>], order: &[Vec<usize>], rotation: usize) -> Vec<Vec<T>> {
            let groups = values.iter().zip(order);
            let mut groups: Vec<Vec<T>> =
                groups.map(|(group, order)| order.iter().map(|&i| group[i]).collect()).collect();
            let count = groups.len();
            groups.rotate_left(rotation % count);
            groups
        }
        let moved = permuted(&rewards, &order, rotation);
        for config in settings() {
            let expected = permuted(&of(&rewards, &config).groups, &order, rotation);
            same(&of(&moved, &config).groups, &expected, |g| rounding(&moved, g, &config));
        }
    }

    #[test]
    fn a_completion_that_abstained_gets_zero_and_leaves_the_others_alone(rewards in rewards()) {
        let without: Rewards = rewards
            .iter()
            .map(|group| scored(group).into_iter().map(Some).collect())
            .collect();
        for config in settings() {
            let (all, without) = (of(&rewards, &config), of(&without, &config));
            close(all.reward.mean, without.reward.mean, 0.0, "mean of the reward");
            close(all.reward.std, without.reward.std, 0.0, "deviation of the reward");
            prop_assert_eq!(&all.zero_std, &without.zero_std);
            for ((rewards, all), without) in rewards.iter().zip(all.groups).zip(without.groups) {
                let (kept, dropped): (Vec<_>, Vec<_>) =
                    rewards.iter().zip(all).partition(|(reward, _)| reward.is_some());
                prop_assert_eq!(kept.into_iter().map(|it| it.1).collect::<Vec<_>>(), without);
                prop_assert!(dropped.iter().all(|it| it.1 == 0.0));
            }
        }
    }

    #[test]
    fn none_is_larger_than_the_size_of_its_group_allows(rewards in rewards()) {
        for config in settings() {
            if (config.baseline, config.scale) != (Baseline::Group, RewardScale::Group) {
                continue;
            }
            for (rewards, advantages) in rewards.iter().zip(of(&rewards, &config).groups) {
                // A group without scored completions has the same bound as a group with one.
                let n = scored(rewards).len().max(1) as f64;
                let bound = match config.deviation {
                    Deviation::Sample => (n - 1.0) / n.sqrt(),
                    Deviation::Population => (n - 1.0).sqrt(),
                };
                prop_assert!(advantages.iter().all(|a| a.abs() <= bound), "{advantages:?} of {n}");
            }
        }
    }
}

/// If a single completion differs from all others, its advantage reaches the bound, apart from the
/// effect of ε.
#[test]
fn the_bound_is_reached() {
    for n in 2..=16_u32 {
        let mut rewards = vec![Some(0.0); n as usize];
        rewards[0] = Some(1.0);
        let n = f64::from(n);
        let bounds = [(n - 1.0) / n.sqrt(), (n - 1.0).sqrt()];
        for (deviation, bound) in [Deviation::Sample, Deviation::Population].into_iter().zip(bounds)
        {
            let config = AdvantageConfig { deviation, epsilon: 0.0, ..AdvantageConfig::default() };
            let got = of(&vec![rewards.clone()], &config).groups[0][0];
            close(got, bound, 1e-14 * bound, &format!("{deviation:?} of {n}"));
        }
    }
}
