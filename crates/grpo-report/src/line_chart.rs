//! Lines as an SVG document.

use crate::axis::Horizontal;
use crate::chart::{Chart, Curve, Dot};
use crate::figure::{Figure, SIZE};
use crate::series::{Points, is_drawable};

/// A chart with lines that share their axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    /// Title of the chart.
    pub title: String,
    /// Titles of the horizontal and the vertical axis.
    pub axes: [String; 2],
    /// Positions on the horizontal axis with their labels, in any order. Repetitions are left out.
    pub labels: Vec<(f64, String)>,
    /// Names of the lines, with their points from left to right. Numbers that are not finite or
    /// reach 1e100 are left out.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl LineChart {
    /// Draws the chart as an SVG document. The vertical axis starts at 0.
    pub fn svg(&self) -> String {
        let mut labels = self.labels.clone();
        labels.retain(|(at, _)| is_drawable(*at));
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        labels.dedup();
        let mut chart = Chart {
            titles: self.axes.clone(),
            horizontal: Horizontal::Labels(labels),
            from_zero: true,
            size: SIZE,
            ..Chart::default()
        };
        for (color, (_, points)) in self.lines.iter().enumerate() {
            let points = points.iter().copied();
            let line: Points = points.filter(|(x, y)| is_drawable(*x) && is_drawable(*y)).collect();
            chart.dots.extend(line.iter().map(|at| Dot { color, at: *at, name: String::new() }));
            chart.curves.push(Curve { color, points: Vec::new(), line });
        }
        let legend = self.lines.iter().enumerate().map(|(color, line)| (color, line.0.clone()));
        let figure = Figure {
            file: String::new(),
            title: self.title.clone(),
            caption: String::new(),
            chart,
            legend: legend.collect(),
        };
        figure.standalone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_lines_labels_and_names() {
        let chart = LineChart {
            title: "Time per token".into(),
            axes: ["completions".into(), "µs".into()],
            labels: [(1.0, "sixteen"), (0.0, "eight"), (1.0, "sixteen"), (f64::INFINITY, "absent")]
                .map(|(at, label)| (at, label.to_owned()))
                .into(),
            lines: vec![
                ("sampling <1>".into(), vec![(0.0, 30.0), (1.0, 20.0)]),
                ("training".into(), vec![(0.0, f64::INFINITY), (1.0, 50.0)]),
            ],
        };
        let svg = chart.svg();
        for text in ["Time per token", "completions", "µs", "eight", "sixteen", "training"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("sampling &lt;1&gt;") && !svg.contains("absent"));
        assert_eq!(svg.matches("sixteen").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<svg").count(), 1);
    }
}
