//! Evaluation of files of generated text. The reward plays no role, unless the file contains it.

mod by_field;
mod generations;
mod pass_rule;
mod records;
mod rows;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use grpo_data::counted;
use grpo_data::statistics::{mean, standard_error};
use grpo_eval::stats::{Bootstrap, Direction};
use grpo_eval::{MeasureError, PassAtK};

pub use self::by_field::{FieldGroup, by_field};
pub use self::generations::{Columns, Generation, Generations, PromptGenerations};
pub use self::pass_rule::PassRule;
pub use self::records::references;
pub use self::rows::row;
pub use self::rows::{CompletionRow, CompletionRows, RowFormat, TEXT_ROWS};
pub use self::text::{TEXT_SUITE, accuracy};
use crate::output::{four_decimals, say_aside};

/// A set of metrics for one kind of text.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Name for `--suite`.
    pub name: &'static str,
    /// What the suite measures, as a noun phrase.
    pub about: &'static str,
    /// Keys of a record that the suite reads in addition to text, prompt, references and score. They
    /// end up in [`Generation::fields`].
    pub keys: &'static [&'static str],
    /// Names of columns of texts for which the suite is the default, in any case.
    pub of_columns: &'static [&'static str],
    /// Endings of file names for which the suite is the default.
    pub of_endings: &'static [&'static str],
    /// Returns whether a text is of the kind that the suite measures. If nearly all texts of a file
    /// without prompts are, the suite is the default.
    pub of_text: Option<fn(&str) -> bool>,
    /// Files in the model folder of a run for which the suite is the default.
    pub of_model_files: &'static [&'static str],
    /// Metrics of which higher values are better. A `*` at the end stands for any ending.
    pub higher_is_better: &'static [&'static str],
    /// Metrics of which lower values are better, in the same form.
    pub lower_is_better: &'static [&'static str],
    /// Units or ranges of metrics, in the same form. The first that fits is used.
    pub units: &'static [(&'static str, &'static str)],
    /// Whether texts belong to prompts, which compared files must share.
    pub has_prompts: bool,
    /// Metrics that are followed over the steps of a run.
    pub dynamics: &'static [&'static str],
    /// Removes from the contents of a file what was not generated, such as the names of molecules.
    pub prepare: fn(&mut Generations),
    /// Computes the metrics of contents that were prepared.
    pub measure: fn(&Generations, &SuiteOptions) -> anyhow::Result<Measured>,
}

impl Suite {
    /// Returns which values of a metric are better, or `None` if neither are.
    pub fn direction(&self, metric: &str) -> Option<Direction> {
        let is_in = |list: &[&str]| list.iter().any(|pattern| fits(pattern, metric));
        match (is_in(self.lower_is_better), is_in(self.higher_is_better)) {
            (true, _) => Some(Direction::LowerIsBetter),
            (_, true) => Some(Direction::HigherIsBetter),
            _ => None,
        }
    }

    /// Returns whether the suite fits the contents of a file: those without prompts, if at least nine of
    /// ten of the first texts are of its kind. Letters such as the answers to questions with
    /// several choices can be SMILES, so that a longer text is needed.
    pub fn fits_contents(&self, of: &Generations) -> bool {
        let Some(is_of_kind) = self.of_text else { return false };
        let has_prompts = of.prompts.iter().any(|of| !of.prompt.is_empty());
        let texts = || of.texts().filter(|text| !text.trim().is_empty()).take(100);
        let (count, fitting) = (texts().count(), texts().filter(|text| is_of_kind(text)).count());
        let is_long = |text: &str| text.trim().len() > 2 && is_of_kind(text);
        !has_prompts && 10 * fitting >= 9 * count && texts().any(is_long)
    }

