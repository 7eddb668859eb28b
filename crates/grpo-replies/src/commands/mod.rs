//! Subcommands, one per module.

pub(crate) mod clean_data;
pub(crate) mod split_data;
pub(crate) mod train_engagement;
