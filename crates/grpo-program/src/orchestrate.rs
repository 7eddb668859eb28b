//! Commands that run other commands as stages.

pub(crate) mod pipeline;
pub(crate) mod sweep;