    /// Returns the unit or range of a metric.
    pub fn unit(&self, metric: &str) -> Option<&'static str> {
        let found = self.units.iter().find(|(pattern, _)| fits(pattern, metric));
        found.map(|(_, unit)| *unit)
    }

    /// Formats a metric of a file for a table: counts as whole numbers, everything else with four
    /// decimals. The unit decides, so that a metric looks the same for all files.
    pub fn shown(&self, metric: &str, value: f64) -> String {
        match self.unit(metric).is_some_and(|unit| COUNTED.contains(&unit)) {
            true => format!("{value:.0}"),
            false => four_decimals(value),
        }
    }

    /// Prepares the contents of a file.
    ///
    /// # Errors
    /// Returns an error if nothing is left to measure, e.g. because a file consists of a header.
    pub fn prepare(&self, file: &Path, generations: &mut Generations) -> anyhow::Result<()> {
        (self.prepare)(generations);
        // Only molecules are measured without prompts.
        let holds = if self.has_prompts { "texts" } else { "molecules" };
        anyhow::ensure!(!generations.is_empty(), "{} contains no {holds}", file.display());
        Ok(())
    }

    /// Warns if no text of a file is of the kind that the suite measures.
    pub fn warn_of_other_texts(&self, file: &Path, generations: &Generations) {
        if let Some(is_of_kind) = self.of_text
            && !generations.texts().any(is_of_kind)
        {
            say_aside(format_args!(
                "warning: {} contains no valid molecule among {}, so only validity is reported; if it contains other texts, choose their metrics with --suite",
                file.display(),
                counted(generations.len(), "text")
            ));
        }
    }

    /// Returns which keys of a record to read.
    pub fn kept(&self) -> Columns {
        Columns { kept: self.keys.to_vec(), ..Columns::default() }
    }
}

/// Units of metrics that count something. Means of counts have other units, such as `words per text`.
const COUNTED: [&str; 8] =
    ["blanks", "characters", "fillings", "molecules", "prompts", "strings", "texts", "words"];

/// Returns whether a metric has this name. A `*` at the end stands for any ending.
fn fits(pattern: &str, metric: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => metric.starts_with(start),
        None => pattern == metric,
    }
}

/// Default of `--pass` for texts with other scores than 0 and 1, or without any.
const DEFAULT_PASS: &str = "quality";
/// Default of `--pass` for texts with scores of 0 and 1 only.
const PASS_OF_JUDGED: &str = "score:1";
/// Default values of k, as far as there are samples.
const DEFAULT_KS: [usize; 3] = [1, 5, 10];

/// Options of `grpo eval` that affect the metrics.
#[derive(Clone, Debug, Args)]
pub struct SuiteOptions {
    /// Numbers of samples for Pass@k and Majority@k, comma-separated [default: 1, 5 and 10, as far as
    /// there are samples, with --model also the number of completions per prompt]
    #[arg(short, value_name = "K", value_delimiter = ',', help_heading = "Metrics")]
    pub k: Vec<usize>,
    /// When a completion passes, comma-separated: `quality` (length and repetition), `exact` (equals a
    /// reference), `answer` (contains the answer, as in the reward of this type), `score:X` (at least X), `relevance:X` (similarity to the prompt), `pattern:REGEX`
    /// [default: `score:1` if all scores are 0 or 1, otherwise `quality`]
    #[arg(long, value_name = "RULES", help_heading = "Metrics")]
    pub pass: Option<String>,
    /// How a completion marks its answer, for `--pass answer`: `####`, `boxed`, or a regular expression,
    /// of whose last match the first group counts [default: the entire completion]
    #[arg(long, value_name = "REGEX", help_heading = "Metrics")]
    pub extract: Option<String>,
    /// File with references: a reference per prompt, or the molecules to compare with
    #[arg(long, value_name = "FILE", help_heading = "Metrics")]
    pub references: Option<PathBuf>,
    /// File with the training molecules, to measure novelty
    #[arg(long, value_name = "FILE", help_heading = "Metrics")]
    pub training: Option<PathBuf>,
    /// Encoder for BERTScore against the references: folder or name of a BERT model in the format of
    /// sentence-transformers
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Metrics")]
    pub bertscore: Option<PathBuf>,
    /// Seed of the bootstrap intervals, and of the samples with --model
    #[arg(long, default_value_t = 42, help_heading = "Metrics")]
    pub seed: u64,
}

