//! Comparisons as an HTML page with charts.

use std::collections::BTreeMap;

use grpo_eval::stats::{Conclusion, Direction};
use grpo_report::{
    BaselineTest, ComparedMethod, ComparisonPage, FrontChart, MetricDirection, MetricValue,
    Significance,
};
use grpo_task::eval::Suite;

use super::comparison::{Compared, MethodResult, Tested};
use super::measured_steps::Dynamics;

/// What the intervals of the page are.
const INTERVAL: &str = "95 % bootstrap interval over prompts";

impl Compared {
    /// Returns the contents of the page. Methods whose files are run folders have curves over the
    /// steps.
    ///
    /// # Errors
    /// Returns an error if a run cannot be read.
    pub(crate) fn page(&self, command: String, suite: &Suite) -> anyhow::Result<ComparisonPage> {
        let method = |of: &MethodResult| of.page(suite);
        let methods = self.methods.iter().map(method).collect::<anyhow::Result<Vec<_>>>()?;
        let direction = |name: &str| {
            let direction = match suite.direction(name)? {
                Direction::HigherIsBetter => MetricDirection::HigherIsBetter,
                Direction::LowerIsBetter => MetricDirection::LowerIsBetter,
            };
            Some((name.to_owned(), direction))
        };
        let front = self.objectives.clone().zip(self.pareto.as_ref());
        Ok(ComparisonPage {
            command,
            suite: self.suite.name.to_owned(),
            prompts: (self.prompts > 1).then_some(self.prompts),
            methods,
            directions: self.metrics().into_iter().filter_map(direction).collect(),
            interval: INTERVAL.to_owned(),
            test: self.decision().unwrap_or_default(),
            front: front.map(|(objectives, front)| FrontChart {
                objectives,
                optimal: front.optimal.clone(),
            }),
            phases: Vec::new(),
        })
    }
}

impl MethodResult {
    fn page(&self, suite: &Suite) -> anyhow::Result<ComparedMethod> {
        let metric = |(name, of): (&String, &grpo_eval::SeedSummary)| {
            let interval = self.intervals.get(name).copied();
            (name.clone(), MetricValue { mean: of.mean, deviation: of.sample_std, interval })
        };
        let test = |of: &Tested| {
            let significance = match of.conclusion {
                Conclusion::Significant => Significance::Significant,
                Conclusion::SignificantSmall => Significance::SignificantSmall,
                Conclusion::NotSignificant => Significance::NotSignificant,
            };
            let test = BaselineTest {
                difference: of.difference,
                interval: of.interval,
                p_value: of.p_value,
                effect: of.cohens_d,
                significance,
                is_better: of.is_better,
            };
            (of.metric.clone(), test)
        };
        let property = |(name, values): (&String, &Vec<f64>)| {
            (name.trim_end_matches("/mean").to_owned(), values.clone())
        };
        let mut dynamics: Vec<BTreeMap<String, Vec<(u64, f64)>>> = Vec::new();
        for run in self.files.iter().filter(|file| file.is_dir()) {
            let of_run = Dynamics::of_runs(std::slice::from_ref(run), suite, 1)?;
            dynamics.push(of_run.by_metric());
        }
        Ok(ComparedMethod {
            name: self.name.clone(),
            files: self.files.iter().map(|file| file.display().to_string()).collect(),
            metrics: self.metrics.iter().map(metric).collect(),
            tests: self.tests.iter().map(test).collect(),
            properties: self.per_text.iter().map(property).collect(),
            dynamics,
        })
    }
}
