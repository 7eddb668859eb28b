//! Comparison of methods, each with the outputs of one or several seeds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::short_text;
use grpo_eval::stats::{
    Bootstrap, Conclusion, Direction, PairedSample, PairedTest, UnpairedSample, compare_metrics,
    compare_unpaired,
};
use grpo_eval::{ParetoFront, SeedSummary};
use grpo_task::eval::{Columns, Generations, Measured, Suite, SuiteOptions};
use serde::{Serialize, Serializer};

/// A method with its files, one per seed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) files: Vec<PathBuf>,
}

impl Method {
    /// Parses `NAME=FILE,FILE` or `FILE`, whose name is that of the file.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        // A file name may contain an equals sign.
        let (name, files) = match text.split_once('=').filter(|_| !Path::new(text).exists()) {
            Some((name, files)) => (name.trim().to_owned(), files),
            None => {
                anyhow::ensure!(
                    !text.contains(',') || Path::new(text).exists(),
                    "`{text}` lists several files, but no name; write NAME={text}"
                );
                let stem = Path::new(text).file_stem().unwrap_or_default();
                (stem.to_string_lossy().into_owned(), text)
            }
        };
        let files: Vec<PathBuf> = files
            .split(',')
            .map(str::trim)
            .filter(|file| !file.is_empty())
            .map(PathBuf::from)
            .collect();
        anyhow::ensure!(
            !name.is_empty() && !files.is_empty(),
            "`{text}` is not a method; write FILE or NAME=FILE,FILE"
        );
        anyhow::ensure!(
            !name.chars().any(char::is_control),
            "the name `{}` of a method contains a line break or another control character; write NAME=FILE with another name",
            short_text(&name)
        );
        Ok(Self { name, files })
    }
}

/// A method with its metrics.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MethodResult {
    pub(crate) name: String,
    /// Number of files.
    pub(crate) seeds: usize,
    /// Metrics that every file has, over the files.
    pub(crate) metrics: BTreeMap<String, SeedSummary>,
    /// Bootstrap intervals over prompts, of the mean over the files.
    pub(crate) intervals: BTreeMap<String, [f64; 2]>,
    /// Tests against the first method, corrected for the number of metrics of each kind of test.
    pub(crate) tests: Vec<Tested>,
    /// The files.
    pub(crate) files: Vec<PathBuf>,
    /// Values per prompt, averaged over the files.
    #[serde(skip)]
    per_prompt: BTreeMap<String, Vec<f64>>,
    /// Values per text of all files.
    #[serde(skip)]
    pub(crate) per_text: BTreeMap<String, Vec<f64>>,
}

/// The test of a metric against the first method.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tested {
    pub(crate) metric: String,
    pub(crate) test: TestKind,
    /// Method − first method.
    pub(crate) difference: f64,
    /// Bootstrap interval of the difference.
    pub(crate) interval: Option<[f64; 2]>,
    /// Corrected for the number of metrics.
    pub(crate) p_value: f64,
    pub(crate) cohens_d: Option<f64>,
    pub(crate) cliffs_delta: f64,
    pub(crate) conclusion: Conclusion,
    /// Whether the method is better, or `None` if neither high nor low values are.
    pub(crate) is_better: Option<bool>,
}

/// Which test was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TestKind {
    /// The Wilcoxon signed-rank test over prompts.
    WilcoxonSignedRank,
    /// The Mann-Whitney U test over texts.
    MannWhitney,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compared {
    #[serde(serialize_with = "name_of_suite")]
    pub(crate) suite: Suite,
    /// Number of prompts that all files share.
    pub(crate) prompts: usize,
    pub(crate) methods: Vec<MethodResult>,
    /// Names of the two metrics of the Pareto front.
    pub(crate) objectives: Option<[String; 2]>,
    /// The Pareto front of the methods.
    pub(crate) pareto: Option<ParetoFront>,
}

fn name_of_suite<S: Serializer>(suite: &Suite, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(suite.name)
}

/// Pairs of quality and diversity for the Pareto front, in order of preference.
const OBJECTIVES: [[&str; 2]; 4] = [
    ["rouge_l", "distinct_2"],
    ["score/mean", "distinct_2"],
    ["score/mean", "internal_diversity"],
    ["qed/mean", "internal_diversity"],
];

