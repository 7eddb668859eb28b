//! Properties of advantages, and the cases at the edge.

use grpo_core::{AdvantageConfig, AdvantageError, Advantages, RewardScale, group_advantages};
use proptest::prelude::*;

use crate::support::{cases, close, largest};

const SCALES: [RewardScale; 3] = [RewardScale::Group, RewardScale::Batch, RewardScale::None];

type Rewards = Vec<Vec<Option<f64>>>;

/// 1 to 4 groups of 2 to 8 completions; about one in six abstains.
fn rewards() -> impl Strategy<Value = Rewards> {
    let reward = prop::option::weighted(0.85, -10.0..10.0_f64);
    prop::collection::vec(prop::collection::vec(reward, 2..=8), 1..=4)
}

fn config(scale: RewardScale) -> AdvantageConfig {
    AdvantageConfig { scale, ..AdvantageConfig::default() }
}

fn of(rewards: &Rewards, scale: RewardScale) -> Advantages {
    group_advantages(rewards, &config(scale)).expect("finite rewards")
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

/// What rounding may do to the advantages of a group: that of the rewards, over the divisor; an error of the
/// divisor itself counts for each advantage in proportion to it.
fn rounding(rewards: &Rewards, group: usize, scale: RewardScale) -> f64 {
    let all = scored(&rewards.concat());
    let divisor = match scale {
        RewardScale::Group => deviation(&scored(&rewards[group])) + 1e-4,
        RewardScale::Batch => deviation(&all) + 1e-4,
        RewardScale::None => 1.0,
    };
    let rounding = 16.0 * f64::EPSILON * largest(&all);
    // Fewer than two rewards: exactly 0.
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

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn advantages_of_a_group_add_up_to_zero(rewards in rewards()) {
        for scale in SCALES {
            for (g, advantages) in of(&rewards, scale).groups.iter().enumerate() {
                let tolerance = advantages.len() as f64 * rounding(&rewards, g, scale);
                close(advantages.iter().sum(), 0.0, tolerance, "sum");
            }
        }
    }

    #[test]
    fn a_shift_of_all_rewards_changes_nothing(rewards in rewards(), shift in -1e4..1e4_f64) {
        let shifted = mapped(&rewards, |r| r + shift);
        for scale in SCALES {
            same(&of(&shifted, scale).groups, &of(&rewards, scale).groups, |g| {
                rounding(&shifted, g, scale)
            });
        }
    }

    /// Powers of two multiply without rounding, so that no tolerance is needed.
    #[test]
    fn a_positive_factor_changes_nothing_but_the_part_of_epsilon(
        rewards in rewards(),
        power in -20..20_i32,
    ) {
        let factor = f64::from(power).exp2();
        let scaled = mapped(&rewards, |r| r * factor);
        for scale in [RewardScale::Group, RewardScale::Batch] {
            let epsilon = 1e-4 * factor;
            let got = group_advantages(&scaled, &AdvantageConfig { scale, epsilon });
            prop_assert_eq!(got.expect("finite").groups, of(&rewards, scale).groups);
        }
        let linear = of(&rewards, RewardScale::None).groups;
        let linear: Vec<Vec<f64>> =
            linear.iter().map(|group| group.iter().map(|a| a * factor).collect()).collect();
        prop_assert_eq!(of(&scaled, RewardScale::None).groups, linear);
    }

    /// `A(k r) / A(r) = (s + ε) / (s + ε / k)` with the same ε.
    #[test]
    fn epsilon_damps_small_rewards(rewards in rewards(), factor in 1e-6..1.0_f64) {
        let scaled = mapped(&rewards, |r| r * factor);
        let got = of(&scaled, RewardScale::Group).groups;
        let expected = of(&rewards, RewardScale::Group).groups.into_iter().zip(&rewards);
        let expected: Vec<Vec<f64>> = expected
            .map(|(advantages, rewards)| {
                let s = deviation(&scored(rewards));
                let damping = (s + 1e-4) / (s + 1e-4 / factor);
                advantages.iter().map(|a| if *a == 0.0 { 0.0 } else { a * damping }).collect()
            })
            .collect();
        same(&got, &expected, |g| 4.0 * rounding(&rewards, g, RewardScale::Group));
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
        for scale in SCALES {
            let expected = permuted(&of(&rewards, scale).groups, &order, rotation);
            same(&of(&moved, scale).groups, &expected, |g| rounding(&moved, g, scale));
        }
    }

    #[test]
    fn a_completion_that_abstained_gets_zero_and_leaves_the_others_alone(rewards in rewards()) {
        let without: Rewards = rewards
            .iter()
            .map(|group| scored(group).into_iter().map(Some).collect())
            .collect();
        for scale in SCALES {
            let (all, without) = (of(&rewards, scale), of(&without, scale));
            for ((rewards, all), without) in rewards.iter().zip(all.groups).zip(without.groups) {
                let (kept, dropped): (Vec<_>, Vec<_>) =
                    rewards.iter().zip(all).partition(|(reward, _)| reward.is_some());
                prop_assert_eq!(kept.into_iter().map(|it| it.1).collect::<Vec<_>>(), without);
                prop_assert!(dropped.iter().all(|it| it.1 == 0.0));
            }
            close(all.reward_mean, without.reward_mean, 0.0, "reward_mean");
            close(all.reward_std, without.reward_std, 0.0, "reward_std");
        }
    }
}

/// Rounding makes the mean of 8 times 0.95 another number than 0.95, and a small deviation blows that up.
#[test]
fn a_constant_group_gets_exactly_zero_and_a_flag() {
    for offset in [0.0, 1e-9, 1e3, 1e6, 1e12, -1e6] {
        let rewards = vec![vec![Some(0.95 + offset); 8], vec![Some(0.1), Some(0.7)]];
        for scale in SCALES {
            let got = of(&rewards, scale);
            assert_eq!(got.groups[0], [0.0; 8], "{scale:?}, offset {offset}");
            assert_ne!(got.groups[1][0], 0.0);
            let flagged = if scale == RewardScale::Batch { 0.0 } else { 8.0 / 10.0 };
            assert_eq!(got.zero_std_share, flagged, "{scale:?}, offset {offset}");
        }
        // Completions that abstained are among those that nothing can be learned from.
        let abstaining = vec![vec![rewards[0][0], None, rewards[0][0]], rewards[1].clone()];
        let got = of(&abstaining, RewardScale::Group);
        assert_eq!((&got.groups[0], got.zero_std_share), (&vec![0.0; 3], 3.0 / 5.0));
        let got = of(&rewards[..1].to_vec(), RewardScale::Batch);
        assert_eq!((got.groups, got.zero_std_share), (vec![vec![0.0; 8]], 1.0));
        assert_eq!(got.reward_std, 0.0);
    }
}

#[test]
fn by_hand() {
    let rewards = vec![vec![Some(1.0), Some(3.0)], vec![Some(0.0), None, Some(8.0)]];
    #[track_caller]
    fn check(rewards: &Rewards, scale: RewardScale, epsilon: f64, expect: [[f64; 2]; 2]) {
        let got = group_advantages(rewards, &AdvantageConfig { scale, epsilon }).unwrap();
        let [first, second] = expect;
        let expect = [first.to_vec(), vec![second[0], 0.0, second[1]]];
        same(&got.groups, &expect, |_| 4.0 * f64::EPSILON);
        assert_eq!(got.reward_mean, 3.0);
        assert_eq!(got.reward_std, (38.0_f64 / 3.0).sqrt());
        assert_eq!(got.zero_std_share, 0.0);
    }
    let batch = (38.0_f64 / 3.0).sqrt() + 0.5;
    let (one, four) = (2_f64.sqrt() + 0.5, 32_f64.sqrt() + 0.5);
    let [a, b] = [1.0 / one, 4.0 / four];
    check(&rewards, RewardScale::Group, 0.5, [[-a, a], [-b, b]]);
    check(
        &rewards,
        RewardScale::Batch,
        0.5,
        [[-1.0 / batch, 1.0 / batch], [-4.0 / batch, 4.0 / batch]],
    );
    check(&rewards, RewardScale::None, 0.5, [[-1.0, 1.0], [-4.0, 4.0]]);
}

#[test]
fn a_group_of_one_has_no_deviation_no_flag_and_advantage_zero() {
    for scale in SCALES {
        for rewards in [vec![vec![Some(0.4)]], vec![vec![None, Some(0.4), None]]] {
            let got = of(&rewards, scale);
            assert_eq!(got.groups, [vec![0.0; rewards[0].len()]]);
            assert_eq!(got.reward_mean, 0.4);
            assert!(got.reward_std.is_nan());
            assert_eq!(got.zero_std_share, 0.0);
        }
        let nothing = of(&vec![vec![None, None]], scale);
        assert_eq!(nothing.groups, [[0.0, 0.0]]);
        assert!(nothing.reward_mean.is_nan() && nothing.reward_std.is_nan());
        assert_eq!(nothing.zero_std_share, 0.0);
    }
}

#[test]
fn a_reward_that_is_not_finite_is_named_by_its_place() {
    for (reward, name) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
        let rewards = vec![vec![Some(1.0), Some(2.0)], vec![None, Some(1.0), Some(reward)]];
        let error = group_advantages(&rewards, &AdvantageConfig::default()).unwrap_err();
        assert!(matches!(error, AdvantageError::NotFinite { group: 1, sample: 2, .. }));
        assert_eq!(
            error.to_string(),
            format!(
                "the reward of completion 2 of group 1 is {name}; a reward must be finite \
                 (return 'abstained' where there is none)"
            )
        );
    }
}
