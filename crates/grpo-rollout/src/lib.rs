#![doc = include_str!("../README.md")]

mod autoregressive;
mod checked;
mod distributed;
mod engine;
mod episode;
mod episode_kind;
mod error;
mod registry;
mod row;
mod sampling;
mod sampling_loop;
mod stop;

pub use autoregressive::{Autoregressive, NextTokens, RolloutSettings, refuse_interrupt};
pub use checked::{check_groups, create_checked};
pub use distributed::Distributed;
pub use engine::{Engine, EngineFactory, EngineRequest, Report, StepKey, TurnRequest};
pub use episode::{Episode, EpisodeFactory, Next};
pub use episode_kind::{EpisodeConfig, EpisodeKind, EpisodeSection};
pub use error::RolloutError;
pub use registry::{
    EngineConfig, EngineContext, EngineKind, EngineRegistry, EngineRun, EngineSection, LOCAL,
    Notify,
};
pub use stop::{Decode, StopRule, StopStrings};

impl Default for EngineRegistry {
    /// Returns the engines of this crate, of which [`LOCAL`] is the first.
    fn default() -> Self {
        Self::empty().with([LOCAL])
    }
}

/// Returns the episodes that every program has, in addition to those of its tasks.
pub fn episode_kinds() -> Vec<EpisodeKind> {
    Vec::new()
}
