//! How the cost of a token depends on threads, batch, length and size of the model.

mod charts;

use std::fmt;

use grpo_model::ProductPrecision::F32;
use serde::{Deserialize, Serialize};

pub use self::charts::draw;
use crate::models::{Model, Size};
use crate::work::{Shape, Work, sampling, training};

/// One measurement: a workload and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    axis: Axis,
    kind: Kind,
    size: Size,
    completions: usize,
    tokens: usize,
}

/// The quantity that a chart varies.
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

impl Axis {
    const ALL: [Self; 4] = [Self::Threads, Self::Batch, Self::Tokens, Self::Size];

    fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Batch => "batch",
            Self::Tokens => "tokens",
            Self::Size => "size",
        }
    }
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

impl Kind {
    const ALL: [Self; 2] = [Self::Sampling, Self::Training];

    fn name(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Training => "training",
        }
    }
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

/// Context length of all models. Learned positions are parameters, so it must not vary.
const CONTEXT: usize = 512;

/// Model sizes with their names and parameter counts.
const SIZES: [(Size, &str, u64); 4] = [
    (Size::Prior, "0.8M", 884_736),
    (Size::Small, "6.4M", 6_501_376),
    (Size::Medium, "54M", 54_475_776),
    (Size::Large, "0.6B", 596_049_920),
];

/// Returns all points, grouped by kind of work and axis.
pub fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for kind in Kind::ALL {
        let small = |axis, completions, tokens| Point {
            axis,
            kind,
            size: Size::Small,
            completions,
            tokens,
        };
        points.push(small(Axis::Threads, 64, 48));
        points.extend([8, 16, 32, 64, 128].map(|batch| small(Axis::Batch, batch, 48)));
        points.extend([64, 128, 256, 512].map(|tokens| small(Axis::Tokens, 16, tokens)));
        points.extend(SIZES.map(|(size, ..)| Point { size, ..small(Axis::Size, 16, 64) }));
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
        let model = Model { size, context: CONTEXT };
        match self.kind {
            Kind::Sampling => {
                sampling(model, Shape::groups(completions / Shape::GROUP, tokens), F32)
            }
            Kind::Training => training(model, completions, tokens, 1, F32),
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
        let (kind, model) = (self.kind.name(), self.model().0);
        write!(f, "{kind}-{model}-{}x{}", self.completions, self.tokens)
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

    /// The largest model is not built, because its parameters take 2.4 GB.
    #[test]
    fn sizes_are_as_listed() {
        let listed = |size| SIZES.into_iter().find(|of| of.0 == size).unwrap().2;
        for size in [Size::Prior, Size::Small] {
            let model = Model { size, context: CONTEXT }.build().unwrap();
            assert_eq!(model.num_params() as u64, listed(size), "{size:?}");
        }
        // Linear layers without biases, two norms of the hidden states and two of the heads.
        let layer = 2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072 + 2 * 1024 + 2 * 128;
        assert_eq!(listed(Size::Large), 28 * layer + 1024 + 151_936 * 1024);
        let layer = 12 * 512 * 512 + 13 * 512;
        assert_eq!(listed(Size::Medium), 12 * layer + (32_000 + 512 + 2) * 512);
    }

    #[test]
    fn batches_are_whole_groups() {
        assert!(points().iter().all(|point| point.completions % Shape::GROUP == 0));
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