impl Default for SuiteOptions {
    fn default() -> Self {
        Self {
            k: Vec::new(),
            pass: None,
            extract: None,
            references: None,
            training: None,
            bertscore: None,
            seed: 42,
        }
    }
}

impl SuiteOptions {
    /// Returns the options that differ from their defaults as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let Self { k, pass, extract, references, training, bertscore, seed } = self;
        let mut words = Vec::new();
        if !k.is_empty() {
            let ks: Vec<String> = k.iter().map(usize::to_string).collect();
            words.push(format!("-k={}", ks.join(",")));
        }
        words.extend(pass.iter().map(|pass| format!("--pass={pass}")));
        words.extend(extract.iter().map(|extract| format!("--extract={extract}")));
        let files = [("references", references), ("training", training), ("bertscore", bertscore)];
        for (option, file) in files {
            words.extend(file.iter().map(|file| format!("--{option}={}", file.display())));
        }
        if *seed != Self::default().seed {
            words.push(format!("--seed={seed}"));
        }
        words
    }

    /// Returns the options with the rule for texts that pass if their score is 1, if they are judged in this
    /// way ([`Generations::are_judged`]) and `--pass` has no other rule.
    #[must_use]
    pub fn with_pass_for(&self, are_judged: bool) -> Self {
        let default = || are_judged.then(|| PASS_OF_JUDGED.to_owned());
        Self { pass: self.pass.clone().or_else(default), ..self.clone() }
    }

    /// Checks the rule that decides which texts pass.
    ///
    /// # Errors
    /// Returns an error if a condition is unknown or its value is out of range.
    pub fn check(&self) -> anyhow::Result<()> {
        self.pass_rule().map(drop)
    }

    fn pass_rule(&self) -> anyhow::Result<PassRule> {
        PassRule::parse(self.pass_name(), self.extract.as_deref())
    }

    /// Returns the numbers of samples for Pass@k if every prompt has at least `fewest`.
    pub fn ks(&self, fewest: usize) -> Vec<usize> {
        match self.k.is_empty() {
            true => DEFAULT_KS.into_iter().filter(|k| *k <= fewest).collect(),
            false => self.k.clone(),
        }
    }

    /// Returns the rule that decides which texts pass, as `--pass` has it.
    pub fn pass_name(&self) -> &str {
        self.pass.as_deref().unwrap_or(DEFAULT_PASS)
    }

    /// Returns the files that the options name, which no output may replace.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.references.iter().chain(&self.training)
    }

    /// Refuses options that only the suite `text` uses.
    ///
    /// # Errors
    /// Returns an error if `-k`, `--pass` or `--bertscore` was given.
    pub fn refuse_text_options(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.k.is_empty()
                && self.pass.is_none()
                && self.extract.is_none()
                && self.bertscore.is_none(),
            "-k, --pass, --extract and --bertscore are only used by the suite `text`; remove them"
        );
        Ok(())
    }
}

/// The metrics of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Metrics by name. Undefined ones are missing.
    pub metrics: BTreeMap<String, f64>,
    /// Bootstrap intervals of metrics that are means over prompts.
    pub intervals: BTreeMap<String, [f64; 2]>,
    /// Values per prompt, for comparisons in pairs. Each has a value for every prompt.
    pub per_prompt: BTreeMap<String, Vec<f64>>,
    /// Values per prompt of means over the prompts that have one, if some have none.
    pub per_some_prompts: BTreeMap<String, Vec<Option<f64>>>,
    /// Values per text of metrics that are means over texts, for comparisons without pairs.
    pub per_text: BTreeMap<String, Vec<f64>>,
}

