//! Measures of sets of molecules from MOSES (Polykovskiy et al. 2020) and GuacaMol (Brown et al.
//! 2019).
//!
//! [`Measures::new`] computes all of them. The single measures are public functions, too. Values are
//! those of the original programs with RDKit 2026.09; see `tests/peers/moses` for the comparison.
//! Results do not depend on the number of threads. Where a value does not exist, e.g. for an empty
//! set, the result is an error or `None` with a reason, never NaN.
//!
//! The Fréchet ChemNet distance requires activations of a network that is not included:
//! [`frechet_distance`] computes it from activations of any source.
//!
//! ```
//! use grpo_chem::distribution::{Measures, Record, Role, Sets};
//!
//! let generated = Record::parse_all(&["CCO", "c1ccccc1CC(=O)NC", "C1CC"], Role::Generated);
//! let test = Record::parse_all(&["CCN", "CCO"], Role::Reference);
//! let valid = |records: Vec<Result<Record, _>>| records.into_iter().flatten().collect::<Vec<_>>();
//! let (samples, generated, test) = (generated.len(), valid(generated), valid(test));
//!
//! let sets = Sets { test: Some(&test), ..Sets::new(samples, &generated) };
//! let measures = Measures::new(&sets);
//! assert_eq!(measures.validity, Some(2.0 / 3.0));
//! assert_eq!(measures.test.unwrap().scaffolds, None);
//! assert_eq!(measures.missing[0].measure, "unique_at_1000");
//! ```

mod brics;
mod counts;
mod error;
mod filters;
mod frechet;
mod guacamol;
mod measures;
mod record;
mod similarity;
mod values;

pub use counts::{cosine_similarity, count, distinct_fraction, novel_fraction};
pub use error::MeasureError;
pub use frechet::{frechet_distance, frechet_score};
pub use guacamol::{Divergences, Guacamol};
pub use measures::{Comparison, Measures, Missing, Sets};
pub use record::{Flat, Record, Role};
pub use similarity::{
    MOST_COMPARED, OnBits, internal_diversity, nearest_in_set, nearest_neighbor_similarity,
};
pub use values::{continuous_kl, discrete_kl, wasserstein_distance};
