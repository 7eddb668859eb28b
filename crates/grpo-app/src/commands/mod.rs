//! One file for each command.

pub(crate) mod audit;
pub(crate) mod clean_data;
pub(crate) mod explain;
pub(crate) mod fill;
pub(crate) mod init;
pub(crate) mod logprob;
pub(crate) mod merge;
pub(crate) mod pretrain;
pub(crate) mod pretrain_infiller;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod sample;
pub(crate) mod selftest;
pub(crate) mod split_data;
pub(crate) mod train;
pub(crate) mod train_engagement;
pub(crate) mod train_judge;
pub(crate) mod train_tokenizer;
pub(crate) mod trial;

use crate::task::TaskCommand;

/// The subcommands of the task of replies.
pub(crate) fn reply_commands() -> Vec<TaskCommand> {
    vec![train_engagement::command(), split_data::command(), clean_data::command()]
}

/// The subcommands of the task of blanks.
pub(crate) fn infill_commands() -> Vec<TaskCommand> {
    vec![train_judge::command(), fill::command()]
}