impl Measured {
    /// Adds a metric if it is defined and finite.
    pub fn add(&mut self, name: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.metrics.insert(name.to_owned(), value);
        }
    }

    /// Adds a metric that is the mean of these values, one for each prompt.
    pub fn add_mean(&mut self, name: &str, per_prompt: Vec<f64>) {
        self.add(name, mean(&per_prompt));
        self.per_prompt.insert(name.to_owned(), per_prompt);
    }

    /// Adds Pass@k or Majority@k with its interval.
    pub fn add_at_k(&mut self, name: &str, at_k: &PassAtK) {
        if let Some(interval) = &at_k.interval {
            self.intervals.insert(name.to_owned(), [interval.low, interval.high]);
        }
        self.add_mean(name, at_k.per_prompt.clone());
    }

    /// Adds the number of texts without a score, if there are any. The other scores are those of the
    /// texts that have one.
    pub fn add_unscored(&mut self, unscored: usize) {
        self.add("score/unscored", (unscored > 0).then_some(unscored as f64));
    }

    /// Adds a metric that is the mean over the prompts with a value. Comparisons by prompt need a value
    /// for every prompt.
    pub fn add_mean_of_some(&mut self, name: &str, per_prompt: &[Option<f64>]) {
        match per_prompt.iter().copied().collect::<Option<Vec<f64>>>() {
            Some(all) => self.add_mean(name, all),
            None => {
                let some: Vec<f64> = per_prompt.iter().flatten().copied().collect();
                self.add(name, (!some.is_empty()).then(|| mean(&some)));
                self.per_some_prompts.insert(name.to_owned(), per_prompt.to_vec());
            }
        }
    }

    /// Returns the values per prompt of a mean over prompts.
    pub fn of_prompts(&self, name: &str) -> Option<Vec<Option<f64>>> {
        let of_all = || Some(self.per_prompt.get(name)?.iter().copied().map(Some).collect());
        of_all().or_else(|| self.per_some_prompts.get(name).cloned())
    }

    /// Returns the standard errors of means over prompts. The texts of a prompt depend on each other, so
    /// each prompt counts as one value.
    pub fn standard_errors(&self) -> BTreeMap<&str, f64> {
        let names = self.per_prompt.keys().chain(self.per_some_prompts.keys());
        let of = |name: &str| {
            let values: Vec<f64> = self.of_prompts(name)?.into_iter().flatten().collect();
            (values.len() > 1).then(|| standard_error(&values))
        };
        names.filter_map(|name| Some((name.as_str(), of(name)?))).collect()
    }

    /// Adds a bootstrap interval for each metric with values per prompt that has none.
    ///
    /// # Errors
    /// Returns an error if a value is not finite.
    pub fn add_intervals(&mut self, seed: u64) -> Result<(), MeasureError> {
        let bootstrap = Bootstrap { seed, ..Bootstrap::default() };
        for (name, values) in &self.per_prompt {
            if values.len() > 1 && !self.intervals.contains_key(name) {
                let estimate = bootstrap.mean(values)?;
                self.intervals.insert(name.clone(), [estimate.low, estimate.high]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jackknife: the error of a mean follows from the means without one of the prompts.
    #[test]
    fn standard_errors_are_those_of_the_jackknife() {
        let values = [Some(0.25), None, Some(1.0), Some(0.0), Some(0.75), None, Some(0.75)];
        let mut measured = Measured::default();
        measured.add_mean_of_some("some", &values);
        let with: Vec<f64> = values.iter().flatten().copied().collect();
        measured.add_mean("all", with.clone());
        let n = with.len() as f64;
        let sum: f64 = with.iter().sum();
        let without: Vec<f64> = with.iter().map(|value| (sum - value) / (n - 1.0)).collect();
        let center = without.iter().sum::<f64>() / n;
        let squares: f64 = without.iter().map(|mean| (mean - center).powi(2)).sum();
        let expected = (squares * (n - 1.0) / n).sqrt();
        let errors = measured.standard_errors();
        for name in ["some", "all"] {
            assert!((errors[name] - expected).abs() < 1e-12, "{name}: {errors:?} {expected}");
            assert!((measured.metrics[name] - sum / n).abs() < 1e-12);
        }
        // One value has no error.
        let mut single = Measured::default();
        single.add_mean("single", vec![0.5]);
        assert!(single.standard_errors().is_empty());
    }
}
