//! One file per command.

pub(crate) mod adapter_layers;
pub(crate) mod attention;
pub(crate) mod audit;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod dynamics;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod import_trl;
pub(crate) mod init;
pub(crate) mod judge;
pub(crate) mod logprob;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod pretrain;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod sample;
pub(crate) mod score;
pub(crate) mod selftest;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod train_tokenizer;
pub(crate) mod trial;