impl Compared {
    /// Measures all files and compares each method with the first one. `first` is the prepared
    /// content of its first file.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or measured, or if the prompts of two files differ.
    pub(crate) fn new(
        methods: &[Method],
        first: Generations,
        suite: &Suite,
        options: &SuiteOptions,
        columns: &Columns,
        objectives: Option<[String; 2]>,
    ) -> anyhow::Result<Self> {
        let mut prompts: Option<(PathBuf, Vec<String>)> = None;
        let mut results = Vec::new();
        let mut first = Some(first);
        let bootstrap = Bootstrap { seed: options.seed, ..Bootstrap::default() };
        for method in methods {
            let mut measured = Vec::new();
            for file in &method.files {
                let read = || {
                    let mut generations = Generations::read(file, columns)?;
                    suite.prepare(file, &mut generations)?;
                    anyhow::Ok(generations)
                };
                let generations = first.take().map_or_else(read, Ok)?;
                suite.warn_of_other_texts(file, &generations);
                let generations = match suite.has_prompts {
                    true => in_order(generations, file, &mut prompts)?,
                    false => generations,
                };
                let of_file = (suite.measure)(&generations, options);
                measured.push(of_file.with_context(|| file.display().to_string())?);
            }
            results.push(MethodResult::new(method, &measured, &bootstrap)?);
        }
        let (first, others) = results.split_first_mut().context("the list of methods is empty")?;
        for other in others {
            other.tests = tests(other, first, suite, &bootstrap)?;
        }
        let objectives = match objectives {
            Some(objectives) => Some(objectives),
            None => OBJECTIVES.into_iter().map(|pair| pair.map(str::to_owned)).find(|pair| {
                results.iter().all(|of| pair.iter().all(|name| of.metrics.contains_key(name)))
            }),
        };
        let pareto = objectives.as_ref().map(|pair| pareto(&results, pair, suite)).transpose()?;
        let prompts = prompts.map_or(0, |(_, prompts)| prompts.len());
        Ok(Self { suite: *suite, prompts, methods: results, objectives, pareto })
    }
}

/// Sorts the prompts of a file like those of the first file.
fn in_order(
    generations: Generations,
    file: &Path,
    first: &mut Option<(PathBuf, Vec<String>)>,
) -> anyhow::Result<Generations> {
    let Some((of, prompts)) = first else {
        let prompts = generations.prompts.iter().map(|prompt| prompt.prompt.clone()).collect();
        *first = Some((file.to_owned(), prompts));
        return Ok(generations);
    };
    let only_in = |prompt: &str, one: &Path, other: &Path| {
        anyhow::anyhow!(
            "the prompt \"{}\" is in {}, but not in {}; compare generations of the same prompts",
            short_text(prompt),
            one.display(),
            other.display()
        )
    };
    let mut by_prompt: BTreeMap<String, _> =
        generations.prompts.into_iter().map(|prompt| (prompt.prompt.clone(), prompt)).collect();
    let sorted = prompts
        .iter()
        .map(|prompt| by_prompt.remove(prompt).ok_or_else(|| only_in(prompt, of, file)));
    let sorted = sorted.collect::<anyhow::Result<Vec<_>>>()?;
    match by_prompt.into_keys().next() {
        Some(prompt) => Err(only_in(&prompt, file, of)),
        None => Ok(Generations { prompts: sorted, ..Generations::default() }),
    }
}

impl MethodResult {
    fn new(method: &Method, measured: &[Measured], bootstrap: &Bootstrap) -> anyhow::Result<Self> {
        let mut metrics = BTreeMap::new();
        for name in measured[0].metrics.keys() {
            let values: Option<Vec<f64>> =
                measured.iter().map(|of| of.metrics.get(name).copied()).collect();
            if let Some(values) = values {
                metrics.insert(name.clone(), SeedSummary::new(&values)?);
            }
        }
        let mut per_prompt = BTreeMap::new();
        let mut intervals = BTreeMap::new();
        for name in measured[0].per_prompt.keys() {
            let files: Option<Vec<&Vec<f64>>> =
                measured.iter().map(|of| of.per_prompt.get(name)).collect();
            let Some(files) = files else { continue };
            let mean = |prompt: usize| {
                files.iter().map(|values| values[prompt]).sum::<f64>() / files.len() as f64
            };
            let values: Vec<f64> = (0..files[0].len()).map(mean).collect();
            if values.len() > 1 {
                let estimate = bootstrap.mean(&values)?;
                intervals.insert(name.clone(), [estimate.low, estimate.high]);
            }
            per_prompt.insert(name.clone(), values);
        }
        let mut per_text: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (name, values) in measured.iter().flat_map(|of| &of.per_text) {
            per_text.entry(name.clone()).or_default().extend(values);
        }
        let Method { name, files } = method.clone();
        let (seeds, tests) = (measured.len(), Vec::new());
        Ok(Self { name, seeds, metrics, intervals, tests, files, per_prompt, per_text })
    }

