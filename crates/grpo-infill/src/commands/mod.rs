//! A file for each subcommand, and for the objective of `grpo pretrain`.

pub(crate) mod fill;
pub(crate) mod pretrain;
pub(crate) mod train_judge;
