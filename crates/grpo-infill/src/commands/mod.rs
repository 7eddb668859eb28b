//! Subcommands for infilling, and the infilling objective of `grpo pretrain`.

pub(crate) mod fill;
pub(crate) mod pretrain;
pub(crate) mod train_judge;
