//! How the cost of a token depends on threads, batch, length and size of the model.

mod charts;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::charts::draw;
use crate::models::{Model, Size};
use crate::work::{Shape, Work, sampling, training};

/// A measurement: some work of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    axis: Axis,
    kind: Kind,
    size: Size,
    completions: usize,
    tokens: usize,
}

/// What differs between the points of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// The number of threads.
    Threads,
    /// The number of completions.
    Batch,
    /// The number of tokens per completion.
    Tokens,
    /// The size of the model.
    Size,
}

/// The kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Sampling in groups of 8, from prompts of a single token.
    Sampling,
    /// Supervised training.
    Training,
}

/// A point as listed for `cargo xtask bench --scaling`.
#[derive(Debug, Serialize)]
pub struct Listed {
    name: String,
    axis: Axis,
    kind: Kind,
    model: &'static str,
    parameters: u64,
    completions: usize,
    tokens: usize,
}

/// Sizes with their names and numbers of parameters.
const SIZES: [(Size, &str, u64); 4] = [
    (Size::Prior, "0.8M", 827_392),
    (Size::Small, "6.4M", 6_386_688),
    (Size::Medium, "54M", 54_246_400),
    (Size::Large, "0.6B", 596_049_920),
];

/// Returns all points, those of an axis and kind of work after one another.
pub fn points() -> Vec<Point> {
    let of = |axis, size, completions, tokens| {
        move |kind| Point { axis, kind, size, completions, tokens }
    };
    let mut points = Vec::new();
    for kind in [Kind::Sampling, Kind::Training] {
        points.push(of(Axis::Threads, Size::Small, 64, 48)(kind));
        let batches = [8, 16, 32, 64, 128];
        points.extend(batches.map(|batch| of(Axis::Batch, Size::Small, batch, 48)(kind)));
        let lengths = [64, 128, 256, 512];
        points.extend(lengths.map(|tokens| of(Axis::Tokens, Size::Small, 16, tokens)(kind)));
        points.extend(SIZES.map(|(size, ..)| of(Axis::Size, size, 16, 64)(kind)));
    }
    points
}

impl Point {
    /// Returns the point with this name.
    pub fn named(name: &str) -> Option<Self> {
        points().into_iter().find(|point| point.to_string() == name)
    }

    /// Returns the point as it is listed.
    pub fn listed(self) -> Listed {
        let Self { axis, kind, completions, tokens, .. } = self;
        let (model, parameters) = self.model();
        Listed { name: self.to_string(), axis, kind, model, parameters, completions, tokens }
    }

    /// Creates the work to be measured.
    ///
    /// # Errors
    /// Returns an error if the model cannot be created.
    pub fn prepare(self) -> anyhow::Result<Work> {
        let Self { size, completions, tokens, .. } = self;
        let model = Model { size, context: tokens };
        match self.kind {
            Kind::Sampling => sampling(model, Shape::groups(completions / 8, tokens)),
            Kind::Training => training(model, completions, tokens, 1),
        }
    }

    fn model(self) -> (&'static str, u64) {
        let found = SIZES.into_iter().find(|(size, ..)| *size == self.size);
        let (_, name, parameters) = found.expect("every point has one of these sizes");
        (name, parameters)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = format!("{:?}", self.kind).to_lowercase();
        write!(f, "{kind}-{}-{}x{}", self.model().0, self.completions, self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;

    #[test]
    fn points_are_found_by_name() {
        for point in points() {
            let found = Point::named(&point.to_string()).unwrap();
            assert_eq!(Point { axis: point.axis, ..found }, point, "only the axis may differ");
        }
        assert_eq!(Point::named("sampling-small"), None);
    }

    #[test]
    fn sizes_are_as_listed() {
        for (size, name, parameters) in SIZES.into_iter().filter(|of| of.0 != Size::Large) {
            let model = Model { size, context: 64 }.build().unwrap();
            // Learned positions depend on the context.
            assert_eq!(model.num_params() as u64, parameters, "{name}");
        }
    }

    #[test]
    fn a_point_does_the_work_in_its_name() {
        let point = Point {
            axis: Axis::Batch,
            kind: Kind::Sampling,
            size: Size::Prior,
            completions: 8,
            tokens: 3,
        };
        assert_eq!(point.to_string(), "sampling-0.8M-8x3");
        assert_eq!(point.prepare().unwrap()().unwrap().work, 24.0);
        let point = Point { kind: Kind::Training, ..point };
        assert_eq!(point.prepare().unwrap()().unwrap().work, 24.0);
    }
}