    /// Returns the test of a metric against the first method.
    pub(crate) fn test(&self, metric: &str) -> Option<&Tested> {
        self.tests.iter().find(|test| test.metric == metric)
    }
}

fn tests(
    method: &MethodResult,
    first: &MethodResult,
    suite: &Suite,
    bootstrap: &Bootstrap,
) -> anyhow::Result<Vec<Tested>> {
    let is_better = |metric: &str, difference: f64| {
        suite.direction(metric).map(|direction| direction.oriented(difference) > 0.0)
    };
    let unpaired = method.per_text.iter().filter_map(|(metric, new)| {
        let baseline = first.per_text.get(metric)?;
        Some(UnpairedSample { metric, new, baseline })
    });
    let unpaired: Vec<UnpairedSample<'_>> = unpaired.collect();
    let mut all = Vec::new();
    for of in compare_unpaired(&unpaired)? {
        // Of the means over seeds, as they are shown, instead of the mean over all texts.
        let mean = |method: &MethodResult| method.metrics.get(&of.metric).map(|of| of.mean);
        let difference = mean(method).zip(mean(first)).map(|(new, old)| new - old);
        let difference = difference.unwrap_or(of.new_mean - of.baseline_mean);
        all.push(Tested {
            // The test compares ranks, whose direction can differ from that of the means.
            is_better: is_better(&of.metric, of.cliffs_delta),
            metric: of.metric,
            test: TestKind::MannWhitney,
            difference,
            interval: None,
            p_value: of.p_value,
            cohens_d: of.cohens_d,
            cliffs_delta: of.cliffs_delta,
            conclusion: of.conclusion,
        });
    }
    // Means over the same files in a different order can differ by rounding, which must not count as
    // a difference.
    let snapped = |(name, new): (&String, &Vec<f64>)| {
        let baseline = first.per_prompt.get(name)?;
        let is_same = |(new, old): (&f64, &f64)| (new - old).abs() <= 1e-12 * old.abs().max(1.0);
        let pairs = new.iter().zip(baseline);
        let values = pairs.map(|(new, old)| if is_same((new, old)) { *old } else { *new });
        Some((name.clone(), values.collect()))
    };
    let own: BTreeMap<String, Vec<f64>> = method.per_prompt.iter().filter_map(snapped).collect();
    let samples = own.iter().filter_map(|(name, new)| {
        let baseline = first.per_prompt.get(name).filter(|_| new.len() > 1)?;
        // The test is two-sided, so the direction does not matter.
        let direction = suite.direction(name).unwrap_or(Direction::HigherIsBetter);
        Some(PairedSample { metric: name, direction, new, baseline })
    });
    let samples: Vec<PairedSample<'_>> = samples.collect();
    for of in compare_metrics(&samples, PairedTest::WilcoxonSignedRank, false, bootstrap)? {
        all.push(Tested {
            is_better: is_better(&of.metric, of.difference.value),
            metric: of.metric,
            test: TestKind::WilcoxonSignedRank,
            difference: of.difference.value,
            interval: Some([of.difference.low, of.difference.high]),
            p_value: of.p_value,
            cohens_d: of.cohens_d,
            cliffs_delta: of.cliffs_delta,
            conclusion: of.conclusion,
        });
    }
    Ok(all)
}

fn pareto(
    methods: &[MethodResult],
    objectives: &[String; 2],
    suite: &Suite,
) -> anyhow::Result<ParetoFront> {
    let value = |method: &MethodResult, name: &String| {
        method
            .metrics
            .get(name)
            .map(|of| of.mean)
            .with_context(|| format!("--objectives: {} has no metric `{name}`", method.name))
    };
    let values = methods
        .iter()
        .map(|method| objectives.iter().map(|name| value(method, name)).collect())
        .collect::<anyhow::Result<Vec<Vec<f64>>>>()?;
    let direction = |name: &String| {
        suite.direction(name).with_context(|| {
            format!("--objectives: neither high nor low values of `{name}` are better; choose another metric")
        })
    };
    let directions = objectives.iter().map(direction).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(ParetoFront::new(&values, &directions)?)
}
