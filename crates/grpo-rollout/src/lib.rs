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
pub use engine::{Engine, EngineFactory, EngineRequest, StepKey, TurnRequest};
pub use episode::{Episode, EpisodeFactory, Next};
pub use episode_kind::{EpisodeConfig, EpisodeKind, EpisodeSection};
pub use error::RolloutError;
pub use registry::{
    EngineConfig, EngineContext, EngineKind, EngineRegistry, EngineRun, EngineSection, LOCAL,
    Notify,
};
pub use stop::{Decode, StopRule, StopStrings};
