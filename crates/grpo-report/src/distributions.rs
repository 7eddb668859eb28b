//! Compares the score distributions of several samples in a standalone SVG file with a histogram
//! and box plots.

use grpo_data::statistics::percentile_of_sorted;
use plotters::prelude::*;

use crate::chart::{Area, color};

/// A named sample of scores.
#[derive(Clone, Debug)]
pub struct Scores<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// The scores, in any order.
    pub values: Vec<f64>,
}

const SIZE: (u32, u32) = (960, 360);
/// Number of bins of a histogram.
pub(crate) const BINS: usize = 30;

/// Renders an SVG document with a histogram and box plots.
///
/// The histogram on the left has 30 bins of equal width and shows the fraction of each sample per
/// bin. The box plots on the right show the quartiles. Whiskers extend to the outermost values
/// within 1.5 times the interquartile range (Tukey 1977), and values beyond are drawn as points.
///
/// # Panics
/// Panics if a sample is empty.
pub fn distributions(of_what: &str, samples: &[Scores<'_>]) -> String {
    assert!(
        samples.iter().all(|sample| !sample.values.is_empty()),
        "every sample must have at least one value"
    );
    let mut svg = String::new();
    draw(&mut svg, of_what, samples).expect("writing to a string cannot fail");
    svg
}

fn draw(
    svg: &mut String,
    of_what: &str,
    samples: &[Scores<'_>],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SIZE.0 * 3 / 5);
    let range = range(samples);
    histogram(&left, of_what, samples, range)?;
    boxes(&right, of_what, samples, range)?;
    root.present()?;
    Ok(())
}

fn histogram(
    area: &Area<'_>,
    of_what: &str,
    samples: &[Scores<'_>],
    (low, high): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let shares: Vec<Vec<f64>> =
        samples.iter().map(|sample| shares(&sample.values, low, high)).collect();
    let most = shares.iter().flatten().copied().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption("Share of pairs", ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(low..high, 0.0..most * 1.05)?;
    chart.configure_mesh().disable_x_mesh().light_line_style(TRANSPARENT).x_desc(of_what).draw()?;
    let width = (high - low) / BINS as f64;
    let slot = 0.9 * width / samples.len() as f64;
    for (place, (sample, shares)) in samples.iter().zip(&shares).enumerate() {
        let style = color(place).filled();
        let bars = shares.iter().enumerate().map(|(bin, share)| {
            let from = low + bin as f64 * width + 0.05 * width + place as f64 * slot;
            Rectangle::new([(from, 0.0), (from + slot, *share)], style)
        });
        let label = format!("{} ({})", sample.name, sample.values.len());
        chart
            .draw_series(bars)?
            .label(label)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .border_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

fn boxes(
    area: &Area<'_>,
    of_what: &str,
    samples: &[Scores<'_>],
    (low, high): (f64, f64),
) -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<&str> = samples.iter().map(|sample| sample.name).collect();
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(of_what, ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..samples.len() as f64, low..high)?;
    // Puts a label at the center of each slot.
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(2 * samples.len() + 1)
        .x_label_formatter(&|x| {
            let is_middle = (x.fract() - 0.5).abs() < 1e-9;
            let name = names.get(x.floor() as usize).filter(|_| is_middle);
            name.map_or(String::new(), |name| (*name).to_owned())
        })
        .draw()?;
    for (place, sample) in samples.iter().enumerate() {
        let BoxPlot { quartiles: [q1, q2, q3], whiskers: (down, up), outside } =
            BoxPlot::of(&sample.values);
        let (middle, color) = (place as f64 + 0.5, color(place));
        let (from, to) = (middle - 0.22, middle + 0.22);
        let line =
            |points: [(f64, f64); 2], wide: u32| PathElement::new(points, BLACK.stroke_width(wide));
        chart.draw_series([
            Rectangle::new([(from, q1), (to, q3)], color.filled()),
            Rectangle::new([(from, q1), (to, q3)], BLACK.stroke_width(1)),
        ])?;
        chart.draw_series([
            line([(from, q2), (to, q2)], 3),
            line([(middle, down), (middle, q1)], 1),
            line([(middle, q3), (middle, up)], 1),
            line([(middle - 0.1, down), (middle + 0.1, down)], 1),
            line([(middle - 0.1, up), (middle + 0.1, up)], 1),
        ])?;
        let points =
            outside.into_iter().map(|value| Circle::new((middle, value), 2, color.filled()));
        chart.draw_series(points)?;
    }
    Ok(())
}

/// Returns the range of all values. It is never empty, even if all values are equal.
fn range(samples: &[Scores<'_>]) -> (f64, f64) {
    let values = samples.iter().flat_map(|sample| &sample.values);
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(*value), high.max(*value))
    });
    if high > low { (low, high) } else { (low - 0.5, high + 0.5) }
}

/// Returns the fraction of values in each bin. The last bin includes its upper bound.
pub(crate) fn shares(values: &[f64], low: f64, high: f64) -> Vec<f64> {
    let mut shares = vec![0.0; BINS];
    for value in values {
        let bin = ((value - low) / (high - low) * BINS as f64) as usize;
        shares[bin.min(BINS - 1)] += 1.0 / values.len() as f64;
    }
    shares
}

/// Statistics for a box plot.
#[derive(Debug, PartialEq)]
struct BoxPlot {
    quartiles: [f64; 3],
    whiskers: (f64, f64),
    outside: Vec<f64>,
}

impl BoxPlot {
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quartiles = [0.25, 0.5, 0.75].map(|share| percentile_of_sorted(&sorted, share));
        let reach = 1.5 * (quartiles[2] - quartiles[0]);
        let (low, high) = (quartiles[0] - reach, quartiles[2] + reach);
        let inside = |value: &&f64| (low..=high).contains(*value);
        // An interpolated quartile may lie outside the values within the whisker range.
        let down = sorted.iter().find(inside).copied().unwrap_or(quartiles[0]);
        let up = sorted.iter().rfind(inside).copied().unwrap_or(quartiles[2]);
        let whiskers = (down.min(quartiles[0]), up.max(quartiles[2]));
        Self {
            quartiles,
            whiskers,
            outside: sorted.iter().filter(|value| !inside(value)).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_and_the_largest_value_is_in() {
        let shares = shares(&[0.0, 0.04, 0.5, 1.0], 0.0, 1.0);
        assert_eq!((shares[0], shares[1], shares[15], shares[29]), (0.25, 0.25, 0.25, 0.25));
        assert_eq!(shares.iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn a_box_is_the_quartiles_and_what_is_far_is_outside() {
        let found = BoxPlot::of(&[4.0, 1.0, 2.0, 3.0, 100.0]);
        let expected =
            BoxPlot { quartiles: [2.0, 3.0, 4.0], whiskers: (1.0, 4.0), outside: vec![100.0] };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_drawing_is_one_document_with_names_escaped_also_of_equal_values() {
        for values in [vec![1.0, 2.0, 3.0], vec![0.25; 4]] {
            let samples = ["a<b", "c"].map(|name| Scores { name, values: values.clone() });
            let svg = distributions("engagement", &samples);
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(svg.contains("a&lt;b") && svg.contains("engagement") && !svg.contains("NaN"));
        }
    }
}
