//! Compares advantages with results from TRL.

use grpo_core::{Advantages, Aggregation, RewardScale, weighted_group_advantages};

use crate::golden::GoldenAdvantages;
use crate::report::{Comparison, Suite, Tolerance, largest};
use crate::tensors::Precision;
use grpo_oracle as oracle;

pub(super) fn suite(cases: &[GoldenAdvantages], source: &str) -> Suite {
    let mut suite = Suite::new("advantages", source, Precision::F64);
    for golden in cases {
        check(&mut suite, golden);
    }
    suite
}

fn check(suite: &mut Suite, golden: &GoldenAdvantages) {
    let mut case = suite.case(&golden.label);
    let place = |what: &'static str| move |i: usize| format!("{what}[{i}]");
    let expected = &golden.advantages;
    let of_scaled = of_scaled(golden);
    let bound = Tolerance::of_largest_or_1(1e-9).plus(of_scaled);

    let loops = oracle::advantages(&golden.rewards, &golden.weights, &golden.config).concat();
    case.list(&place("the f64 loops' advantages"), &loops, expected, bound);

    let Ok(got) = weighted_group_advantages(&golden.rewards, &golden.weights, &golden.config)
    else {
        case.number("advantages (refused by grpo-core)", f64::NAN, expected[0], bound);
        return;
    };
    if golden.config.scale == RewardScale::Group && !is_gdpo(golden) {
        // Each group is divided by its own standard deviation.
        let unit = 1e-9 * largest(expected).max(1.0);
        let mut start = 0;
        for (got, rewards) in got.groups.iter().zip(&golden.rewards) {
            let places = start..start + rewards.len();
            let deviation = std(&columns(golden, rewards)[0]).min(f64::MAX);
            let rounding = of_rewards(golden) / (deviation + golden.config.epsilon);
            let bound = Tolerance::EXACT.plus(unit + rounding);
            let place = |i: usize| format!("advantages[{}]", start + i);
            case.list(&place, got, &expected[places.clone()], bound);
            start = places.end;
        }
    } else {
        case.list(&place("advantages"), &got.groups.concat(), expected, bound);
    }
    check_constant_groups(&mut case, golden, &got);
    let of_objective = if is_gdpo(golden) { of_scaled } else { of_rewards(golden) };
    let bound = Tolerance::of_largest_or_1(1e-9).plus(of_objective);
    case.number("reward_mean", got.objective.mean, golden.reward_mean, bound);
    case.number("reward_std", got.objective.std, golden.reward_std, bound);
}

/// If TRL scales by the batch, its flag is for the whole batch and does not identify constant
/// groups. These are therefore determined from the rewards. If TRL sets the flag, all groups must
/// be constant.
fn check_constant_groups(case: &mut Comparison<'_>, golden: &GoldenAdvantages, got: &Advantages) {
    let is_of_batch = golden.config.scale == RewardScale::Batch || is_gdpo(golden);
    let is_constant = |group: &Vec<Vec<Option<f64>>>| {
        let columns = columns(golden, group);
        columns.iter().all(|column| column.len() >= 2 && column.iter().all(|r| *r == column[0]))
    };
    let rows = |flag: bool, group: &Vec<Vec<Option<f64>>>| vec![f64::from(flag); group.len()];
    let groups = golden.rewards.iter().zip(&got.zero_std);
    let flags: Vec<f64> = groups.flat_map(|(group, &flag)| rows(flag, group)).collect();
    let expected: Vec<f64> = match is_of_batch {
        true => golden.rewards.iter().flat_map(|group| rows(is_constant(group), group)).collect(),
        false => golden.is_std_zero.iter().map(|&flag| f64::from(flag)).collect(),
    };
    case.list(&|i| format!("is_std_zero[{i}]"), &flags, &expected, Tolerance::EXACT);
    if is_of_batch && golden.is_std_zero.iter().all(|&flag| flag) {
        case.number("is_std_zero of the batch", got.zero_std_share, 1.0, Tolerance::EXACT);
    }
    let share = expected.iter().sum::<f64>() / expected.len() as f64;
    let rounding_of_1 = Tolerance::of_largest_or_1(f64::EPSILON);
    case.number("frac_reward_zero_std", got.zero_std_share, share, rounding_of_1);
}

/// Estimates how rounding errors in the rewards affect the advantages:
/// `16 · 2⁻⁵² · max|R| / (std + ε)`, with the smallest divisor.
fn of_scaled(golden: &GoldenAdvantages) -> f64 {
    let groups: Vec<Vec<Vec<f64>>> =
        golden.rewards.iter().map(|group| columns(golden, group)).collect();
    let of_groups = groups.iter().flatten().map(|column| std(column));
    let smallest = match golden.config.scale {
        _ if is_gdpo(golden) => of_groups.fold(f64::INFINITY, f64::min),
        RewardScale::Group => of_groups.fold(f64::INFINITY, f64::min),
        RewardScale::Batch => std(&groups.concat().concat()),
        RewardScale::None => 1.0,
    };
    // If a group has no standard deviation, its advantages are 0.
    of_rewards(golden) / (smallest.min(f64::MAX) + golden.config.epsilon)
}

fn is_gdpo(golden: &GoldenAdvantages) -> bool {
    golden.config.aggregation == Aggregation::NormalizeThenSum
}

/// Returns `16 · 2⁻⁵² · max|R|`.
fn of_rewards(golden: &GoldenAdvantages) -> f64 {
    let rewards = golden.rewards.iter().flatten().flatten().flatten();
    16.0 * f64::EPSILON * largest(rewards)
}

/// Returns the values that are centred within a group: either the rewards from each function or
/// their weighted sum.
fn columns(golden: &GoldenAdvantages, group: &[Vec<Option<f64>>]) -> Vec<Vec<f64>> {
    let functions = 0..golden.weights.len();
    if is_gdpo(golden) {
        return functions.map(|k| group.iter().filter_map(|row| row[k]).collect()).collect();
    }
    let sum = |row: &Vec<Option<f64>>| {
        let terms: Vec<f64> =
            row.iter().zip(&golden.weights).filter_map(|(r, w)| Some((*r)? * w)).collect();
        (!terms.is_empty()).then(|| terms.iter().sum())
    };
    vec![group.iter().filter_map(sum).collect()]
}

/// Returns infinity for fewer than two values.
fn std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::INFINITY;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}
