#![doc = include_str!("../README.md")]

mod ahead;
mod archive;
mod combined;
mod configured;
mod diversity_bonus;
mod diversity_filter;
mod replay;
mod score_archive;
mod similar_texts;
#[cfg(test)]
mod test_groups;

pub use ahead::{AheadConfig, SamplingAhead, Staleness};
pub use archive::{Archive, ArchivedCall};
pub use combined::{Combined, CombinedConfig};
pub use configured::{
    BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionParts, ParseExtension,
    ReadExamples, as_section, extension_kinds, metrics_of_kinds, section,
};
pub use diversity_bonus::{BonusMeasure, DiversityBonus, DiversityBonusConfig};
pub use diversity_filter::{
    BucketFn, BucketPenalty, Bucketing, DiversityFilter, DiversityFilterConfig,
};
pub use replay::{ReplayConfig, Variation};
pub use score_archive::{ArchiveConfig, CallLimit, ScoreArchive, archived_calls};
pub use similar_texts::{NewSimilarTexts, SimilarTexts};
