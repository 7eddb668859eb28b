//! Time series of metrics, with functions to smooth, thin and summarise them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Returns `(step, value)` for all lines that contain a metric. Non-finite values, which JSON
/// stores as `null`, become NaN.
pub(crate) fn values_of(metrics: &[Map<String, Value>], name: &str) -> Vec<(u64, f64)> {
    let value = |(i, line): (usize, &Map<String, Value>)| {
        let value = match line.get(name)? {
            Value::Null => f64::NAN,
            value => value.as_f64()?,
        };
        Some((step_of(line, i), value))
    };
    metrics.iter().enumerate().filter_map(value).collect()
}

/// Returns the step of line `i`. Falls back to the line number if the step is missing or
/// implausible.
pub(crate) fn step_of(line: &Map<String, Value>, i: usize) -> u64 {
    let step = grpo_run::step_of_line(line);
    step.filter(|step| *step < MOST_STEPS).unwrap_or(i as u64 + 1)
}

/// Larger step numbers in a file are considered implausible.
pub(crate) const MOST_STEPS: u64 = 1 << 50;
/// Larger values are not plotted.
const LARGEST: f64 = 1e100;

/// Points of a curve as (step, value).
pub(crate) type Points = Vec<(f64, f64)>;

/// Returns whether a value can be plotted: it is finite and not implausibly large.
pub(crate) fn is_drawable(value: f64) -> bool {
    value.abs() < LARGEST
}

/// Returns the values of a metric that can be plotted.
pub(crate) fn points_of(metrics: &[Map<String, Value>], name: &str) -> Points {
    let finite = values_of(metrics, name).into_iter().filter(|(_, value)| is_drawable(*value));
    finite.map(|(step, value)| (step as f64, value)).collect()
}

/// Returns the span for smoothing a curve with this many points. 1 means no smoothing.
pub(crate) fn span(points: usize) -> usize {
    if points < 8 { 1 } else { (points / 10).max(3) }
}

/// Computes an exponential moving average over about `span` points. Weights decrease by a factor of
/// 1 − 2/(span + 1) per point into the past. They are normalised to sum to 1, so that the curve
/// does not start near 0.
pub(crate) fn smooth(points: &[(f64, f64)], span: usize) -> Points {
    let keep = 1.0 - 2.0 / (span as f64 + 1.0);
    let (mut sum, mut weights) = (0.0, 0.0);
    let average = |&(x, y): &(f64, f64)| {
        sum = keep * sum + y;
        weights = keep * weights + 1.0;
        (x, sum / weights)
    };
    points.iter().map(average).collect()
}

/// Reduces a curve to about `most` points. The first, lowest, highest and middle points of each
/// segment are kept. This keeps the pages of long runs small, preserves all peaks, and leaves some
/// points between them.
pub(crate) fn thin(points: &[(f64, f64)], most: usize) -> Points {
    if points.len() <= most {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(most / 4);
    let mut kept = Points::new();
    for part in points.chunks(stretch) {
        let by = |a: &usize, b: &usize| part[*a].1.total_cmp(&part[*b].1);
        let low = (0..part.len()).min_by(by).expect("a segment has at least one point");
        let high = (0..part.len()).max_by(by).expect("a segment has at least one point");
        let chosen = BTreeSet::from([0, part.len() / 2, low, high]);
        kept.extend(chosen.into_iter().map(|place| part[place]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_average_by_its_definition() {
        let points: Points = (0..20).map(|i| (f64::from(i), f64::from(i * i % 7))).collect();
        let span = 4;
        let keep: f64 = 1.0 - 2.0 / 5.0;
        for (i, &(x, y)) in smooth(&points, span).iter().enumerate() {
            let weight = |j: usize| keep.powi((i - j) as i32);
            let sum: f64 = (0..=i).map(|j| weight(j) * points[j].1).sum();
            let weights: f64 = (0..=i).map(weight).sum();
            assert_eq!(x, points[i].0);
            assert!((y - sum / weights).abs() < 1e-12, "{y} at {i}");
        }
        assert_eq!(smooth(&points, 1), points);
    }

    #[test]
    fn thinning_keeps_peaks_and_order() {
        let mut points: Points = (0..5000).map(|i| (f64::from(i), 0.5)).collect();
        points[1234].1 = 9.0;
        points[4321].1 = -9.0;
        let thinned = thin(&points, 400);
        assert!(thinned.len() <= 400, "{}", thinned.len());
        assert!(thinned.contains(&(1234.0, 9.0)) && thinned.contains(&(4321.0, -9.0)));
        assert!(thinned.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(thin(&points[..400], 400), &points[..400]);
    }

    #[test]
    fn null_is_not_a_number_and_an_absent_metric_is_nothing() {
        let lines = [
            r#"{"step": 3, "kl": 0.5}"#,
            r#"{"step": 4, "kl": null}"#,
            r#"{"step": 5}"#,
            r#"{"step": 18446744073709551615, "kl": 1e300}"#,
        ];
        let lines: Vec<Map<String, Value>> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let values = values_of(&lines, "kl");
        assert_eq!(values[0], (3, 0.5));
        assert!(values[1].0 == 4 && values[1].1.is_nan());
        // An implausible step is replaced by the line number, and a huge value is not plotted.
        assert_eq!(values[2..], [(4, 1e300)]);
        assert_eq!(points_of(&lines, "kl"), [(3.0, 0.5)]);
        assert!(values_of(&lines, "reward").is_empty());
    }
}
