//! Metrics of the same experiment with several seeds.

use std::collections::BTreeMap;

use grpo_data::statistics::{mean, population_variance, sample_variance};
use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_finite};

/// A metric over seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedSummary {
    /// Mean.
    pub mean: f64,
    /// Population standard deviation.
    pub population_std: f64,
    /// Sample standard deviation, which estimates the spread over all seeds. `None` for one seed.
    pub sample_std: Option<f64>,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// The values in the order of the seeds.
    pub values: Vec<f64>,
    /// Number of seeds.
    pub n_seeds: usize,
}

impl SeedSummary {
    /// Summarises the values of a metric.
    ///
    /// # Errors
    /// Returns an error if there are no values or one is not finite.
    pub fn new(values: &[f64]) -> Result<Self, MeasureError> {
        check_count("values of seeds", values.len(), 1)?;
        check_finite("values of seeds", values)?;
        Ok(Self {
            mean: mean(values),
            population_std: population_variance(values).sqrt(),
            sample_std: (values.len() > 1).then(|| sample_variance(values).sqrt()),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            values: values.to_vec(),
            n_seeds: values.len(),
        })
    }
}

/// Summarises the metrics of several seeds.
///
/// # Errors
/// Returns an error if there are no seeds, if a seed lacks a metric that another one has, or if a
/// number is not finite.
pub fn summarize_seeds(
    seeds: &BTreeMap<u64, BTreeMap<String, f64>>,
) -> Result<BTreeMap<String, SeedSummary>, MeasureError> {
    check_count("seeds", seeds.len(), 1)?;
    let metrics = seeds.values().flat_map(BTreeMap::keys);
    let mut summaries = BTreeMap::new();
    for metric in metrics {
        if summaries.contains_key(metric) {
            continue;
        }
        let value = |(seed, values): (&u64, &BTreeMap<String, f64>)| {
            values.get(metric).copied().ok_or_else(|| MeasureError::MissingMetric {
                place: format!("seed {seed}"),
                metric: metric.clone(),
                fix: "evaluate all seeds with the same settings",
            })
        };
        let values = seeds.iter().map(value).collect::<Result<Vec<f64>, _>>()?;
        summaries.insert(metric.clone(), SeedSummary::new(&values)?);
    }
    Ok(summaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(values: &[(&str, f64)]) -> BTreeMap<String, f64> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn summaries_by_hand() {
        let seeds = [(123, 3.0), (42, 1.0), (456, 5.0)];
        let seeds = seeds.map(|(seed, value)| (seed, metrics(&[("pass@1", value)]))).into();
        let found = &summarize_seeds(&seeds).unwrap()["pass@1"];
        assert_eq!((found.mean, found.min, found.max, found.n_seeds), (3.0, 1.0, 5.0, 3));
        assert_eq!((found.population_std, found.sample_std), ((8.0_f64 / 3.0).sqrt(), Some(2.0)));
        assert_eq!(found.values, [1.0, 3.0, 5.0]);
        assert_eq!(SeedSummary::new(&[2.0]).unwrap().sample_std, None);
    }

    #[test]
    fn a_missing_metric_is_named() {
        let seeds = [(1, metrics(&[("a", 1.0)])), (2, metrics(&[("a", 1.0), ("b", 2.0)]))].into();
        assert_eq!(
            summarize_seeds(&seeds).unwrap_err().to_string(),
            "seed 1 has no metric `b`; evaluate all seeds with the same settings"
        );
        assert!(summarize_seeds(&BTreeMap::new()).is_err());
        assert!(SeedSummary::new(&[1.0, f64::NAN]).is_err());
    }
}
