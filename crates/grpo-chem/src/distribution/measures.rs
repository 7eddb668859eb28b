//! All measures of a set of generated molecules.

use std::collections::BTreeSet;

use serde::Serialize;

use super::counts::{cosine_similarity, count, distinct_fraction, novel_fraction};
use super::error::MeasureError;
use super::guacamol::Guacamol;
use super::record::Record;
use super::similarity::{OnBits, internal_diversity, nearest_neighbor_similarity};
use super::values::wasserstein_distance;

/// The sets that are compared.
#[derive(Debug, Clone, Copy)]
pub struct Sets<'a> {
    /// Number of generated strings, including invalid ones.
    pub samples: usize,
    /// The valid generated molecules in the order of generation, with duplicates.
    pub generated: &'a [Record],
    /// The canonical SMILES of all valid generated molecules, if `generated` is a sample of them.
    pub canonical: Option<&'a [String]>,
    /// The training set.
    pub training: Option<&'a [Record]>,
    /// The test set.
    pub test: Option<&'a [Record]>,
    /// A test set whose scaffolds do not occur in the training set (MOSES's TestSF).
    pub scaffold_test: Option<&'a [Record]>,
}

impl<'a> Sets<'a> {
    /// Returns generated molecules without any set to compare them with.
    pub fn new(samples: usize, generated: &'a [Record]) -> Self {
        let (canonical, training, test, scaffold_test) = (None, None, None, None);
        Self { samples, generated, canonical, training, test, scaffold_test }
    }
}

/// All measures of a set of generated molecules. Those that need a set that was not given, or that
/// do not exist, are `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measures {
    /// Number of generated strings.
    pub samples: usize,
    /// Number of valid molecules.
    pub valid: usize,
    /// Fraction of the strings that are valid.
    pub validity: Option<f64>,
    /// Fraction of the valid molecules that are distinct.
    pub uniqueness: Option<f64>,
    /// The same for the first 1,000 valid molecules, if there are as many.
    pub unique_at_1000: Option<f64>,
    /// The same for the first 10,000 valid molecules, if there are as many.
    pub unique_at_10000: Option<f64>,
    /// Fraction of the distinct molecules that are not in the training set.
    pub novelty: Option<f64>,
    /// Internal diversity with p = 1.
    pub internal_diversity: Option<f64>,
    /// Internal diversity with p = 2.
    pub internal_diversity_2: Option<f64>,
    /// Fraction of the valid molecules that pass MOSES's filters.
    pub filters: Option<f64>,
    /// Comparison with the test set.
    pub test: Option<Comparison>,
    /// Comparison with the scaffold test set.
    pub scaffold_test: Option<Comparison>,
    /// GuacaMol's measures, relative to the training set.
    pub guacamol: Option<Guacamol>,
    /// The measures that are `None` although their sets were given.
    pub missing: Vec<Missing>,
}

/// Comparison of the generated molecules with a test set, duplicates included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Similarity to the nearest neighbor in the test set.
    pub snn: Option<f64>,
    /// Similarity of the counts of BRICS fragments.
    pub fragments: Option<f64>,
    /// Similarity of the counts of scaffolds with at least two rings.
    pub scaffolds: Option<f64>,
    /// Wasserstein distance of the octanol–water partition coefficient.
    pub logp: Option<f64>,
    /// Wasserstein distance of the synthetic accessibility.
    pub sa: Option<f64>,
    /// Wasserstein distance of the quantitative estimate of drug-likeness.
    pub qed: Option<f64>,
    /// Wasserstein distance of the molecular weight, in Da.
    pub weight: Option<f64>,
}

/// A measure that does not exist for the given sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Name of the measure.
    pub measure: String,
    /// Why it does not exist.
    pub reason: String,
}

