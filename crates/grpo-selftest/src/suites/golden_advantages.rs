//! Advantages against TRL's.

use grpo_core::{Aggregation, RewardScale, weighted_group_advantages};

use crate::golden::GoldenAdvantages;
use crate::oracle;
use crate::report::{Suite, Tolerance, largest};
use crate::tensors::Precision;

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
        // Each group is divided by its own deviation.
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
    let of_rows = |flags: &[bool]| flags.iter().map(|&f| f64::from(u8::from(f))).collect();
    let flags: Vec<bool> = got
        .zero_std
        .iter()
        .zip(&golden.rewards)
        .flat_map(|(&flag, group)| vec![flag; group.len()])
        .collect();
    let (flags, expected_flags): (Vec<f64>, Vec<f64>) =
        (of_rows(&flags), of_rows(&golden.is_std_zero));
    case.list(&place("is_std_zero"), &flags, &expected_flags, Tolerance::EXACT);
    let share = expected_flags.iter().sum::<f64>() / expected_flags.len() as f64;
    let rounding_of_1 = Tolerance::of_largest_or_1(f64::EPSILON);
    case.number("frac_reward_zero_std", got.zero_std_share, share, rounding_of_1);
    let of_objective = if is_gdpo(golden) { of_scaled } else { of_rewards(golden) };
    let bound = Tolerance::of_largest_or_1(1e-9).plus(of_objective);
    case.number("reward_mean", got.objective.mean, golden.reward_mean, bound);
    case.number("reward_std", got.objective.std, golden.reward_std, bound);
}

/// What rounding of rewards makes of advantages: `16 · 2⁻⁵² · max|R| / (std + ε)`, with the smallest
/// deviation that something is divided by.
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
    // A group without a deviation has no rounding: its advantages are 0.
    of_rewards(golden) / (smallest.min(f64::MAX) + golden.config.epsilon)
}

fn is_gdpo(golden: &GoldenAdvantages) -> bool {
    golden.config.aggregation == Aggregation::NormalizeThenSum
}

/// `16 · 2⁻⁵² · max|R|`.
fn of_rewards(golden: &GoldenAdvantages) -> f64 {
    let rewards = golden.rewards.iter().flatten().flatten().flatten();
    16.0 * f64::EPSILON * largest(rewards)
}

/// What is centred in a group: the rewards of each function, or their weighted sum.
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

/// Infinite for fewer than two values.
fn std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return f64::INFINITY;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}
