//! What additional samples of a prompt gain: diversity efficiency ratio, independence ratio and
//! collapse point.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_shares};

/// How Pass@k increases with k.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiversityEfficiency {
    /// Pass@k by k.
    pub passk: BTreeMap<usize, f64>,
    /// Diversity efficiency ratio, Pass@k / (k · Pass@1). It is 1 for k = 1, and 0 if Pass@1 is 0. It
    /// is at most 1 / (k · Pass@1), so it is small for every model with a high Pass@1.
    pub der: BTreeMap<usize, f64>,
    /// Independence ratio, see [`independence_ratio`]. Undefined values are left out.
    pub independence: BTreeMap<usize, f64>,
    /// The first k from which more samples hardly help, see [`collapse_point`].
    pub collapse_point: usize,
}

impl DiversityEfficiency {
    /// Computes all measures from Pass@k by k. JSON objects with keys such as `"10"` can be
    /// deserialized to this map.
    ///
    /// # Errors
    /// Returns an error if a value is not between 0 and 1, if Pass@1 is missing, or if k is 0.
    pub fn new(passk: &BTreeMap<usize, f64>) -> Result<Self, MeasureError> {
        let values: Vec<f64> = passk.values().copied().collect();
        check_shares("Pass@k", &values)?;
        if passk.contains_key(&0) {
            let what = "k of Pass@k".to_owned();
            return Err(MeasureError::OutOfRange {
                what,
                found: "0".into(),
                expected: "at least 1",
            });
        }
        let Some(&pass_1) = passk.get(&1) else {
            return Err(MeasureError::MissingMetric {
                place: "the Pass@k curve".to_owned(),
                metric: "1".to_owned(),
                fix: "compute Pass@1 too",
            });
        };
        let der = |(&k, &pass_k): (&usize, &f64)| match k {
            1 => (k, 1.0),
            _ if pass_1 == 0.0 => (k, 0.0),
            _ => (k, pass_k / (k as f64 * pass_1)),
        };
        let ratio =
            |(&k, &pass_k): (&usize, &f64)| Some((k, independence_ratio(pass_1, pass_k, k)?));
        Ok(Self {
            passk: passk.clone(),
            der: passk.iter().map(der).collect(),
            independence: passk.iter().filter_map(ratio).collect(),
            collapse_point: collapse_point(passk),
        })
    }
}

/// Returns (Pass@k − Pass@1) / (1 − (1 − Pass@1)^k − Pass@1). It is 0 if all samples of a prompt are
/// identical, and 1 if samples are independent and all prompts equally difficult.
///
/// It is above 1 if samples of a prompt avoid each other, which happens in small samples, because
/// Pass@k is estimated without replacement. Returns `None` if k samples cannot do better than one: for
/// k = 1, and if Pass@1 is 0 or 1.
pub fn independence_ratio(pass_1: f64, pass_k: f64, k: usize) -> Option<f64> {
    let possible = 1.0 - (1.0 - pass_1).powf(k as f64) - pass_1;
    let is_defined = k > 1 && pass_1 > 0.0 && pass_1 < 1.0 && possible > 0.0;
    is_defined.then(|| (pass_k - pass_1) / possible)
}

/// Returns the upper k of the first interval in which Pass@k increases by less than 0.01 per
/// additional sample, or the largest k if there is no such interval. Increases that differ from 0.01
/// by rounding errors only count as 0.01. Returns 0 for an empty map.
pub fn collapse_point(passk: &BTreeMap<usize, f64>) -> usize {
    let intervals = passk.iter().zip(passk.iter().skip(1));
    let is_flat = |((k, pass), (next_k, next)): &((&usize, &f64), (&usize, &f64))| {
        *next - *pass < 0.01 * (*next_k - *k) as f64 - 1e-12
    };
    let flat = { intervals }.find(is_flat).map(|(_, (next_k, _))| *next_k);
    flat.or_else(|| passk.keys().next_back().copied()).unwrap_or(0)
}

