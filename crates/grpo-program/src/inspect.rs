//! Commands that read what runs recorded.

pub(crate) mod adapter_layers;
pub(crate) mod attention;
pub(crate) mod audit;
pub(crate) mod devices;
pub(crate) mod evidence;
pub(crate) mod explain;
pub(crate) mod explanation;
pub(crate) mod families;
pub(crate) mod recorded;
pub(crate) mod recorded_steps;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run_reward;
pub(crate) mod selftest;
