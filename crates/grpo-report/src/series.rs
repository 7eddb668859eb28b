//! Series of numbers over steps: read from metrics, smoothed, thinned, cut into quantiles.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// `(step, value)` of a metric in the lines that have it; what was not finite, which JSON cannot say, is NaN.
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

/// The step of line `i`: the line's own word, or its place.
pub(crate) fn step_of(line: &Map<String, Value>, i: usize) -> u64 {
    let step = grpo_run::step_of_line(line);
    step.filter(|step| *step < MOST_STEPS).unwrap_or(i as u64 + 1)
}

/// No run has more steps; a file that says so is not believed.
const MOST_STEPS: u64 = 1 << 50;
/// What is larger is off any chart.
pub(crate) const LARGEST: f64 = 1e100;

/// Points of a curve.
pub(crate) type Points = Vec<(f64, f64)>;

/// The values of a metric that a chart can show.
pub(crate) fn points_of(metrics: &[Map<String, Value>], name: &str) -> Points {
    let finite = values_of(metrics, name).into_iter().filter(|(_, value)| value.abs() < LARGEST);
    finite.map(|(step, value)| (step as f64, value)).collect()
}

/// Steps that a smoothed curve looks back over; 1 is no smoothing.
pub(crate) fn span(points: usize) -> usize {
    if points < 8 { 1 } else { (points / 10).max(3) }
}

/// The exponential moving average over about `span` points: weights fall by 1 − 2/(span + 1) from one to the one before,
/// and are divided by their sum, so that the beginning is not drawn toward 0.
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

/// At most about `most` points, of each stretch the lowest, the highest, the first and the one in the middle: a page of a
/// long run stays small, no peak is lost, and there is something between the peaks.
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
        // A step that no run can have is the line's place, and a number off any chart is no point.
        assert_eq!(values[2..], [(4, 1e300)]);
        assert_eq!(points_of(&lines, "kl"), [(3.0, 0.5)]);
        assert!(values_of(&lines, "reward").is_empty());
    }
}
