//! One file for each command.

pub(crate) mod audit;
pub(crate) mod clean_data;
pub(crate) mod describe;
pub(crate) mod explain;
pub(crate) mod fill;
pub(crate) mod init;
pub(crate) mod logprob;
pub(crate) mod merge;
pub(crate) mod pretrain;
mod pretrain_infiller;
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
