//! The data of a comparison.

use std::collections::{BTreeMap, BTreeSet};

use crate::ReportError;

/// Methods with their metrics.
///
/// Numbers that are not finite are shown as `–` and are absent from charts. All names are escaped.
#[derive(Clone, Debug, Default)]
pub struct ComparisonPage {
    /// Command line.
    pub command: String,
    /// Name of the set of metrics, such as `text`.
    pub suite: String,
    /// Number of prompts that all files share. `None` for samples without prompts.
    pub prompts: Option<usize>,
    /// The methods, at least one, with distinct names. The first one is the baseline.
    pub methods: Vec<ComparedMethod>,
    /// Which values are better, by metric.
    pub directions: BTreeMap<String, MetricDirection>,
    /// What the intervals are, e.g. `95 % bootstrap interval over prompts`.
    pub interval: String,
    /// What makes a difference significant, e.g. `Wilcoxon signed-rank test over prompts, p < 0.05
    /// after Holm's correction`.
    pub test: String,
    /// The Pareto front of the methods.
    pub front: Option<FrontChart>,
    /// Boundaries on the step axis of [`ComparedMethod::dynamics`].
    pub phases: Vec<PhaseBoundary>,
}

/// A method with the outputs of one or several seeds.
#[derive(Clone, Debug, Default)]
pub struct ComparedMethod {
    /// Name, as given by the user.
    pub name: String,
    /// Files of outputs, one per seed.
    pub files: Vec<String>,
    /// Metrics by name. Pass@k is drawn if there are metrics `pass_at_K` for two values of K.
    pub metrics: BTreeMap<String, MetricValue>,
    /// Tests against the baseline, by metric. Metrics without a test are absent.
    pub tests: BTreeMap<String, BaselineTest>,
    /// Values of each property, such as `logp`, of all outputs of all files.
    pub properties: BTreeMap<String, Vec<f64>>,
    /// Metrics during training, such as `self_bleu`: for each run (seed), by metric, the training
    /// steps in ascending order with their values.
    pub dynamics: Vec<BTreeMap<String, Vec<(u64, f64)>>>,
}

/// A metric of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricValue {
    /// Mean over the files.
    pub mean: f64,
    /// Sample standard deviation over the files. `None` for one file.
    pub deviation: Option<f64>,
    /// Lower and upper end of an interval of the mean.
    pub interval: Option<[f64; 2]>,
}

/// The test of a metric against the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BaselineTest {
    /// Method − baseline, in the units of the metric.
    pub difference: f64,
    /// Lower and upper end of an interval of the difference.
    pub interval: Option<[f64; 2]>,
    /// p-value, corrected for the number of metrics.
    pub p_value: f64,
    /// Cohen's d. `None` if both samples are constant.
    pub effect: Option<f64>,
    /// The verdict.
    pub significance: Significance,
    /// Whether the method is better, by what the test compared. `None` if neither high nor low values
    /// are better. The means can differ in the other direction if the test compares ranks.
    pub is_better: Option<bool>,
}

/// Verdict about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Significance {
    /// Significant.
    Significant,
    /// Significant, but the effect is small.
    SignificantSmall,
    /// Not significant.
    NotSignificant,
}

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricDirection {
    /// For example Pass@k.
    HigherIsBetter,
    /// For example self-BLEU.
    LowerIsBetter,
}

/// A Pareto front of two metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontChart {
    /// Names of the metrics on the horizontal and the vertical axis. Without a direction, higher
    /// values are better.
    pub objectives: [String; 2],
    /// Indices of the methods that no other method dominates.
    pub optimal: Vec<usize>,
}

/// A boundary between two phases of training.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseBoundary {
    /// Number of training steps before the boundary.
    pub step: u64,
    /// What begins or ends here, in a few words.
    pub label: String,
}

impl ComparisonPage {
    /// Returns an error if the page cannot be drawn.
    pub(super) fn check(&self) -> Result<(), ReportError> {
        let error = |reason: String| Err(ReportError::Comparison { reason });
        if self.methods.is_empty() {
            return error("the list of methods is empty; add at least one".to_owned());
        }
        let mut names = BTreeSet::new();
        if let Some(method) = self.methods.iter().find(|method| !names.insert(&method.name)) {
            return error(format!("two methods are named `{}`; rename one", method.name));
        }
        let indices = self.front.iter().flat_map(|front| &front.optimal);
        match indices.copied().find(|index| *index >= self.methods.len()) {
            Some(index) => error(format!(
                "the Pareto front contains method {index}, but there are {}; count from 0",
                self.methods.len()
            )),
            None => Ok(()),
        }
    }

    /// Returns which values of a metric are better, if it is known.
    pub(super) fn direction(&self, metric: &str) -> Option<MetricDirection> {
        self.directions.get(metric).copied()
    }
}

/// Returns names in an order in which `pass_at_5` precedes `pass_at_10`.
pub(super) fn in_natural_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    // Digits are compared by the length of their number first.
    let key = |name: &str| -> Vec<(bool, usize, String)> {
        let parts = name.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
        let part = |part: &[u8]| {
            let text = String::from_utf8_lossy(part).into_owned();
            let is_number = part[0].is_ascii_digit();
            let length = if is_number { text.trim_start_matches('0').len() } else { 0 };
            (is_number, length, text)
        };
        parts.map(part).collect()
    };
    let distinct: BTreeSet<&str> = names.map(String::as_str).collect();
    let mut names: Vec<&str> = distinct.into_iter().collect();
    names.sort_by_cached_key(|name| key(name));
    names
}
