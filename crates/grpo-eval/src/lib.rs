#![doc = include_str!("../README.md")]
//!
//! - [`RewardSummary`] and [`RewardChange`] contain mean rewards with standard errors.
//! - [`Embedder`] computes vectors whose dot products are cosine similarities. [`HashedNgrams`] is
//!   an implementation that needs no model.
//! - [`words`] splits texts into words for all measures except ROUGE. [`self_bleu`] and
//!   [`distinct`] count n-grams.
//! - [`Diversity`] measures the diversity of texts and the contribution of each text.
//!   [`GroupDiversity`] and [`SemanticDiversity`] measure the completions of many prompts.
//! - [`pass_at_k`], [`majority_at_k`], [`DiversityEfficiency`] and [`selected_quality`] tell what several samples of a
//!   prompt gain. [`QualityChecker`] decides what passes.
//! - [`Rouge`] compares texts with references. [`Vocabulary`] and [`TextLengths`] describe texts.
//! - [`ParetoFront`], [`summarize_seeds`] and [`check_gates`] compare models;
//!   [`expected_calibration_error`] is for judges.
//! - [`judge`] has prompts for language models as judges, and the results of their verdicts and
//!   scores.
//! - [`stats`] has intervals, tests and effect sizes.

mod bert_score;
mod calibration;
mod diversity;
mod efficiency;
mod embedder;
mod error;
mod gates;
mod group_diversity;
mod hashed_ngrams;
pub mod judge;
mod low_rank;
mod majority;
mod ngrams;
mod pareto;
mod passk;
mod porter;
mod quality;
mod rewards;
mod rouge;
mod seeds;
mod semantic;
pub mod stats;
mod usq;
mod vocabulary;
mod words;

pub use bert_score::{BertScore, TokenVectors};
pub use calibration::{CalibrationBin, calibration_curve, expected_calibration_error};
pub use diversity::{Diversity, DiversityMeasure, NoEmbedder};
pub use efficiency::{DiversityEfficiency, EfficiencyBand, collapse_point, independence_ratio};
pub use embedder::{EmbedError, Embedder, cosine};
pub use error::MeasureError;
pub use gates::{BASELINE_GATES, GRPO_GATES, Gate, GateResult, POLYCHROMIC_GATES, check_gates};
pub use group_diversity::{GroupDiversity, NgramDiversity, SemanticDiversity};
pub use hashed_ngrams::HashedNgrams;
pub use low_rank::{LowRankUpdate, UpdateSize};
pub use majority::{PromptVotes, majority_at_k};
pub use ngrams::{distinct, self_bleu};
pub use pareto::ParetoFront;
pub use passk::{PassAtK, PromptPasses, pass_at_k};
pub use porter::porter_stem;
pub use quality::{QualityChecker, QualityFault};
pub use rewards::{Change, RewardChange, RewardSummary};
pub use rouge::{Rouge, RougeScore};
pub use seeds::{SeedSummary, summarize_seeds};
pub use semantic::mean_cosine_distance;
pub use usq::{Candidates, SelectedQuality, Selector, selected_quality};
pub use vocabulary::{TextLengths, Vocabulary, token_entropy};
pub use words::{is_all_capitals, words};
