//! A file for each subcommand.

pub(crate) mod clean_data;
pub(crate) mod split_data;
pub(crate) mod train_engagement;