impl Measures {
    /// Computes all measures of the given sets.
    pub fn new(sets: &Sets) -> Self {
        let mut missing = Reasons(Vec::new());
        let Sets { samples, generated, training, .. } = *sets;
        let all: Vec<&str> = match sets.canonical {
            Some(all) => all.iter().map(String::as_str).collect(),
            None => generated.iter().map(|record| record.canonical.as_str()).collect(),
        };
        let canonical = || all.iter().copied();
        let bits: Vec<&OnBits> = generated.iter().map(|record| &record.bits).collect();
        let validity = match samples {
            0 => Err(MeasureError::TooFew { set: "generated strings", found: 0, needed: 1 }),
            _ => Ok(all.len() as f64 / samples as f64),
        };
        let first = |k: usize| match all.len() {
            found if found < k => {
                Err(MeasureError::TooFew { set: "generated molecules", found, needed: k })
            }
            _ => distinct_fraction(canonical().take(k)),
        };
        let diversity = missing.value("internal_diversity", internal_diversity(&bits));
        Self {
            samples,
            valid: all.len(),
            validity: missing.value("validity", validity),
            uniqueness: missing.value("uniqueness", distinct_fraction(canonical())),
            unique_at_1000: missing.value("unique_at_1000", first(1_000)),
            unique_at_10000: missing.value("unique_at_10000", first(10_000)),
            novelty: training.and_then(|training| {
                let known = training.iter().map(|record| record.canonical.as_str());
                let known: BTreeSet<&str> = known.collect();
                missing.value("novelty", novel_fraction(canonical(), &known))
            }),
            internal_diversity: diversity.map(|[first, _]| first),
            internal_diversity_2: diversity.map(|[_, second]| second),
            filters: missing.value("filters", passing(generated)),
            test: sets.test.map(|test| Comparison::new("test", generated, test, &mut missing)),
            scaffold_test: sets
                .scaffold_test
                .map(|test| Comparison::new("scaffold_test", generated, test, &mut missing)),
            guacamol: training.and_then(|training| {
                let (guacamol, reason) =
                    missing.value("guacamol", Guacamol::new(generated, training))?;
                if let Some(reason) = reason {
                    missing.add("guacamol.kl", reason);
                }
                Some(guacamol)
            }),
            missing: missing.0,
        }
    }
}

/// Returns the fraction of molecules that pass MOSES's filters, of those for which the filters were
/// evaluated.
fn passing(generated: &[Record]) -> Result<f64, MeasureError> {
    let passes: Vec<bool> = generated.iter().filter_map(|record| record.passes_filters).collect();
    match passes.len() {
        0 => Err(MeasureError::TooFew { set: "filtered molecules", found: 0, needed: 1 }),
        total => Ok(passes.iter().filter(|passes| **passes).count() as f64 / total as f64),
    }
}

impl Comparison {
    /// Compares with the test set `name`.
    fn new(name: &str, generated: &[Record], test: &[Record], missing: &mut Reasons) -> Self {
        fn bits(records: &[Record]) -> Vec<&OnBits> {
            records.iter().map(|record| &record.bits).collect()
        }
        fn fragments(records: &[Record]) -> impl Iterator<Item = &str> {
            records.iter().flat_map(|record| &record.fragments).map(String::as_str)
        }
        fn scaffolds(records: &[Record]) -> impl Iterator<Item = &str> {
            records.iter().filter_map(|record| record.scaffold.as_deref())
        }
        let distance = |value: fn(&Record) -> f64| {
            let values = |records: &[Record]| records.iter().map(value).collect::<Vec<f64>>();
            wasserstein_distance(&values(test), &values(generated))
        };
        let mut value = |measure: &str, result| missing.value(&format!("{name}.{measure}"), result);
        let snn = nearest_neighbor_similarity(&bits(generated), &bits(test));
        let by_fragments = cosine_similarity(&count(fragments(generated)), &count(fragments(test)));
        let by_scaffolds = cosine_similarity(&count(scaffolds(generated)), &count(scaffolds(test)));
        Self {
            snn: value("snn", snn),
            fragments: value("fragments", by_fragments),
            scaffolds: value("scaffolds", by_scaffolds),
            logp: value("logp", distance(|record| record.logp)),
            sa: value("sa", distance(|record| record.sa)),
            qed: value("qed", distance(|record| record.qed)),
            weight: value("weight", distance(|record| record.mw)),
        }
    }
}

struct Reasons(Vec<Missing>);

impl Reasons {
    fn add(&mut self, measure: &str, reason: String) {
        self.0.push(Missing { measure: measure.to_owned(), reason });
    }

    fn value<T>(&mut self, measure: &str, result: Result<T, MeasureError>) -> Option<T> {
        result.map_err(|error| self.add(measure, error.to_string())).ok()
    }
}
