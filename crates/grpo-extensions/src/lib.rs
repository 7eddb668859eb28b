#![doc = include_str!("../README.md")]

mod ahead;
mod archive;
mod bucketing;
mod combined;
mod configured;
mod diversity_bonus;
mod diversity_filter;
mod replay;
mod score_archive;
mod similar_texts;
#[cfg(test)]
#[path = "../../grpo-train/src/test_groups.rs"]
mod test_groups;

use grpo_model::LanguageModel;

pub use ahead::{AheadConfig, SamplingAhead, Staleness};
pub use archive::{Archive, ArchivedCall};
pub use bucketing::{BucketFn, Bucketing};
pub use combined::{Combined, CombinedConfig};
pub use configured::{
    BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionParts, ParseExtension,
    ReadExamples, as_section, build_extensions, check_extensions, metrics_of_kinds, refuse_with,
    section,
};
pub use diversity_bonus::{BonusMeasure, DiversityBonus, DiversityBonusConfig};
pub use diversity_filter::{BucketPenalty, DiversityFilter, DiversityFilterConfig};
pub use replay::{ReplayConfig, Variation};
pub use score_archive::{ArchiveConfig, CallLimit, ScoreArchive, archived_calls};
pub use similar_texts::{NewSimilarTexts, SimilarTexts};

/// Returns the kinds of extensions of this crate, in the order in which a step calls them.
pub fn extension_kinds<M: LanguageModel>() -> Vec<ExtensionKind<M>> {
    vec![
        ahead::kind(),
        combined::kind(),
        score_archive::kind(),
        diversity_bonus::kind(),
        diversity_filter::kind(),
    ]
}