/// Band of a diversity efficiency ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EfficiencyBand {
    /// Above 0.3.
    Good,
    /// Above 0.15.
    Moderate,
    /// At most 0.15.
    Poor,
}

impl EfficiencyBand {
    /// Returns the band of a diversity efficiency ratio.
    pub fn new(der: f64) -> Self {
        match der {
            _ if der > 0.3 => Self::Good,
            _ if der > 0.15 => Self::Moderate,
            _ => Self::Poor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn new(curve: &[(usize, f64)]) -> DiversityEfficiency {
        DiversityEfficiency::new(&curve.iter().copied().collect()).unwrap()
    }

    #[test]
    fn ratios_by_hand() {
        let found = new(&[(1, 0.40), (5, 0.60), (10, 0.70)]);
        for (k, expected) in [(1, 1.0), (5, 0.30), (10, 0.175)] {
            assert!((found.der[&k] - expected).abs() < 1e-15, "{found:?}");
        }
        assert_eq!(found.collapse_point, 10);
        let expected = 0.3 / (0.6 - 0.6_f64.powi(10));
        assert!((found.independence[&10] - expected).abs() < 1e-12, "{found:?}");
        assert!(!found.independence.contains_key(&1));
        assert_eq!(EfficiencyBand::new(found.der[&10]), EfficiencyBand::Moderate);
        assert_eq!(EfficiencyBand::new(0.31), EfficiencyBand::Good);
        assert_eq!(EfficiencyBand::new(0.15), EfficiencyBand::Poor);
    }

    #[test]
    fn collapse_points_by_hand() {
        let curve = [(1, 0.40), (3, 0.50), (5, 0.60), (10, 0.62), (20, 0.63)];
        assert_eq!(new(&curve).collapse_point, 10);
        // 0.7 − 0.6 is smaller than 0.1 in floating point, but the slope is 0.01.
        assert_eq!(new(&[(1, 0.6), (11, 0.7), (12, 0.7)]).collapse_point, 12);
        assert_eq!(new(&[(1, 0.6)]).collapse_point, 1);
    }

    #[test]
    fn degenerate_curves() {
        let never = new(&[(1, 0.0), (10, 0.0)]);
        assert_eq!((never.der[&1], never.der[&10], never.independence.len()), (1.0, 0.0, 0));
        assert!(new(&[(1, 1.0), (10, 1.0)]).independence.is_empty());
        let fault = |curve: &[(usize, f64)]| {
            DiversityEfficiency::new(&curve.iter().copied().collect()).unwrap_err().to_string()
        };
        assert_eq!(fault(&[(5, 0.5)]), "the Pass@k curve has no metric `1`; compute Pass@1 too");
        assert_eq!(fault(&[(1, 1.5)]), "Pass@k[0] is 1.5; expected 0 to 1");
        assert!(DiversityEfficiency::new(&[(0, 0.5), (1, 0.5)].into()).is_err());
    }

    /// As strings, "10" would be sorted before "5".
    #[test]
    fn keys_of_json_are_numbers() {
        let read: BTreeMap<usize, f64> =
            serde_json::from_str(r#"{"10": 0.70, "1": 0.40, "5": 0.60}"#).unwrap();
        let found = DiversityEfficiency::new(&read).unwrap();
        assert_eq!(found, new(&[(1, 0.40), (5, 0.60), (10, 0.70)]));
        let written = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<DiversityEfficiency>(&written).unwrap(), found);
    }

    proptest! {
        #[test]
        fn identical_samples_have_ratio_zero_and_independent_ones_have_ratio_one(
            pass_1 in 0.01..0.99_f64, k in 2_usize..30,
        ) {
            prop_assert_eq!(independence_ratio(pass_1, pass_1, k), Some(0.0));
            let independent = 1.0 - (1.0 - pass_1).powf(k as f64);
            let found = independence_ratio(pass_1, independent, k).unwrap();
            prop_assert!((found - 1.0).abs() < 1e-12);
        }
    }
}
