//! Compares advantages with plain f64 loops.

use grpo_core::{
    AdvantageConfig, Aggregation, Baseline, Deviation, RewardScale, weighted_group_advantages,
};

use crate::report::{Suite, Tolerance};
use crate::tensors::Precision;
use grpo_oracle as oracle;
use grpo_oracle::Draws;

/// Tests all valid combinations of settings, seven times each.
pub(super) fn suite() -> Suite {
    let mut suite = Suite::new("advantages", "f64 loops", Precision::F64);
    for config in configs() {
        for kind in [
            Kind::Plain,
            Kind::Plain,
            Kind::Abstaining,
            Kind::Abstaining,
            Kind::Few,
            Kind::Equal,
            Kind::Far,
        ] {
            check(&mut suite, &config, kind);
        }
    }
    suite
}

/// How rewards are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Random rewards without special properties.
    Plain,
    /// Some rewards are missing.
    Abstaining,
    /// Rewards are 0 or 1, so that many groups are constant.
    Few,
    /// Rewards are equal within a group, with a value whose f64 mean may be inexact.
    Equal,
    /// Differences between rewards are small compared with their magnitude.
    Far,
}

const BASELINES: [Baseline; 5] =
    [Baseline::Group, Baseline::Batch, Baseline::LeaveOneOut, Baseline::Quantile, Baseline::None];

fn configs() -> Vec<AdvantageConfig> {
    let mut all = Vec::new();
    for aggregation in [Aggregation::SumThenNormalize, Aggregation::NormalizeThenSum] {
        for baseline in BASELINES {
            for scale in [RewardScale::Group, RewardScale::Batch, RewardScale::None] {
                for deviation in [Deviation::Sample, Deviation::Population] {
                    for clip in [None, Some(0.7)] {
                        let config = AdvantageConfig {
                            aggregation,
                            baseline,
                            quantile: 0.6,
                            scale,
                            deviation,
                            epsilon: 1e-4,
                            clip,
                        };
                        all.extend(config.checked());
                    }
                }
            }
        }
    }
    all
}

fn check(suite: &mut Suite, config: &AdvantageConfig, kind: Kind) {
    let draws = &mut Draws::new(4, suite.cases);
    let functions = draws.whole(1, 3);
    let weights: Vec<f64> = (0..functions).map(|_| draws.between(-1.0, 2.0)).collect();
    let rewards: Vec<Vec<Vec<Option<f64>>>> = (0..draws.whole(1, 4))
        .map(|_| {
            let size = draws.whole(1, 6);
            let first: Vec<Option<f64>> = (0..functions).map(|_| reward(draws, kind)).collect();
            let next = |_| match kind {
                Kind::Equal => first.clone(),
                _ => (0..functions).map(|_| reward(draws, kind)).collect(),
            };
            (0..size).map(next).collect()
        })
        .collect();
    let expected = oracle::advantages(&rewards, &weights, config).concat();
    // Rewards of about 1000 have rounding errors of 1e-13, which are divided by about 1e-4.
    let far = if kind == Kind::Far { 1e-7 } else { 0.0 };
    let tolerance = Tolerance::of_largest_or_1(1e-9).plus(far);
    let AdvantageConfig { aggregation, baseline, scale, deviation, clip, .. } = config;
    let mut compared = suite.case(format!(
        "{kind:?}, {aggregation:?}, {baseline:?}, {scale:?}, {deviation:?}, clip {clip:?}"
    ));
    match weighted_group_advantages(&rewards, &weights, config) {
        Ok(got) => {
            let place = |i: usize| format!("advantages[{i}]");
            let got = got.groups.concat();
            compared.list(&place, &got, &expected, tolerance);
            // Equal and missing rewards must give exactly 0. A sum of z values may also happen to
            // be 0, so for that aggregation only equal rewards are checked.
            let is_nothing = |i: &usize| {
                expected[*i] == 0.0
                    && (kind == Kind::Equal || config.aggregation == Aggregation::SumThenNormalize)
            };
            for i in (0..expected.len().min(got.len())).filter(is_nothing) {
                compared.number(&place(i), got[i], 0.0, Tolerance::EXACT);
            }
        }
        Err(_) => compared.number("advantages (refused)", f64::NAN, 0.0, Tolerance::EXACT),
    }
}

fn reward(draws: &mut Draws, kind: Kind) -> Option<f64> {
    match kind {
        Kind::Plain | Kind::Equal => Some(draws.between(-1.0, 1.0)),
        Kind::Abstaining if draws.chance(0.3) => None,
        Kind::Abstaining => Some(draws.between(-1.0, 1.0)),
        Kind::Few => Some(draws.one_of(&[0.0, 0.95])),
        Kind::Far => Some(1000.0 + draws.between(-1.0, 1.0)),
    }
}
