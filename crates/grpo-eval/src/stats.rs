//! Statistics for comparing evaluations: intervals, tests, effect sizes, corrections, agreement.
//!
//! All functions reject NaN and infinite numbers. Where SciPy or scikit-learn have the same
//! function, the results are equal; `tests/peers/eval` compares them.

mod agreement;
mod alternative;
mod bootstrap;
mod comparison;
mod correction;
mod correlation;
mod distribution;
mod effect;
mod mann_whitney;
mod ranks;
mod sign_test;
mod t_test;
mod unpaired;
mod wasserstein;
mod wilcoxon;

pub use agreement::{Agreement, KappaWeights, cohens_kappa, rater_agreement};
pub use alternative::{Alternative, Direction};
pub use bootstrap::{Bootstrap, Estimate, IntervalMethod};
pub use comparison::{Comparison, Conclusion, PairedSample, PairedTest, compare_metrics};
pub use correction::{benjamini_hochberg, holm};
pub use correlation::{pearson_test, spearman_test};
pub use effect::{EffectBand, cliffs_delta, cohens_d};
pub use grpo_data::statistics::TestResult;
pub use mann_whitney::mann_whitney_u;
pub use sign_test::sign_test;
pub use t_test::paired_t_test;
pub use unpaired::{UnpairedComparison, UnpairedSample, compare_unpaired};
pub use wasserstein::wasserstein_distance;
pub use wilcoxon::wilcoxon_signed_rank;
